"""Judging candidates: kept sessions and golds, beside evaluators that open and run both every time.

The peers are re-implementations of the published evaluators' way of working, not their code: BIRD's
(a thread with a time-out; connect, run both queries, compare sets) and the test-suite script's
(DISTINCT kept; a connection and an event loop a query; rows sorted by their text, then column
permutations). They use Python's own sqlite3, as the evaluators do.
"""

import asyncio
import itertools
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from envbuild.env.reward import score_answer
from envbuild.records.execution import QueryResult, Row
from envbuild.records.manifest import GoldResult
from envbuild.schema.read import read_schema
from envbuild.sql.connect import Connection, open_read_only
from envbuild.sql.execution.policy import Authorizer
from envbuild.sql.execution.session import Session
from envbuild.sql.f1 import GoldRows
from envbuild.sql.from_names import order_matters
from envbuild.sql.verdicts import digest_rows, encode_rows, judge
from tests.bench import Measured, line_of, take_turns
from tests.bench.inputs import build_shape, gold_queries, table_name

TABLES, ROWS = 113, 69
"""Of a SQaLe-shaped database: the published medians."""
LONG_TABLES, LONG_ROWS = 12, 927
"""Of a BIRD-shaped one."""
GOLDS = 40
_LIMIT_WAYS = ("run and F1", "bare run", "bare, read-only", "bare, Python's sqlite3")
"""What limits cost: our way, the same engine bare, under the same authorizer, and the usual one."""
_CANDIDATES: tuple[Callable[[str], str], ...] = (
    lambda sql: sql,
    lambda sql: f"SELECT * FROM ({sql})",
    lambda sql: sql.replace("SELECT ", "SELECT DISTINCT ", 1),
    lambda sql: sql.replace("amount", "id"),
    lambda sql: sql.replace("SELECT b.name,", "SELECT").replace("SELECT name,", "SELECT"),
)


def measure(rounds: int) -> Sequence[Measured]:
    """Microseconds of CPU a pair, and how many times less than each peer; medians over rounds."""
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        small, long = Path(folder, "small.sqlite"), Path(folder, "long.sqlite")
        _write(small, tables=TABLES, rows=ROWS)
        _write(long, tables=LONG_TABLES, rows=LONG_ROWS)
        pairs = _pairs(TABLES)
        taken, verdicts = _timed(small, pairs, rounds)
        on_long, _ = _timed(long, _pairs(LONG_TABLES), rounds, _LIMIT_WAYS)
    assert verdicts["BIRD's way"] == verdicts["official@1"]
    assert verdicts["test-suite's way"] == verdicts["testsuite@1"]
    shape = f"{TABLES} tables x {ROWS} rows, {len(pairs)} pairs"
    line = partial(line_of, unit="pair")
    return [
        line(f"official@1, {shape}", taken, "official@1", "BIRD's way"),
        line(f"testsuite@1, {shape}", taken, "testsuite@1", "test-suite's way"),
        line("reward: tier, F1, join share, digest", taken, "reward", "BIRD's way"),
        *(
            line(f"limits, caps and F1, {rows} rows a table", times, _LIMIT_WAYS[0], peer)
            for rows, times in ((ROWS, taken), (LONG_ROWS, on_long))
            for peer in _LIMIT_WAYS[1:]
        ),
    ]


def _timed(
    path: Path, pairs: Sequence[tuple[str, str]], rounds: int, names: Sequence[str] = ()
) -> tuple[dict[str, list[float]], dict[str, list[bool]]]:
    """Microseconds a pair of each way, round by round, and what each way says of the pairs."""
    with (
        Session.open_file(path) as session,
        closing(open_read_only(path)) as bare,
        closing(open_read_only(path)) as guarded,
        closing(sqlite3.connect(path, cached_statements=0)) as usual,
    ):
        guarded.authorizer = Authorizer().check
        ways = _ways(path, session, bare, pairs)
        ways[_LIMIT_WAYS[2]] = lambda: [_fetch_bare(guarded, sql) for sql, _ in pairs]
        ways[_LIMIT_WAYS[3]] = lambda: [bool(usual.execute(sql).fetchall()) for sql, _ in pairs]
        ways = {name: ways[name] for name in names or ways}
        verdicts = {name: way() for name, way in ways.items()}
        return take_turns({name: (way, len(pairs)) for name, way in ways.items()}, rounds), verdicts


def _ways(
    path: Path, session: Session, bare: Connection, pairs: Sequence[tuple[str, str]]
) -> dict[str, Callable[[], list[bool]]]:
    golds = {gold: session.run(gold) for _, gold in pairs}
    ordered = {gold: order_matters(gold) for gold in golds}
    rows = {gold: GoldRows(result.rows) for gold, result in golds.items()}
    stored = {gold: _stored(gold, result) for gold, result in golds.items()}
    schema = read_schema(session.connection)

    def judged(verdict: str) -> Callable[[], list[bool]]:
        return lambda: [
            judge(session.run(sql), golds[gold], verdict=verdict, ordered=ordered[gold]).correct
            is True
            for sql, gold in pairs
        ]

    return {
        "BIRD's way": lambda: [birds_way(path, sql, gold) for sql, gold in pairs],
        "test-suite's way": lambda: [test_suites_way(path, sql, gold) for sql, gold in pairs],
        "official@1": judged("official@1"),
        "testsuite@1": judged("testsuite@1"),
        "reward": lambda: [
            score_answer(sql, session=session, gold=stored[gold], schema=schema).reward == 3.0
            for sql, gold in pairs
        ],
        "run and F1": lambda: [rows[gold].f1(session.run(sql).rows) == 1.0 for sql, gold in pairs],
        "bare run": lambda: [_fetch_bare(bare, sql) for sql, _ in pairs],
    }


def _fetch_bare(connection: Connection, sql: str) -> bool:
    return bool(connection.execute(sql, can_cache=False).fetchall())


def _stored(gold: str, result: QueryResult) -> GoldResult:
    return GoldResult(
        gold_id=gold,
        outcome=result.outcome,
        columns=result.columns,
        ordered=order_matters(gold),
        digest=digest_rows(result.rows, ordered=False),
        result=encode_rows(result.rows),
    )


def birds_way(path: Path, predicted: str, gold: str) -> bool:
    """Both queries on a fresh connection, in a thread that is given thirty seconds."""
    found: list[bool] = []

    def compare() -> None:
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
            ours = connection.execute(predicted).fetchall()
            theirs = connection.execute(gold).fetchall()
            found.append(set(ours) == set(theirs))

    thread = threading.Thread(target=compare)
    thread.start()
    thread.join(30.0)
    return found == [True]


def test_suites_way(path: Path, predicted: str, gold: str) -> bool:
    """Each query on its own connection under an event loop's time-out; permuted columns equal."""

    async def run(sql: str) -> list[Row]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(sql).fetchall()

    async def limited(sql: str) -> list[Row]:
        return await asyncio.wait_for(run(sql), 60.0)

    theirs, ours = asyncio.run(limited(gold)), asyncio.run(limited(predicted))
    if not theirs and not ours:
        return True
    if len(theirs) != len(ours) or len(theirs[0]) != len(ours[0]):
        return False
    ordered = "order by" in gold.lower()
    bags = [[tuple(sorted(row, key=_as_text)) for row in rows] for rows in (theirs, ours)]
    if bags[0] != bags[1] if ordered else set(bags[0]) != set(bags[1]):
        return False
    columns = [set(column) for column in zip(*theirs, strict=True)]
    fitting = [
        [at for at, found in enumerate(zip(*ours, strict=True)) if set(found) <= column]
        for column in columns
    ]
    for order in itertools.product(*fitting):
        moved = [tuple(row[at] for at in order) for row in ours]
        if len(set(order)) == len(order) and (
            moved == theirs if ordered else Counter(moved) == Counter(theirs)
        ):
            return True
    return False


def _as_text(cell: object) -> str:
    return f"{cell}{type(cell)}"


def _pairs(tables: int) -> list[tuple[str, str]]:
    """(predicted, gold): every gold with candidates that are right, lucky and wrong."""
    golds = [sql.rstrip(";") for sql in gold_queries(GOLDS, tables=tables)]
    return [(candidate(gold), gold) for gold in golds for candidate in _CANDIDATES]


def _write(path: Path, *, tables: int, rows: int) -> None:
    build_shape(path, tables=tables)
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
