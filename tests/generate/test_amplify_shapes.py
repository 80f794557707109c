"""Row amplification on schemas of odd shapes: what the rules admit is added, nothing crashes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.generate.test_amplify import grow, query

SHAPES = {
    "text that is not UTF-8": (
        "CREATE TABLE t (a TEXT); INSERT INTO t VALUES (CAST(x'ff41' AS TEXT)), ('b')",
        "SELECT a FROM t WHERE a = 'b'",
    ),
    "a key that looks like a rowid and is none": (
        "CREATE TABLE t (a INTEGER PRIMARY KEY DESC, b)",
        "SELECT b FROM t WHERE a > 3",
    ),
    "strict types": (
        "CREATE TABLE t (a INT, b TEXT, c REAL, d BLOB, e ANY) STRICT",
        "SELECT a FROM t WHERE b = 'x'",
    ),
    "a required reference to itself": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, boss INT NOT NULL REFERENCES t (id))",
        "SELECT count(*) FROM t AS a JOIN t AS b ON a.boss = b.id",
    ),
    "a stored generated column that is unique": (
        "CREATE TABLE t (x INT, y INT AS (x * 2) STORED UNIQUE)",
        "SELECT x FROM t WHERE y > 10",
    ),
    "names that need quoting": (
        """CREATE TABLE "t t" ("c d" TEXT, "e'""f" INT UNIQUE)""",
        """SELECT "c d" FROM "t t" WHERE "e'""f" > 5""",
    ),
    "keys that compare without case": (
        "CREATE TABLE p (k TEXT COLLATE NOCASE PRIMARY KEY); CREATE TABLE t (k TEXT REFERENCES p)",
        "SELECT * FROM t JOIN p USING (k)",
    ),
    "integers at the edge": (
        "CREATE TABLE t (x INT)",
        "SELECT x FROM t WHERE x > 9223372036854775806 OR x = -9223372036854775808",
    ),
    "a recursive query": (
        "CREATE TABLE t (n TEXT)",
        "WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 5) "
        "SELECT n FROM t, r WHERE i = 3",
    ),
    "a foreign key between text and integer": (
        "CREATE TABLE p (id INTEGER PRIMARY KEY, n TEXT); "
        "CREATE TABLE t (p TEXT REFERENCES p (id))",
        "SELECT p.n FROM t JOIN p ON t.p = p.id WHERE p.n = 'x'",
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("guided", [False, True])
def test_odd_shapes_are_filled_and_their_golds_have_rows(shape: str, guided: bool) -> None:
    ddl, gold = SHAPES[shape]
    grown = grow(ddl, gold, guided=guided)
    assert all(table.rows_before + table.rows_added >= 30 for table in grown.growth.tables)
    assert grown.growth.golds[0].rows_after > 0
    assert query(grown.image, "PRAGMA integrity_check") == [("ok",)]
    assert query(grown.image, "PRAGMA foreign_key_check") == []


def test_two_keys_over_one_column_refer_to_rows_that_both_have() -> None:
    ddl = (
        "CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (id INTEGER PRIMARY KEY);"
        "CREATE TABLE t (id INT NOT NULL, FOREIGN KEY (id) REFERENCES a (id),"
        " FOREIGN KEY (id) REFERENCES b (id));"
        "INSERT INTO a VALUES (1), (2), (3); INSERT INTO b VALUES (3), (4), (5)"
    )
    grown = grow(ddl)
    assert query(grown.image, "PRAGMA foreign_key_check") == []
    assert query(grown.image, "SELECT count(*) >= 30 FROM t") == [(1,)]


def test_a_table_that_admits_no_row_is_left_empty() -> None:
    ddl = "CREATE TABLE t (x INT NOT NULL REFERENCES nowhere (id)); CREATE TABLE u (x CHECK (0))"
    grown = grow(ddl)
    assert [table.rows_added for table in grown.growth.tables] == [0, 0]


def test_wild_rows_keep_declared_rules_only() -> None:
    ddl = (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, must TEXT NOT NULL);"
        "INSERT INTO t VALUES (1, 'one', 'a'), (2, 'two', 'b')"
    )
    nulls = "SELECT count(name IS NULL OR NULL) > 0, count(must IS NULL OR NULL) FROM t"
    assert query(grow(ddl, observed=False).image, nulls) == [(1, 0)]
    assert query(grow(ddl).image, nulls) == [(0, 0)]


TYPES = st.sampled_from(["INT", "TEXT", "REAL", "BLOB", "DATE", "BOOLEAN", "VARCHAR(9)", ""])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tables=st.lists(
        st.lists(st.tuples(TYPES, st.booleans(), st.booleans()), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    links=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4),
    seed=st.integers(0, 99),
)
def test_any_small_schema_grows_cleanly(
    tables: list[list[tuple[str, bool, bool]]], links: list[tuple[int, int]], seed: int
) -> None:
    ddl = []
    for number, columns in enumerate(tables):
        parts = ["id INTEGER PRIMARY KEY"]
        for place, (kind, required, unique) in enumerate(columns):
            marks = " NOT NULL" * required + " UNIQUE" * unique
            parts.append(f"c{place} {kind}{marks}")
        for place, (child, parent) in enumerate(links):
            if child == number and parent < len(tables):
                parts.append(f"r{place} INT REFERENCES t{parent} (id)")
        ddl.append(f"CREATE TABLE t{number} ({', '.join(parts)})")
    golds = [f"SELECT c0 FROM t{n} WHERE c0 > 5 ORDER BY id LIMIT 2" for n in range(len(ddl))]
    grown = grow(";".join(ddl), *golds, seed=seed)
    assert query(grown.image, "PRAGMA integrity_check") == [("ok",)]
    assert query(grown.image, "PRAGMA foreign_key_check") == []
