"""Foreign-key clauses are found alike by the short way and by the walk."""

import random
import sqlite3

import pytest

from envbuild.sql.files.references import _find_in_plain, _walk
from tests.shared import shared_data

PARTS = (
    *("a INT", "b TEXT NOT NULL", "VARCHAR(20)", "PRIMARY KEY", "UNIQUE (a)", "CHECK (a > 1)"),
    *("REFERENCES x", 'references "x y" (a,b)', "REFERENCES x(a)", "REFERENCES `x`", "xreferences"),
    *("ON DELETE CASCADE", "on update set null", "match full", "NOT DEFERRABLE", "referencesx"),
    *("FOREIGN KEY (a)", 'foreign key("b", c)', '"foreign key (x)"', '"references q"', "foreign"),
    *("CONSTRAINT c", 'constraint "x y"', "DEFERRABLE INITIALLY DEFERRED", "/* c */", "'s'"),
    *(",", ", ", "\n", " ", "(", ")", '"', "`"),
)


def agree(ddl: str) -> bool:
    """Whether the short way dared to answer; it must then answer as the walk does."""
    plain = _find_in_plain(ddl)
    assert plain is None or plain == _walk(ddl), ddl
    return plain is not None


def test_any_mixture_of_clauses() -> None:
    chance = random.Random(7)
    answered = 0
    for _ in range(20_000):
        parts = (chance.choice(PARTS) + chance.choice((" ", "", ",")) for _ in range(8))
        answered += agree("CREATE TABLE t (a " + "".join(parts))
    assert answered > 2_000


@pytest.mark.parametrize("folder", ["spider/database", "bird/dev_databases", "large/beaver"])
def test_published_ddl(folder: str) -> None:
    answered = 0
    for path in sorted(shared_data(*folder.split("/")).rglob("*.sqlite")):
        connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        for (ddl,) in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table'"):
            answered += agree(ddl)
        connection.close()
    assert answered
