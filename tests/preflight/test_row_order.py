"""Golds that hang on row order, against every order their rows can stand in."""

import itertools
import random
from pathlib import Path

import apsw

from envbuild.preflight.run import check_database
from envbuild.preflight.subjects import DatabaseInput
from envbuild.records.corpus import DatabaseRow
from envbuild.records.execution import Limits
from envbuild.records.preflight import Severity
from envbuild.sql.verdicts import equal_bag
from tests.preflight.corpora import ask, build_sqlite

CREATE = "CREATE TABLE t(a INT, b INT, c TEXT)"
COLUMNS = ("a", "b", "c")
FUNCTIONS = (
    *("row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(2)"),
    *("lag(c)", "lead(b, 1)", "first_value(c)", "last_value(c)", "nth_value(b, 2)"),
    *("sum(b)", "count(*)", "max(c)", "group_concat(c)"),
)
FRAMES = (
    *("", "ROWS 1 PRECEDING", "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"),
    *("RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES", "GROUPS 1 PRECEDING"),
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW",
)
GROUPED = "SELECT a, count(*), row_number() OVER (ORDER BY count(*)) FROM t GROUP BY a"
PLAIN = (
    "SELECT a, group_concat(c) FROM t GROUP BY a",
    "SELECT a, group_concat(c ORDER BY b) FROM t GROUP BY a",
    "SELECT a, group_concat(DISTINCT c) FROM t GROUP BY a",
    "SELECT group_concat(c) FROM (SELECT c FROM t ORDER BY b)",
    "SELECT c, max(b) FROM t",
    "SELECT a, c, min(b) FROM t GROUP BY a",
    "SELECT a, max(b), min(b) FROM t GROUP BY a",
    "SELECT json_group_array(b) FROM t",
    "SELECT c FROM t ORDER BY b LIMIT 1",
    "SELECT a FROM t WHERE b = (SELECT b FROM t ORDER BY a)",
    GROUPED,
    "SELECT DISTINCT a FROM t",
)


def some_window(rng: random.Random) -> str:
    """A query that shows one window function, or picks rows by it."""
    keys = ", ".join(rng.sample(COLUMNS, rng.randint(0, 3)))
    order = f"ORDER BY {keys} {rng.choice(('', 'DESC'))}" if keys else ""
    partition = f"PARTITION BY {rng.choice(COLUMNS)}" if rng.random() < 0.4 else ""
    frame = rng.choice(FRAMES) if order else rng.choice(FRAMES[:4])
    window = " ".join(part for part in (partition, order, frame) if part)
    function = rng.choice(FUNCTIONS)
    shown = ", ".join(rng.sample(COLUMNS, rng.randint(1, 2)))
    match rng.randrange(4):
        case 0:
            return f"SELECT {shown}, {function} OVER w FROM t WINDOW w AS ({window})"
        case 1:
            return (
                f"SELECT {shown} FROM (SELECT *, {function} OVER ({window}) n FROM t) WHERE n = 1"
            )
        case 2:
            return f"SELECT max(n) FROM (SELECT {function} OVER ({window}) AS n FROM t)"
        case _:
            return f"SELECT {shown}, {function} OVER ({window}) FROM t"


def hangs_on_order(rows: list[tuple[object, ...]], golds: list[str]) -> set[str]:
    """The golds that give two results over all orders in which the rows may be stored."""
    first: dict[str, tuple[tuple[object, ...], ...]] = {}
    differing = set()
    for stored in itertools.permutations(rows):
        connection = apsw.Connection(":memory:")
        connection.execute(CREATE)
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", stored)
        for gold in golds:
            result = tuple(connection.execute(gold).fetchall())
            if not equal_bag(result, first.setdefault(gold, result)):  # type: ignore[arg-type]
                differing.add(gold)
        connection.close()
    return differing


def found_to_hang_on_order(
    folder: Path, rows: list[tuple[object, ...]], golds: list[str]
) -> set[str]:
    """The golds that preflight says so of; none of them may fail."""
    values = ", ".join(map(str, rows))
    path = build_sqlite(folder / "d.sqlite", f"{CREATE}; INSERT INTO t VALUES {values}")
    row = DatabaseRow(
        corpus="c", db_id="d", split="", sqlite_file="d.sqlite", sha256="", bytes=0, tables=1,
        columns=3, rows=4, foreign_keys=0, fk_violations=0, rows_offered=4, rows_stored=4,
        rows_refused=0, ddl_statements=1, ddl_refused=0,
    )  # fmt: skip
    given = DatabaseInput(
        corpus="c", row=row, path=path, counts={"t": 4},
        questions=tuple(ask("d", gold) for gold in golds),
    )  # fmt: skip
    findings = check_database(given, Limits()).findings
    assert not [f for f in findings if f.code == "gold_error"]
    return {
        f.question_id
        for f in findings
        if f.code in ("tie_sensitive_gold", "scan_order_gold") and f.severity is not Severity.NOTE
    }


def test_golds_that_hang_on_row_order_are_found_and_no_other(tmp_path: Path) -> None:
    hanging = missed = 0
    for seed in range(12):
        rng = random.Random(seed)
        rows: list[tuple[object, ...]] = [
            (rng.randint(1, 2), rng.randint(1, 3), rng.choice("xyz")) for _ in range(4)
        ]
        golds = sorted({*PLAIN, *(some_window(rng) for _ in range(60))})
        expected = hangs_on_order(rows, golds)
        found = found_to_hang_on_order(tmp_path / str(seed), rows, golds)
        # groups come in the order of their keys, whatever the rows': only breaking ties shows it
        assert found - expected <= {GROUPED}
        hanging, missed = hanging + len(expected), missed + len(expected - found)
    assert hanging > 150
    assert missed <= 0.03 * hanging  # where a few orders of the 24 happen to agree
