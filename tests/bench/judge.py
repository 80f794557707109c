"""Judging candidates: kept sessions and golds, beside evaluators that open and run both every time.

The peers are re-implementations of the published evaluators' way of working, not their code: BIRD's
(a thread with a time-out; connect, run both queries, compare sets) and the test-suite script's
(DISTINCT kept; a connection and an event loop a query; rows sorted by their text, then column
permutations). They use Python's own sqlite3, as the evaluators do.
"""

import asyncio
import itertools
import os
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from envbuild.corpora.source import read_source
from envbuild.env.reward import score_answer
from envbuild.evaluate.answers import read_predictions
from envbuild.evaluate.predicted import judge_predictions, load_benchmark
from envbuild.records.corpus import DatabaseRecord, Question
from envbuild.records.execution import Row
from envbuild.schema.read import read_schema
from envbuild.sql.execution.session import Session
from envbuild.sql.f1 import GoldRows
from envbuild.sql.verdicts import judge
from tests.bench import Measured, line_of, take_turns
from tests.bench.inputs import build_shape, fill_tables, gold_queries
from tests.cases.databases import gold_of

TABLES, ROWS = 113, 69
"""Of a SQaLe-shaped database: the published medians."""
LONG_TABLES, LONG_ROWS = 12, 927
"""Of a BIRD-shaped one."""
GOLDS = 40
PAIRS = 10_000
PEER_PAIRS = 1_000
"""The peers' cost a pair does not hang on how many there are."""
_LIMIT_WAYS = ("run and F1", "bare, Python's sqlite3")
"""What limits and caps cost: our way, and the usual one without any."""
_CANDIDATES: tuple[Callable[[str], str], ...] = (
    lambda sql: sql,
    lambda sql: f"SELECT * FROM ({sql})",
    lambda sql: sql.replace("SELECT ", "SELECT DISTINCT ", 1),
    lambda sql: sql.replace("amount", "id"),
    lambda sql: sql.replace("SELECT b.name,", "SELECT").replace("SELECT name,", "SELECT"),
)


def judge_pairs(rounds: int) -> Sequence[Measured]:
    """Microseconds of CPU a pair, and how many times less than each peer; medians over rounds."""
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        small = build_shape(Path(folder, "small.sqlite"), tables=TABLES)
        long = build_shape(Path(folder, "long.sqlite"), tables=LONG_TABLES)
        fill_tables(small, [ROWS] * TABLES)
        fill_tables(long, [LONG_ROWS] * LONG_TABLES)
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
            line(f"limits, caps and F1, {rows} rows a table", times, *_LIMIT_WAYS)
            for rows, times in ((ROWS, taken), (LONG_ROWS, on_long))
        ),
    ]


def _timed(
    path: Path, pairs: Sequence[tuple[str, str]], rounds: int, names: Sequence[str] = ()
) -> tuple[dict[str, list[float]], dict[str, list[bool]]]:
    """Microseconds a pair of each way, round by round, and what each way says of the pairs."""
    with (
        Session.open_file(path) as session,
        closing(sqlite3.connect(path, cached_statements=0)) as usual,
    ):
        ways = _ways(path, session, pairs)
        ways[_LIMIT_WAYS[1]] = lambda: [bool(usual.execute(sql).fetchall()) for sql, _ in pairs]
        ways = {name: ways[name] for name in names or ways}
        verdicts = {name: way() for name, way in ways.items()}
        return take_turns({name: (way, len(pairs)) for name, way in ways.items()}, rounds), verdicts


def _ways(
    path: Path, session: Session, pairs: Sequence[tuple[str, str]]
) -> dict[str, Callable[[], list[bool]]]:
    golds = {gold: session.run(gold) for _, gold in pairs}
    stored = {gold: gold_of(result, gold) for gold, result in golds.items()}
    rows = {gold: GoldRows(result.rows) for gold, result in golds.items()}
    schema = read_schema(session.connection)

    def judged(verdict: str) -> Callable[[], list[bool]]:
        return lambda: [
            judge(
                session.run(sql), golds[gold], verdict=verdict, ordered=stored[gold].ordered
            ).correct
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
    }


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


def predictions(rounds: int) -> Sequence[Measured]:
    """Judging a predictions file: `evaluate` beside evaluators that open and run both each time.

    On Spider's folder and a predictions file named by $ENVBUILD_BENCH_SPIDER and
    $ENVBUILD_BENCH_PREDICTIONS; without them there is nothing to measure. Questions are repeated
    until there are 10,000 pairs; a gold still runs once, as it does for any predictions file.
    """
    spider, file = (
        os.environ.get(f"ENVBUILD_BENCH_{name}", "") for name in ("SPIDER", "PREDICTIONS")
    )
    if not spider or not file:
        return [{"what": "set ENVBUILD_BENCH_SPIDER and ENVBUILD_BENCH_PREDICTIONS to measure"}]
    source = read_source(spider)
    questions = [q for q in source.questions() if isinstance(q, Question)]
    predicted = read_predictions(Path(file), questions).sql
    files = {
        d.db_id: Path(d.sqlite_file) for d in source.databases() if isinstance(d, DatabaseRecord)
    }
    times = -(-PAIRS // len(questions))
    many = [replace(q, question_id=f"{q.question_id}/{i}") for i in range(times) for q in questions]
    answers = {f"{key}/{i}": sql for i in range(times) for key, sql in predicted.items()}
    some = [(files[q.db_id], answers.get(q.question_id, ""), q.gold_sql) for q in many]
    some = some[:PEER_PAIRS]

    def ours(benchmark: str) -> int:
        rule = load_benchmark(benchmark)
        judged = judge_predictions(many, answers, benchmark=rule, database_path=files.__getitem__)
        return sum(1 for _ in judged)

    def theirs(way: Callable[[Path, str, str], bool]) -> int:
        return sum(1 for path, sql, gold in some if way(path, sql, gold) is not None)

    lines = []
    for benchmark, peer, way in (
        ("bird", "BIRD's way", birds_way),
        ("spider-testsuite", "test-suite's way", test_suites_way),
    ):
        ways = {
            benchmark: (partial(ours, benchmark), len(many)),
            peer: (partial(theirs, way), len(some)),
        }
        what = f"evaluate --benchmark {benchmark}, {len(many)} pairs, five rules"
        lines.append(line_of(what, take_turns(ways, rounds), benchmark, peer, unit="pair"))
    return lines
