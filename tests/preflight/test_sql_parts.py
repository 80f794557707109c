"""What preflight asks SQLite: counts, keys, undecodable text, ties, other conditions."""

import contextlib
import random
from pathlib import Path

import apsw
import pytest

from envbuild.sql.files.inspect import KeyState, check_foreign_keys, count_rows, find_undecodable


def build(path: Path, ddl: str) -> Path:
    connection = apsw.Connection(str(path))
    connection.execute(ddl)
    connection.close()
    return path


def test_rows_of_ordinary_tables_only(tmp_path: Path) -> None:
    many = "".join(f"CREATE TABLE t{n}(a);" for n in range(230))
    path = build(
        tmp_path / "odd ?#%'.sqlite",
        many + "CREATE VIEW v AS SELECT 1; CREATE VIRTUAL TABLE words USING fts5(body);"
        "CREATE TABLE w(a PRIMARY KEY) WITHOUT ROWID; CREATE TABLE sqliteXkept(a);"
        'CREATE TABLE "q""uote"(a INTEGER PRIMARY KEY AUTOINCREMENT);'
        'INSERT INTO "q""uote" VALUES (1),(5); DELETE FROM "q""uote" WHERE a = 1;'
        "INSERT INTO w VALUES (1),(2),(3)",
    )
    counts = count_rows(path)
    assert len(counts) == 233
    assert counts['q"uote'] == 1
    assert counts["w"] == 3
    assert "sqliteXkept" in counts


def test_every_key_is_checked_by_itself() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(
        """CREATE TABLE p(x INT, y INT, id INTEGER PRIMARY KEY, u TEXT UNIQUE, UNIQUE (x, y));
        CREATE VIEW v AS SELECT 1 AS id;
        CREATE TABLE c(a INT REFERENCES p(x), b INT REFERENCES p, g INT REFERENCES gone(id),
          u TEXT REFERENCES P(U), k INT REFERENCES v(id), y INT,
          FOREIGN KEY (y, a) REFERENCES p(y, x));
        INSERT INTO p VALUES (1, 2, 10, 'k');
        INSERT INTO c VALUES (1, 10, 5, 'k', 1, 2), (9, 11, NULL, 'z', 1, 2);"""
    )
    checks = {c.render(): (c.state, c.orphans, c.example) for c in check_foreign_keys(connection)}
    assert checks == {
        "c.a -> p.x": (KeyState.MISMATCH, 0, ""),
        "c.b -> p": (KeyState.CHECKED, 1, "11"),
        "c.g -> gone.id": (KeyState.MISSING_PARENT, 1, "5"),
        "c.u -> P.U": (KeyState.CHECKED, 1, "'z'"),
        "c.k -> v.id": (KeyState.MISMATCH, 0, ""),
        "c.(y, a) -> p.(y, x)": (KeyState.CHECKED, 1, "2, 9"),
    }


@pytest.mark.parametrize("without_rowid", ["", "WITHOUT ROWID"])
def test_undecodable_cells_by_column(without_rowid: str) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(
        f"CREATE TABLE t(rowid TEXT PRIMARY KEY, s TEXT, b BLOB) {without_rowid};"
        "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < 12000) "
        "INSERT INTO t SELECT 'k' || v, 'fine', x'ff' FROM n;"
        "INSERT INTO t VALUES ('y', CAST(x'63E97A' AS TEXT), NULL), ('z', 'ü', NULL),"
        "(CAST(x'FF' AS TEXT), CAST(x'C3' AS TEXT), 1)"
    )
    found = {(u.table, u.column): (u.cells, u.example) for u in find_undecodable(connection)}
    assert found == {("t", "rowid"): (1, "ff"), ("t", "s"): (2, found["t", "s"][1])}


def test_orphans_are_sqlites_own_for_any_affinity() -> None:
    rng = random.Random(7)
    kinds = ("INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC", "", "TEXT COLLATE NOCASE", "INT")
    values = ("1", "'1'", "'01'", "1.0", "'a'", "'A'", "x'61'", "NULL", "2", "'2.0'", "1e3")
    found = 0
    for _ in range(400):
        connection = apsw.Connection(":memory:")
        x, y, u, v = rng.choices(kinds, k=4)
        rowid = rng.choice(("", "WITHOUT ROWID"))
        connection.execute(
            f"CREATE TABLE p(x {x}, y {y}, PRIMARY KEY (x, y)) {rowid};"
            f"CREATE TABLE c(u {u}, v {v}, FOREIGN KEY (u, v) REFERENCES p)"
        )
        for table in "ppppppcccccccc":
            with contextlib.suppress(apsw.Error):  # NOT NULL and UNIQUE keys refuse some
                row = ", ".join(rng.choices(values, k=2))
                connection.execute(f"INSERT INTO {table} VALUES ({row})")
        theirs = connection.execute("PRAGMA foreign_key_check").fetchall()
        assert sum(key.orphans for key in check_foreign_keys(connection)) == len(theirs)
        found += len(theirs)
    assert found > 1000
