"""Seeded inputs that the benches share: databases and gold SQL of the published shapes."""

import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from envbuild.materialize.build import build_database
from envbuild.records.corpus import DatabaseRecord
from envbuild.sql.connect import Connection


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


def fill_tables(path: Path, rows: Sequence[int]) -> Path:
    """So many rows for the first tables of a shape."""
    with closing(Connection(str(path))) as connection:
        connection.execute("PRAGMA synchronous = OFF; BEGIN")
        for number, count in enumerate(rows):
            connection.execute(
                f"WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT {count})"
                f" INSERT INTO {table_name(number)} SELECT i, i % 20 + 1, 'name ' || (i % 60),"
                f" (i * 37 + {number}) % 1001 * 1.5, 'note ' || (i * 131 % 1000),"
                " date('2010-01-01', (i * 79) || ' days') FROM n"
            )
        connection.execute("COMMIT")
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
