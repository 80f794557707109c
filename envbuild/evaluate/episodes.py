"""Judging episodes against their manifest: both verdicts, exploration and literals."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

import msgspec

from envbuild.evaluate.exploration import decisive_literals, literal_ledger, opened_all
from envbuild.evaluate.predicted import explain
from envbuild.manifest.gold_store import GoldStore
from envbuild.records.episode import EndedBy, Episode
from envbuild.records.evaluation import LiteralUse, QuestionVerdict
from envbuild.records.execution import Outcome, QueryResult, Verdict
from envbuild.records.manifest import GoldResult, ManifestRow
from envbuild.reward.score import can_judge
from envbuild.sql.executor import Session
from envbuild.sql.results import decode_rows
from envbuild.sql.verdicts import judge

OFFICIAL = "official@1"
"""EX's rule, here and on hidden variants."""
OpenView = Callable[[ManifestRow], AbstractContextManager[Session]]
"""Opens the database view that a row's episodes were run on."""
OpenVariant = Callable[[ManifestRow, str], AbstractContextManager[Session]]
"""Opens one hidden variant of a row's database, by the variant's id."""


class JudgedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One episode's verdict and what it looked at."""

    verdict: QuestionVerdict
    opened_all: bool | None
    """It opened every gold table; None where the gold reads none."""
    literals: tuple[LiteralUse, ...]


def judge_episodes(
    gold_store: GoldStore,
    episodes: Iterable[Episode],
    *,
    open_view: OpenView,
    open_variant: OpenVariant | None = None,
) -> Iterator[JudgedEpisode]:
    """One judged episode each, in the order given.

    The gold's result is the manifest's, unless `gold_store` reruns golds: else gold is run only for
    the literal ledger, once a row. Raises UnknownNameError for an episode whose row the manifest
    does not hold.
    """
    decisive: dict[str, list[str]] = {}
    for episode in episodes:
        row = gold_store.manifest.row(episode.row_id)
        stored = gold_store.gold(row)
        if episode.ended_by is EndedBy.SERVER_ERROR:
            yield _unanswered(row, episode, gold_result(stored))
            continue
        with open_view(row) as session:
            predicted = session.run(episode.sql) if episode.sql.strip() else None
            gold = gold_result(stored)
            official = judge(predicted, gold, verdict=OFFICIAL)
            strict = judge(predicted, gold, verdict="strict@1")
            if row.row_id not in decisive:
                decisive[row.row_id] = (
                    decisive_literals(row, session=session, gold=stored) if gold.ok else []
                )
            opened = opened_all(row, episode, session.connection)
        hidden = (
            _hidden(gold_store, row, episode, official, open_variant)
            if official.scored and open_variant is not None
            else ""
        )
        verdict = _verdict(row, episode, predicted, gold, official, strict, hidden)
        ledger = literal_ledger(
            row, episode, decisive=decisive[row.row_id], correct=official.correct
        )
        yield JudgedEpisode(verdict=verdict, opened_all=opened, literals=tuple(ledger))


def _unanswered(row: ManifestRow, episode: Episode, gold: QueryResult) -> JudgedEpisode:
    """An episode that its server failed: unscored, and nothing it did is counted."""
    none = Verdict.SERVER_ERROR
    verdict = _verdict(row, episode, None, gold, none, none, "")
    said = f"the server failed: {episode.error}".rstrip(": ")
    return JudgedEpisode(
        verdict=msgspec.structs.replace(verdict, reason=said), opened_all=None, literals=()
    )


def gold_result(stored: GoldResult) -> QueryResult:
    """A stored gold result as the executor would have returned it."""
    outcome = Outcome(stored.outcome)
    rows = decode_rows(stored.result) if stored.result else ()
    return QueryResult(outcome=outcome, columns=stored.columns, rows=rows)


def _hidden(
    gold_store: GoldStore,
    row: ManifestRow,
    episode: Episode,
    official: Verdict,
    open_variant: OpenVariant,
) -> str:
    """`hidden@1`: EX's own rule, here and on every scored variant; empty where there is none.

    A variant is scored where the reward would score it. A failure is a variant's, or EX's own.
    """
    golds = ((name, gold_store.gold(row, name)) for name in row.variants)
    scored = [(name, gold_result(gold)) for name, gold in golds if can_judge(gold)]
    if not scored or official is not Verdict.EQUAL:
        return official if scored else ""
    for variant, gold in scored:
        with open_variant(row, variant) as session:
            found = judge(session.run(episode.sql), gold, verdict=OFFICIAL)
        if found is not Verdict.EQUAL:
            return found
    return Verdict.EQUAL


def _verdict(
    row: ManifestRow,
    episode: Episode,
    predicted: QueryResult | None,
    gold: QueryResult,
    official: Verdict,
    strict: Verdict,
    hidden: str,
) -> QuestionVerdict:
    shown = {name.lower() for name in row.tables}
    return QuestionVerdict(
        question_id=row.question_id,
        corpus=row.corpus,
        db_id=row.db_id,
        split=row.split,
        policy=episode.policy,
        candidate=episode.candidate,
        episode_id=episode.episode_id,
        question=row.question,
        difficulty=row.difficulty,
        bucket=row.bucket,
        tables=len(row.tables),
        schema=episode.schema,
        gold_sql=row.gold_sql,
        predicted_sql=episode.sql,
        official=official,
        strict=strict,
        official_correct=official.correct,
        strict_correct=strict.correct,
        hidden=hidden,
        reason=explain(official, predicted, gold),
        predicted_rows=len(predicted.rows) if predicted else 0,
        gold_rows=len(gold.rows),
        predicted_columns=len(predicted.columns) if predicted else 0,
        gold_columns=len(gold.columns),
        outcome=predicted.outcome if predicted else "",
        ended_by=episode.ended_by,
        gold_tables=len(row.gold_tables),
        gold_tables_shown=sum(name.lower() in shown for name in row.gold_tables),
    )
