cat > /app/migrate.sql <<'EOF'
PRAGMA foreign_keys = OFF;
BEGIN IMMEDIATE;
CREATE TABLE customers (id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE, name TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    number TEXT NOT NULL UNIQUE,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    ordered_at TEXT NOT NULL
);
CREATE TABLE order_items (
    order_id INTEGER NOT NULL REFERENCES orders (id) ON DELETE CASCADE,
    product_id INTEGER NOT NULL REFERENCES products (id),
    qty INTEGER NOT NULL CHECK (qty > 0),
    cents INTEGER NOT NULL,
    PRIMARY KEY (order_id, product_id)
);
CREATE TABLE rejected (line_id INTEGER PRIMARY KEY, reason TEXT NOT NULL);

CREATE TEMP TABLE read AS
SELECT id, order_no, ordered_at, qty,
    lower(trim(email, ' ' || char(9, 10, 13))) AS email,
    nullif(trim(name, ' ' || char(9, 10, 13)), '') AS name,
    coalesce(nullif(trim(product, ' ' || char(9, 10, 13)), ''), 'unknown') AS product,
    replace(trim(price, ' ' || char(9, 10, 13)), ',', '.') AS price
FROM lines;
CREATE TEMP TABLE parted AS
SELECT *,
    CASE WHEN instr(price, '.') THEN substr(price, 1, instr(price, '.') - 1) ELSE price END AS whole,
    CASE WHEN instr(price, '.') THEN substr(price, instr(price, '.') + 1) END AS part
FROM read;
CREATE TEMP TABLE judged AS
SELECT *,
    CASE
        WHEN coalesce(email, '') = '' THEN 'no customer'
        WHEN qty IS NULL OR qty < 1 THEN 'bad quantity'
        WHEN price IS NULL OR whole = '' OR whole GLOB '*[^0-9]*' OR part = '' OR length(part) > 2
            OR part GLOB '*[^0-9]*' THEN 'bad price'
    END AS reason,
    CAST(whole AS INTEGER) * 100 + CAST(substr(coalesce(part, '') || '00', 1, 2) AS INTEGER) AS cents
FROM parted;

INSERT INTO rejected SELECT id, reason FROM judged WHERE reason IS NOT NULL;
DELETE FROM judged WHERE reason IS NOT NULL;
INSERT INTO customers (email, name)
SELECT DISTINCT email, coalesce(
    (SELECT name FROM judged AS other WHERE other.email = judged.email AND name IS NOT NULL ORDER BY id DESC LIMIT 1),
    email
) FROM judged;
INSERT INTO products (name) SELECT DISTINCT product FROM judged;
INSERT INTO orders (number, customer_id, ordered_at)
SELECT order_no, (SELECT id FROM customers WHERE customers.email = judged.email), ordered_at
FROM judged WHERE id IN (SELECT min(id) FROM judged GROUP BY order_no);
INSERT INTO order_items
SELECT orders.id, products.id, sum(qty), (
    SELECT cents FROM judged AS last WHERE last.order_no = judged.order_no AND last.product = judged.product
    ORDER BY last.id DESC LIMIT 1
)
FROM judged JOIN orders ON number = order_no JOIN products ON products.name = product
GROUP BY order_no, product;
DROP TABLE lines;
DROP TABLE temp.read;
DROP TABLE temp.parted;
DROP TABLE temp.judged;
PRAGMA user_version = 2;
COMMIT;
EOF
