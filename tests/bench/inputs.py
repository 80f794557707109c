"""Seeded inputs that the benches share: databases and gold SQL of the published shapes."""

import json
import random
from contextlib import closing
from pathlib import Path

from envbuild.materialize.build import build_database
from envbuild.records.corpus import DatabaseRecord
from envbuild.sql.connect import Connection

SHOP_DDL = """
CREATE TABLE users (user_id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT, joined DATE);
CREATE TABLE products (product_id INTEGER PRIMARY KEY, title TEXT, category TEXT, price REAL);
CREATE TABLE orders (order_id INTEGER PRIMARY KEY, user_id INT REFERENCES users (user_id),
                     placed DATE, status TEXT, total REAL);
CREATE TABLE items (item_id INTEGER PRIMARY KEY, order_id INT REFERENCES orders (order_id),
                    product_id INT REFERENCES products (product_id), quantity INT);
"""
SHOP_GOLDS = (
    "WITH spent AS (SELECT o.user_id, SUM(o.total) AS total, COUNT(*) AS orders FROM orders AS o "
    "WHERE o.status = 'paid' AND o.placed >= '2024-01-10' GROUP BY o.user_id HAVING COUNT(*) >= 1) "
    "SELECT u.name, s.total, RANK() OVER (PARTITION BY u.country ORDER BY s.total DESC) AS place "
    "FROM spent AS s JOIN users AS u ON u.user_id = s.user_id WHERE u.country IN ('c1', 'c2') "
    "ORDER BY s.total DESC, u.name LIMIT 5",
    "SELECT p.category, COUNT(DISTINCT o.user_id) AS buyers, AVG(i.quantity * p.price) AS average "
    "FROM items AS i JOIN products AS p ON p.product_id = i.product_id "
    "JOIN orders AS o ON o.order_id = i.order_id WHERE p.price BETWEEN 5 AND 30 AND i.quantity > 1 "
    "GROUP BY p.category HAVING SUM(i.quantity) > 3 ORDER BY buyers DESC, average",
    "WITH ranked AS (SELECT o.order_id, o.user_id, o.total, ROW_NUMBER() OVER (PARTITION BY "
    "o.user_id ORDER BY o.total DESC) AS place FROM orders AS o WHERE o.status <> 'open'), "
    "best AS (SELECT user_id, total FROM ranked WHERE place = 1) SELECT u.country, "
    "ROUND(AVG(b.total), 2) AS best, COUNT(*) AS buyers FROM best AS b LEFT JOIN users AS u "
    "ON u.user_id = b.user_id GROUP BY u.country ORDER BY best DESC",
    "SELECT u.name, (SELECT MAX(o.total) FROM orders AS o WHERE o.user_id = u.user_id) AS most "
    "FROM users AS u WHERE EXISTS (SELECT 1 FROM orders AS o WHERE o.user_id = u.user_id AND "
    "o.total > (SELECT AVG(total) FROM orders)) AND u.joined < '2024-02-01' ORDER BY most DESC",
)


def build_shape(path: Path, *, tables: int, seed: int = 0) -> Path:
    """A database of `tables` tables without rows, each with a foreign key to an earlier one."""
    chance = random.Random(f"shape/{seed}")
    ddl = []
    for number in range(tables):
        parent = chance.randrange(number) if number else 0
        ddl.append(
            f"CREATE TABLE {table_name(number)} (id INTEGER PRIMARY KEY, "
            f"parent_id INTEGER REFERENCES {table_name(parent)} (id), "
            "name VARCHAR(40) NOT NULL, amount DECIMAL(10, 2), note TEXT, day DATE);"
        )
    build_database(DatabaseRecord(db_id=path.stem, ddl="\n".join(ddl)), path)
    return path


def fill_tables(path: Path, *, tables: int, rows: int) -> None:
    """Rows for every table of a shape."""
    with closing(Connection(str(path))) as connection:
        connection.execute("BEGIN")
        for number in range(tables):
            connection.execute(
                f"WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT {rows})"
                f" INSERT INTO {table_name(number)} SELECT i, i % 20 + 1, 'name ' || (i % 60),"
                f" (i * 37 + {number}) % 1001 * 1.5, 'note ' || (i * 131 % 1000),"
                " date('2010-01-01', (i * 79) || ' days') FROM n"
            )
        connection.execute("COMMIT")


def build_shop(path: Path) -> Path:
    """The database of `SHOP_GOLDS`: forty rows a table."""
    turns = range(1, 41)
    payload = {
        "users": [[n, f"name {n}", f"c{n % 4}", f"2024-01-{n % 28 + 1:02}"] for n in turns],
        "products": [[n, f"title {n}", f"k{n % 5}", n * 0.75] for n in turns],
        "orders": [
            [n, n % 17 + 1, f"2024-01-{n % 28 + 1:02}", ("paid", "open")[n % 3 == 0], n * 3.5]
            for n in turns
        ],
        "items": [[n, n % 23 + 1, n % 31 + 1, n % 4 + 1] for n in turns],
    }
    build_database(DatabaseRecord(db_id="shop", ddl=SHOP_DDL, payload=json.dumps(payload)), path)
    return path


def table_name(number: int) -> str:
    """The name of a shape's n-th table."""
    return f"customer_order_{number}"


def gold_queries(count: int, *, tables: int, seed: int = 0) -> list[str]:
    """Gold SQL over such a database: joins, CTEs, windows, literals; 339 characters on average."""
    chance = random.Random(f"gold/{seed}")
    return [chance.choice(_FORMS)(chance, tables) for _ in range(count)]


def _joined(chance: random.Random, tables: int) -> str:
    a, b, c = (table_name(chance.randrange(tables)) for _ in range(3))
    return (
        f"SELECT T1.name, COUNT(T2.id) AS orders, AVG(T3.amount) AS mean_amount FROM {a} AS T1 "
        f"INNER JOIN {b} AS T2 ON T1.id = T2.parent_id INNER JOIN {c} AS T3 ON T2.id = "
        f"T3.parent_id WHERE T1.note LIKE '%{chance.randrange(999)}%' AND T3.amount > "
        f"{chance.randrange(1000)}.5 GROUP BY T1.name HAVING COUNT(T2.id) >= 3 "
        f"ORDER BY mean_amount DESC LIMIT {chance.randrange(1, 20)}"
    )


def _with_cte(chance: random.Random, tables: int) -> str:
    a, b = (table_name(chance.randrange(tables)) for _ in range(2))
    return (
        f"WITH recent AS (\n  SELECT id, parent_id, amount FROM {a}\n  WHERE day >= "
        f"'2023-0{chance.randrange(1, 9)}-01' AND name <> 'O''Brien'\n), ranked AS (\n  "
        "SELECT r.id, r.amount, ROW_NUMBER() OVER (PARTITION BY r.parent_id ORDER BY r.amount "
        f"DESC) AS place FROM recent AS r\n)\nSELECT b.name, ranked.amount FROM ranked JOIN {b} "
        f"AS b ON b.id = ranked.id WHERE ranked.place <= {chance.randrange(2, 9)} AND b.note "
        "IS NOT NULL;"
    )


def _nested(chance: random.Random, tables: int) -> str:
    a, b = (table_name(chance.randrange(tables)) for _ in range(2))
    return (
        f"SELECT name, CASE WHEN amount > {chance.randrange(500)} THEN 'high' ELSE 'low' END AS "
        f"level FROM {a} WHERE id IN (SELECT parent_id FROM {b} WHERE strftime('%Y', day) = "
        f"'20{chance.randrange(10, 24)}') AND amount BETWEEN 10 AND {chance.randrange(99, 999)}"
    )


_FORMS = (_joined, _with_cte, _nested)
