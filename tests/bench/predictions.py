"""Judging a predictions file: `evaluate` beside evaluators that open and run both each time.

On Spider's folder and a predictions file named by $ENVBUILD_BENCH_SPIDER and
$ENVBUILD_BENCH_PREDICTIONS; without them there is nothing to measure. Questions are repeated until
there are 10,000 pairs; a gold still runs once, as it does for any predictions file.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from envbuild.corpora.source import read_source
from envbuild.evaluate.answers import read_predictions
from envbuild.evaluate.predicted import judge_predictions, load_benchmark
from envbuild.records.corpus import DatabaseRecord, Question
from tests.bench import Measured, line_of, take_turns
from tests.bench.judge import birds_way, test_suites_way

PAIRS = 10_000
PEER_PAIRS = 1_000
"""The peers' cost a pair does not hang on how many there are."""


def measure(rounds: int) -> Sequence[Measured]:
    """Microseconds of CPU a pair, and how many times less than each peer; medians over rounds."""
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
