set -e
sqlite3 /app/shop.db <<'EOF'
CREATE TABLE lines (
    id INTEGER PRIMARY KEY, order_no TEXT NOT NULL, email TEXT, name TEXT, product TEXT, qty INTEGER, price TEXT,
    ordered_at TEXT NOT NULL
);
INSERT INTO lines VALUES
    (1, 'A-1', 'Ann@Shop.example ', 'Ann', 'Rope', 2, '12.50', '2024-01-02'),
    (2, 'A-1', 'ann@shop.example', NULL, 'Rope ', 1, '12,5', '2024-01-03'),
    (3, 'A-2', 'bob@shop.example', ' ', NULL, 1, '7', '2024-01-03'),
    (4, 'A-3', '  ', 'Nobody', 'Sail', 1, '100', '2024-01-04'),
    (5, 'A-2', 'bob@shop.example', 'Bob', 'Sail', 0, '100', '2024-01-04'),
    (6, 'A-4', 'ann@shop.example', 'Ann B.', 'rope', 1, '12.345', '2024-01-05');
EOF
