"""What amplification takes a condition, a CHECK and the rows themselves to say: SQLite's answer."""

import apsw
import pytest

from envbuild.generate.columns import Probe
from envbuild.generate.plan import iter_checks
from envbuild.materialize.values import affinity_of
from envbuild.query.demand import read_demand
from envbuild.records.execution import Value
from envbuild.schema.read import read_schema
from envbuild.signal.variants import DEFAULT_SETTINGS
from tests.generate.test_amplify import grow, query

CONDITIONS: list[tuple[str, Value]] = [
    ("x LIKE 'É%'", "école"),
    ("x GLOB '[^a]*'", "bcd"),
    ("x GLOB '[^a]*'", "abc"),
    ("x LIKE 'a_c'", "a\nc"),
    ("strftime('%Y', x) = '2024'", "2024-W05"),
    ("strftime('%m', x) = 3", "2024-03-09"),
    ("CAST(strftime('%m', x) AS INTEGER) = 3", "2024-03-09"),
    ("strftime('%m', x) = '03'", "2024-03-09 10:00"),
    ("strftime('%H', x) = '10'", "2024-03-09 10:00"),
    ("x < '10'", 9),
    ("x = 5", 5.0),
    ("x = '5'", 5),
    ("x BETWEEN 3 AND 5", 4),
    ("x NOT BETWEEN 3 AND 5", "4"),
    ("upper(x) = 'ÄB'", "äb"),
    ("substr(x, 2, 2) = 'bc'", "abcd"),
    ("substr(x, -2, 2) = 'cd'", "abcd"),
    ("substr(x, -2, 1) = 'c'", "abcd"),
    ("substr(x, 0, 4) = 'abc'", "abcd"),
    ("x > 'abc'", 5),
    ("x < 'abc'", 5),
    ("x = 'ABC'", "abc"),
    ("x = 'ABC' COLLATE NOCASE", "abc"),
    ("x COLLATE NOCASE IN ('A', 'B')", "b"),
    ("CAST(x AS REAL) > 10", "9"),
    ("abs(x) > 3", -4),
    ("round(x, 1) = 3.1", 3.14),
    ("coalesce(x, 7) = 7", None),
    ("x != 5", None),
    ("x IS NULL", None),
    ("x IS NOT NULL", b"\x00"),
]


@pytest.mark.parametrize("declared", ["TEXT", "TEXT COLLATE NOCASE", "INTEGER", "REAL", ""])
def test_a_condition_holds_where_sqlite_says_so(declared: str) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(f"CREATE TABLE t (x {declared})")
    schema, probe = read_schema(connection), Probe()
    kind, _, collation = declared.partition(" COLLATE ")
    for where, value in CONDITIONS:
        (clause,) = read_demand(f"SELECT 1 FROM t WHERE {where}", schema).frames[0].clauses
        ((condition,),) = clause
        connection.execute("DELETE FROM t; INSERT INTO t VALUES (?)", (value,))
        said = connection.execute(f"SELECT count(*) FROM t WHERE {where}").get
        affinity = affinity_of(kind)
        held = probe.holds(condition, value, affinity=affinity, collation=collation or "BINARY")
        assert held == bool(said), (where, value)


def test_what_hangs_on_another_column_is_left_to_the_query() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (x, y)")
    demand = read_demand("SELECT 1 FROM t WHERE coalesce(x, y) = 3", read_schema(connection))
    ((condition,),) = demand.frames[0].clauses[0]
    assert condition.expression == "v"


@pytest.mark.parametrize(
    ("ddl", "checks"),
    [
        ("CREATE TABLE t (a INT CHECK (a IN (1, 2)), b)", ["a IN (1, 2)"]),
        ("CREATE TABLE t (a TEXT /* CHECK (a = 'no') */, b -- check (b > 9)\n)", []),
        ("CREATE TABLE t (a TEXT CHECK(a <> ')' AND a > '('), b)", ["a <> ')' AND a > '('"]),
        ("CREATE TABLE t (a TEXT DEFAULT 'CHECK (a = 1)', \"check (\" INT)", []),
        ("CREATE TABLE t (a CHECK /* of a */ (a > 1), b, check(b < 2))", ["a > 1", "b < 2"]),
    ],
)
def test_a_check_is_read_from_tokens(ddl: str, checks: list[str]) -> None:
    apsw.Connection(":memory:").execute(ddl)
    assert [check.strip() for check in iter_checks(ddl)] == checks


def test_a_check_in_a_comment_binds_no_row() -> None:
    ddl = "CREATE TABLE t (a TEXT /* CHECK (a = 'never') */); INSERT INTO t VALUES ('b'), ('c')"
    assert query(grow(ddl, guided=True).image, "SELECT count(*) FROM t WHERE a = 'never'") == [(0,)]


CHILDREN = (
    "CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT);"
    "CREATE TABLE child (id INTEGER PRIMARY KEY, parent_id INTEGER {}, y INTEGER);"
)
SEVERAL = (
    "SELECT p.name FROM parent p JOIN child c ON p.id = c.parent_id"
    " GROUP BY c.parent_id HAVING count(*) > 1"
)


@pytest.mark.parametrize("key", ["REFERENCES parent (id)", ""], ids=["declared", "joined"])
@pytest.mark.parametrize("rows", [9, 10, 12, 30])
def test_parents_get_several_children_however_many_had_one(key: str, rows: int) -> None:
    filled = "".join(
        f"INSERT INTO parent VALUES ({n}, 'p{n}'); INSERT INTO child VALUES ({n}, {n}, {n});"
        for n in range(1, rows + 1)
    )
    result = grow(CHILDREN.format(key) + filled, SEVERAL, guided=True)
    assert result.growth.golds[0].rows_after > 0
    assert query(result.image, "SELECT count(*) > count(DISTINCT parent_id) FROM child") == [(1,)]


def test_a_declared_one_to_one_reference_stays_one() -> None:
    ddl = CHILDREN.format("UNIQUE REFERENCES parent (id)") + (
        "INSERT INTO parent VALUES (1, 'a'), (2, 'b'); INSERT INTO child VALUES (1, 1, 1)"
    )
    counts = "SELECT count(parent_id) - count(DISTINCT parent_id) FROM child"
    assert query(grow(ddl, SEVERAL, guided=True).image, counts) == [(0,)]


ORPHANS = (
    "INSERT INTO parent VALUES (1, 'a'), (2, 'b'), (3, 'c');"
    "INSERT INTO child VALUES (1, 1, 1), (2, 2, 2), (3, 9, 3), (4, 9, 4), (5, NULL, 5)"
)
HOW_MANY_ORPHANS = (
    "SELECT count(*) FROM child WHERE parent_id IS NOT NULL"
    " AND parent_id NOT IN (SELECT id FROM parent)"
)


@pytest.mark.parametrize("seed", range(3))
def test_variants_hold_orphans_where_the_source_does(seed: int) -> None:
    ddl = CHILDREN.format("REFERENCES parent (id)")
    count = "SELECT count(*) FROM child"
    held = grow(ddl + ORPHANS, count, guided=True, orphans=True, seed=seed)
    assert query(held.image, HOW_MANY_ORPHANS)[0] > (2,)
    clean = ORPHANS.replace("9", "3")
    none = grow(ddl + clean, count, guided=True, orphans=True, seed=seed)
    assert query(none.image, HOW_MANY_ORPHANS) == [(0,)]
    assert DEFAULT_SETTINGS.orphans


@pytest.mark.parametrize("seed", range(3))
def test_amplifying_adds_no_orphan_and_gives_none_a_parent(seed: int) -> None:
    ddl = CHILDREN.format("REFERENCES parent (id)") + ORPHANS
    result = grow(ddl, SEVERAL, guided=True, seed=seed)
    assert query(result.image, HOW_MANY_ORPHANS) == [(2,)]


def test_a_parent_key_that_repeats_goes_on_repeating() -> None:
    ddl = (
        "CREATE TABLE parent (code TEXT, name TEXT);"
        "CREATE TABLE child (id INTEGER PRIMARY KEY, code TEXT REFERENCES parent (code));"
        "INSERT INTO parent VALUES ('x', 'a'), ('x', 'b'), ('y', 'c');"
        "INSERT INTO child VALUES (1, 'x'), (2, 'y')"
    )
    gold = "SELECT count(DISTINCT p.code) FROM parent p JOIN child c ON p.code = c.code"
    image = grow(ddl, gold, guided=True, orphans=True).image
    counts = "SELECT count(*) - count(DISTINCT code) > 1 FROM parent"
    assert query(image, counts) == [(1,)]
    assert query(image, gold) != query(image, gold.replace("DISTINCT ", ""))
