"""Foreign-key clauses go, and what is left is still the same table."""

import random

import apsw
import pytest

from envbuild.sql.files.ddl import drop_references
from tests.shared import shared_data

PARTS = (
    *("a INT", "b TEXT NOT NULL", "VARCHAR(20)", "PRIMARY KEY", "UNIQUE (a)", "CHECK (a > 1)"),
    *("REFERENCES x", 'references "x y" (a)', "REFERENCES x(a)", "REFERENCES `x`", "xreferences"),
    *("ON DELETE CASCADE", "on update set null", "match full", "NOT DEFERRABLE", "referencesx"),
    *("FOREIGN KEY (a)", 'foreign key("b")', '"foreign key (x)"', '"references q"', "/* c */"),
    *("CONSTRAINT c", 'constraint "x y"', "DEFERRABLE INITIALLY DEFERRED", "DEFAULT 's'"),
    *(",", ", ", ",", ",", ",", "\n", " ", "-- c\n"),
)
KEYS = "SELECT count(*) FROM pragma_foreign_key_list(?)"
COLUMNS = "SELECT name, type, [notnull], dflt_value, pk FROM pragma_table_info(?)"


def drops_keys_alone(ddl: str) -> int:
    """Keys that the table has; without them it must be the same table. -1 where it is none."""
    made = apsw.Connection(":memory:")
    try:
        made.execute(ddl)
    except apsw.Error:
        return -1
    ((name,),) = made.execute("SELECT name FROM sqlite_schema WHERE type = 'table' LIMIT 1")
    left = drop_references(ddl, ())
    bare = apsw.Connection(":memory:")
    bare.execute(left)
    assert bare.execute(KEYS, (name,)).fetchall() == [(0,)], (ddl, left)
    assert bare.execute(COLUMNS, (name,)).fetchall() == made.execute(COLUMNS, (name,)).fetchall()
    indexes = "SELECT count(*) FROM sqlite_schema"
    assert bare.execute(indexes).fetchall() == made.execute(indexes).fetchall()
    ((keys,),) = made.execute(KEYS, (name,))
    return int(keys)


def test_any_mixture_of_clauses() -> None:
    chance = random.Random(7)
    found = [
        drops_keys_alone(
            "CREATE TABLE t (a INT, b, c "
            + "".join(chance.choice(PARTS) + chance.choice((" ", " ", "")) for _ in range(4))
            + ")"
        )
        for _ in range(20_000)
    ]
    assert sum(keys >= 0 for keys in found) > 2_000
    assert sum(keys > 0 for keys in found) > 1_000


@pytest.mark.parametrize("folder", ["spider/database", "bird/dev_databases", "large/beaver"])
def test_published_ddl(folder: str) -> None:
    keys = 0
    for path in sorted(shared_data(*folder.split("/")).rglob("*.sqlite")):
        connection = apsw.Connection(
            f"file:{path}?mode=ro&immutable=1", flags=apsw.SQLITE_OPEN_URI | 1
        )
        ddl = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (sql,) in connection.execute(ddl).fetchall():
            keys += drops_keys_alone(sql)
        connection.close()
    assert keys > 0
