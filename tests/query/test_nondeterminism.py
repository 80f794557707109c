"""The same query under other conditions: with its ties broken, and under another clock."""

from pathlib import Path

import apsw
import pytest

from envbuild.query.nondeterminism import ClockedSession, break_ties
from envbuild.schema.read import read_schema


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("SELECT a, b FROM t ORDER BY a LIMIT 1", [(1, 1)]),
        ("SELECT * FROM t ORDER BY a DESC LIMIT 1 OFFSET 1", [(1, 2)]),
        ("SELECT * FROM t JOIN u USING (a) LIMIT 1", [(1, 1, 7)]),
        ("SELECT b FROM t WHERE b = (SELECT b FROM t ORDER BY a LIMIT 1)", [(1,)]),
        ("SELECT a FROM t UNION SELECT b FROM t LIMIT 1", [(1,)]),
        ("WITH x AS (SELECT b FROM t ORDER BY a LIMIT 2) SELECT max(b) FROM x", [(2,)]),
    ],
)
def test_ties_are_broken_behind_the_order(sql: str, kept: list[tuple[int, ...]]) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 3), (1, 2), (1, 1);"
        "CREATE TABLE u (a, c); INSERT INTO u VALUES (1, 8), (1, 7)"
    )
    ties = break_ties(sql, read_schema(connection))
    assert ties is not None
    assert connection.execute(ties.upwards).fetchall() == kept, ties.upwards


def test_a_linked_file_has_a_clock_too(tmp_path: Path) -> None:
    real = tmp_path / "real.sqlite"
    connection = apsw.Connection(str(real))
    connection.execute("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    connection.close()
    link = tmp_path / "folder" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(real)
    clocked = ClockedSession(link)
    found = clocked.run_at("2004-02-29 12:00", "SELECT date('now'), a FROM t")
    clocked.close()
    assert found.rows == (("2004-02-29", 1),)
