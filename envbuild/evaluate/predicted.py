"""Judging other people's predictions over a benchmark's own databases.

A database is opened once for all its questions and every gold runs once, so the cost is that of
the predicted SQL. A benchmark differs from another only in its rule and in which files it runs on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import UnknownNameError
from envbuild.records.corpus import Question
from envbuild.records.evaluation import QuestionVerdict
from envbuild.records.execution import Limits, QueryResult, Verdict
from envbuild.sql.execution.session import DEFAULT_LIMITS, Session
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
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[QuestionVerdict]:
    """One verdict a question, database by database; a question without a prediction is judged too.

    `predicted` maps question_id to SQL.
    """
    ordered = sorted(questions, key=lambda q: q.db_id)
    for db_id, group in groupby(ordered, key=lambda q: q.db_id):
        path = database_path(db_id)
        files = sorted(path.parent.glob("*.sqlite")) if benchmark.every_file else []
        with ExitStack() as opened:
            databases = _Databases(opened, files or [path], limits)
            for question in group:
                sql = predicted.get(question.question_id, "")
                yield _judge_question(question, sql, databases, benchmark, policy=policy)


class _Databases:
    """One benchmark database's files, each opened once; a gold runs at most once on each."""

    def __init__(self, opened: ExitStack, files: Sequence[Path], limits: Limits) -> None:
        self.sessions = [opened.enter_context(Session.open_file(f, limits=limits)) for f in files]
        self.gold = cache(self.run)

    def run(self, sql: str, place: int = 0) -> QueryResult:
        """The query's result on one of the files."""
        return self.sessions[place].run(sql)


def _judge_question(
    question: Question, sql: str, databases: _Databases, benchmark: Benchmark, *, policy: str
) -> QuestionVerdict:
    gold = databases.gold(question.gold_sql)
    predicted = databases.run(sql) if sql.strip() else None
    ordered = order_matters(question.gold_sql)
    official = _official(question.gold_sql, sql, predicted, databases, benchmark)
    strict = judge(predicted, gold, verdict="strict@1")
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
        equal_under=rules_that_agree(predicted, gold, ordered=ordered),
        **compared(predicted, gold, official, strict),
    )


def _official(
    gold_sql: str,
    sql: str,
    predicted: QueryResult | None,
    databases: _Databases,
    benchmark: Benchmark,
) -> Verdict:
    """The benchmark's own verdict: its rule, on its files, with its treatment of DISTINCT."""
    ordered = order_matters(gold_sql)
    if benchmark.drop_distinct:
        gold_sql = without_distinct(gold_sql)
        if (plain := without_distinct(sql)) != sql:
            sql, predicted = plain, databases.run(plain)
    verdict = judge(
        predicted, databases.gold(gold_sql), verdict=benchmark.official, ordered=ordered
    )
    for place in range(1, len(databases.sessions)):
        if verdict is Verdict.EQUAL:
            found, gold = databases.run(sql, place), databases.gold(gold_sql, place)
            verdict = judge(found, gold, verdict=benchmark.official, ordered=ordered)
    return verdict


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


def rules_that_agree(
    predicted: QueryResult | None, gold: QueryResult, *, ordered: bool
) -> tuple[str, ...]:
    """The names of all rules under which the results as they stand are equal."""
    return tuple(
        name
        for name in VERDICTS
        if judge(predicted, gold, verdict=name, ordered=ordered) is Verdict.EQUAL
    )


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
