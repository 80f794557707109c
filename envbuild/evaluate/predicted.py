"""Judging other people's predictions over a benchmark's own databases.

A database is opened once for all its questions and every gold runs once, so the cost is that of
the predicted SQL. A benchmark differs from another only in its rule and in which files it runs on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import UnknownNameError
from envbuild.records.corpus import Question
from envbuild.records.evaluation import QuestionVerdict
from envbuild.records.execution import QueryResult, Verdict
from envbuild.sql.execution.session import Session
from envbuild.sql.from_names import order_matters
from envbuild.sql.verdicts import VERDICTS, judge, without_distinct


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """How one benchmark's own evaluator decides."""

    name: str
    official: str
    """The verdict that its leaderboard uses."""
    every_file: bool = False
    """Equal on every SQLite file of the database's folder, not only on its own."""
    drop_distinct: bool = False
    """DISTINCT is taken out of both queries first, as Spider's evaluator does by default."""

    @property
    def rule(self) -> str:
        """The verdict's name, and how this benchmark applies it where that decides too."""
        distinct = " without DISTINCT" if self.drop_distinct else ""
        return f"{self.official}{distinct}{' on every file' if self.every_file else ''}"


BENCHMARKS: Mapping[str, Benchmark] = {
    b.name: b
    for b in (
        Benchmark(name="bird", official="official@1"),
        Benchmark(name="spider", official="testsuite@1", drop_distinct=True),
        Benchmark(name="spider-testsuite", official="testsuite@1", every_file=True),
    )
}


def load_benchmark(name: str) -> Benchmark:
    """The benchmark registered under `name`. Raises UnknownNameError for another."""
    if name not in BENCHMARKS:
        raise UnknownNameError("benchmark", name, BENCHMARKS)
    return BENCHMARKS[name]


def judge_predictions(
    questions: Iterable[Question],
    predicted: Mapping[str, str],
    *,
    benchmark: Benchmark,
    database_path: Callable[[str], Path],
    policy: str = "",
) -> Iterator[QuestionVerdict]:
    """One verdict a question, database by database; a question without a prediction is judged too.

    `predicted` maps question_id to SQL.
    """
    ordered = sorted(questions, key=lambda q: q.db_id)
    for db_id, group in groupby(ordered, key=lambda q: q.db_id):
        path = database_path(db_id)
        files = sorted(path.parent.glob("*.sqlite")) if benchmark.every_file else []
        with ExitStack() as opened:
            sessions = [opened.enter_context(Session.open_file(f)) for f in files or [path]]
            golds: dict[tuple[str, int], QueryResult] = {}  # a gold runs at most once on each file
            for question in group:
                sql = predicted.get(question.question_id, "")
                yield _judge_question(question, sql, sessions, golds, benchmark, policy=policy)


def _judge_question(
    question: Question,
    sql: str,
    sessions: Sequence[Session],
    golds: dict[tuple[str, int], QueryResult],
    benchmark: Benchmark,
    *,
    policy: str,
) -> QuestionVerdict:
    def run_gold(text: str, place: int = 0) -> QueryResult:
        if (text, place) not in golds:
            golds[text, place] = sessions[place].run(text)
        return golds[text, place]

    gold = run_gold(question.gold_sql)
    predicted = sessions[0].run(sql) if sql.strip() else None
    ordered = order_matters(question.gold_sql)
    # the benchmark's own verdict: its rule, on its files, with its treatment of DISTINCT
    own_gold, own_sql, found = question.gold_sql, sql, predicted
    if benchmark.drop_distinct:
        own_gold, own_sql = without_distinct(own_gold), without_distinct(sql)
        if own_sql != sql:
            found = sessions[0].run(own_sql)
    official = judge(found, run_gold(own_gold), verdict=benchmark.official, ordered=ordered)
    for place in range(1, len(sessions)):
        if official is Verdict.EQUAL:
            found, other = sessions[place].run(own_sql), run_gold(own_gold, place)
            official = judge(found, other, verdict=benchmark.official, ordered=ordered)
    verdicts = {name: judge(predicted, gold, verdict=name, ordered=ordered) for name in VERDICTS}
    return QuestionVerdict(
        question_id=question.question_id,
        corpus=question.corpus,
        db_id=question.db_id,
        split=question.split,
        policy=policy,
        question=question.question,
        difficulty=question.difficulty,
        gold_sql=question.gold_sql,
        predicted_sql=sql,
        official_name=benchmark.rule,
        equal_under=tuple(n for n, found in verdicts.items() if found is Verdict.EQUAL),
        **compared(predicted, gold, official, verdicts["strict@1"]),
    )


def compared(
    predicted: QueryResult | None, gold: QueryResult, official: Verdict, strict: Verdict
) -> dict[str, Any]:
    """The fields of a `QuestionVerdict` that two results and their verdicts give."""
    return {
        "official": official,
        "strict": strict,
        "official_correct": official.correct,
        "strict_correct": strict.correct,
        "reason": explain(official, predicted, gold),
        "predicted_rows": len(predicted.rows) if predicted else 0,
        "gold_rows": len(gold.rows),
        "predicted_columns": len(predicted.columns) if predicted else 0,
        "gold_columns": len(gold.columns),
        "outcome": predicted.outcome if predicted else "",
    }


def explain(verdict: Verdict, predicted: QueryResult | None, gold: QueryResult) -> str:
    """One sentence on why an answer is not equal; empty where it is."""
    if verdict is Verdict.EQUAL:
        return ""
    if not verdict.scored:
        return f"the gold itself does not run: {gold.error or gold.outcome}"
    if predicted is None:
        return "there is no prediction"
    if not predicted.ok:
        return predicted.error or f"the query ended as {predicted.outcome}"
    if len(predicted.columns) != len(gold.columns):
        return f"{len(predicted.columns)} columns where the gold has {len(gold.columns)}"
    if not gold.rows:
        return f"{len(predicted.rows)} rows where the gold has none"
    mine, right = set(predicted.rows), set(gold.rows)
    if mine == right:
        same_count = len(predicted.rows) == len(gold.rows)
        return "the same rows in another order" if same_count else "the same rows, but repeated"
    return (
        f"{len(right - mine)} of the gold's {len(right)} distinct rows are missing, "
        f"{len(mine - right)} are not the gold's"
    )
