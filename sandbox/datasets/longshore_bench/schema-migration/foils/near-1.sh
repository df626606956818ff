# Floats for cents, e-mails as they are, and no transaction.
cat > /app/migrate.sql <<'EOF'
CREATE TABLE customers (id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE, name TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE orders (id INTEGER PRIMARY KEY, number TEXT NOT NULL UNIQUE, customer_id INTEGER NOT NULL REFERENCES customers, ordered_at TEXT NOT NULL);
CREATE TABLE order_items (order_id INTEGER NOT NULL REFERENCES orders ON DELETE CASCADE, product_id INTEGER NOT NULL REFERENCES products, qty INTEGER NOT NULL CHECK (qty > 0), cents INTEGER NOT NULL, PRIMARY KEY (order_id, product_id));
CREATE TABLE rejected (line_id INTEGER PRIMARY KEY, reason TEXT NOT NULL);
INSERT INTO rejected SELECT id, CASE WHEN trim(coalesce(email, '')) = '' THEN 'no customer' WHEN coalesce(qty, 0) < 1 THEN 'bad quantity' ELSE 'bad price' END
FROM lines WHERE trim(coalesce(email, '')) = '' OR coalesce(qty, 0) < 1 OR price IS NULL OR NOT replace(price, ',', '.') GLOB '[0-9]*';
DELETE FROM lines WHERE id IN (SELECT line_id FROM rejected);
INSERT INTO customers (email, name) SELECT trim(email), coalesce(max(name), email) FROM lines GROUP BY trim(email);
INSERT INTO products (name) SELECT DISTINCT coalesce(trim(product), 'unknown') FROM lines;
INSERT INTO orders (number, customer_id, ordered_at) SELECT order_no, (SELECT id FROM customers c WHERE c.email = trim(lines.email)), min(ordered_at) FROM lines GROUP BY order_no;
INSERT INTO order_items SELECT o.id, p.id, sum(qty), CAST(max(replace(price, ',', '.')) * 100 AS INTEGER) FROM lines JOIN orders o ON number = order_no JOIN products p ON p.name = coalesce(trim(product), 'unknown') GROUP BY 1, 2;
DROP TABLE lines;
PRAGMA user_version = 2;
EOF
