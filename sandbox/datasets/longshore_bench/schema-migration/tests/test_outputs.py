"""migrate.sql is run by the image's sqlite3 on databases that are made here, and its work looked at in a copy."""

import base64
import sqlite3
from contextlib import closing

import nobody

OLD = (
    "CREATE TABLE lines (id INTEGER PRIMARY KEY, order_no TEXT NOT NULL, email TEXT, name TEXT, product TEXT,"
    " qty INTEGER, price TEXT, ordered_at TEXT NOT NULL)"
)


def migrated(lines, *more):
    """Return what sqlite3 printed, and the database after it."""
    made = nobody.folder({"shop.db": b""})
    with closing(sqlite3.connect(made / "shop.db")) as db:
        db.execute(OLD)
        db.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?, ?)", lines)
        for each in more:
            db.execute(each)
        db.commit()
    script = nobody.read("/app/migrate.sql")
    assert script.strip(), "there is no script"
    done = nobody.run("sqlite3", "-bail", made / "shop.db", stdin=script, cwd=made)
    copy = nobody.folder() / "copy.db"
    copy.write_bytes(base64.b64decode(nobody.run("base64", "-w0", made / "shop.db").stdout))
    return done, sqlite3.connect(copy)


def asked(lines, *queries):
    done, db = migrated(lines)
    assert done.returncode == 0, done.stderr
    with closing(db):
        answers = [db.execute(query).fetchall() for query in queries]
    return answers[0] if len(answers) == 1 else answers


def line(id_, order="o", email="a@x", name="A", product="p", qty=1, price="1", at="2024-01-01"):
    return id_, order, email, name, product, qty, price, at


def test_schema():
    done, db = migrated([line(1)])
    assert done.returncode == 0, done.stderr
    with closing(db):
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        assert tables == {"customers", "products", "orders", "order_items", "rejected"}
        columns = {
            table: [(row[1], row[5]) for row in db.execute(f"PRAGMA table_info({table})")] for table in sorted(tables)
        }
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    assert columns == {
        "customers": [("id", 1), ("email", 0), ("name", 0)],
        "order_items": [("order_id", 1), ("product_id", 2), ("qty", 0), ("cents", 0)],
        "orders": [("id", 1), ("number", 0), ("customer_id", 0), ("ordered_at", 0)],
        "products": [("id", 1), ("name", 0)],
        "rejected": [("line_id", 1), ("reason", 0)],
    }


def refused(db, statement):
    try:
        db.execute(statement)
    except sqlite3.IntegrityError:
        return True
    return False


def test_rules_of_tables():
    done, db = migrated([line(1)])
    assert done.returncode == 0, done.stderr
    with closing(db):
        db.execute("PRAGMA foreign_keys = ON")
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        for statement in [
            "INSERT INTO customers (email, name) VALUES ('a@x', 'again')",
            "INSERT INTO customers (email) VALUES ('b@x')",
            "INSERT INTO products (name) VALUES ('p')",
            "INSERT INTO orders (number, customer_id, ordered_at) VALUES ('z', 99, '')",
            "INSERT INTO orders (number, customer_id) VALUES ('z', 1)",
            "UPDATE order_items SET qty = 0",
            "UPDATE order_items SET product_id = 99",
            "INSERT INTO rejected VALUES (1, NULL)",
        ]:
            assert refused(db, statement), statement
        db.execute("DELETE FROM orders")
        assert db.execute("SELECT count(*) FROM order_items").fetchone() == (0,)


def test_customers():
    lines = [
        line(1, email=" Ann@X ", name="Old"),
        line(2, email="ann@x", name=" New "),
        line(3, email="ANN@x", name="  "),
        line(4, email="bob@x", name=None),
        line(5, email="bob@x", name="Rejected", qty=0),
        line(6, email="gone@x", price="?"),
    ]
    assert asked(lines, "SELECT email, name FROM customers ORDER BY email") == [("ann@x", "New"), ("bob@x", "bob@x")]


def test_orders():
    lines = [
        line(5, "A", "late@x", at="2024-01-01"),
        line(3, "A", "first@x", at="2024-03-03"),
        line(1, "A", "bad@x", qty=-1, at="2023-01-01"),
        line(7, "B", "late@x", at="2024-02-02 10:00"),
        line(8, "C", "late@x", price=""),
    ]
    query = "SELECT number, email, ordered_at FROM orders JOIN customers ON customers.id = customer_id ORDER BY number"
    assert asked(lines, query) == [("A", "first@x", "2024-03-03"), ("B", "late@x", "2024-02-02 10:00")]


def test_items_and_cents():
    lines = [
        line(1, "A", product="Rope", qty=2, price="12.50"),
        line(9, "A", product=" Rope", qty=3, price=" 19,99 "),
        line(4, "A", product="Rope ", qty=1, price="99"),
        line(5, "A", product="rope", price="0.29"),
        line(6, "B", product=None, price="1.1"),
        line(7, "B", product=" ", qty=4, price="8,05"),
        line(8, "B", product="Sail", price="90071992547409.93"),
    ]
    items, names = asked(
        lines,
        "SELECT number, name, qty, cents, typeof(cents) FROM order_items JOIN orders ON orders.id = order_id"
        " JOIN products ON products.id = product_id ORDER BY number, name",
        "SELECT name FROM products ORDER BY name",
    )
    assert items == [
        ("A", "Rope", 6, 1999, "integer"),
        ("A", "rope", 1, 29, "integer"),
        ("B", "Sail", 1, 9007199254740993, "integer"),
        ("B", "unknown", 5, 805, "integer"),
    ]
    assert names == [("Rope",), ("Sail",), ("rope",), ("unknown",)]


def test_rejected():
    bad = ["", "x", "1.", ".5", "1.234", "-1", "1e3", "1.2.3", "1 2", "1,2,3", "+1", "1.x", None]
    lines = [line(100 + number, price=price) for number, price in enumerate(bad)]
    lines += [line(1), line(2, email=None, qty=0), line(3, email=" "), line(4, qty=None, price="x"), line(5, qty=-2)]
    assert asked(lines, "SELECT line_id, reason FROM rejected ORDER BY line_id") == [
        *((2, "no customer"), (3, "no customer"), (4, "bad quantity"), (5, "bad quantity")),
        *((100 + number, "bad price") for number in range(len(bad))),
    ]


def test_one_transaction():
    done, db = migrated([line(1), line(2)])
    assert done.returncode == 0, done.stderr
    db.close()
    # A table in the way lets it fail somewhere.
    for name in ("rejected", "order_items", "products"):
        done, db = migrated([line(1), line(2)], f"CREATE TABLE {name} (x)")
        with closing(db):
            assert done.returncode != 0
            assert db.execute("SELECT count(*) FROM lines").fetchone() == (2,)
            tables = {found for (found,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            assert tables == {"lines", name}
            assert db.execute("PRAGMA user_version").fetchone() == (0,)
