"""One answer's reward: run it, compare it with the stored gold, say which tier it reached.

The gold is never run again: its result was computed once, with the manifest. A gold that could not
be computed leaves the answer unscored, which is not the same as wrong.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from envbuild.records.corpus import Schema
from envbuild.records.episode import RewardBreakdown, RewardSettings, Tier
from envbuild.records.execution import Outcome, QueryResult, Verdict
from envbuild.records.manifest import GoldResult
from envbuild.reward.gold import gold_rows
from envbuild.reward.tiers import reward_of, settings_sha256
from envbuild.sql.comparing.f1 import GoldRows, subset_f1
from envbuild.sql.executor import Session
from envbuild.sql.results import digest_each, digest_rows
from envbuild.sql.trees.joins import join_share
from envbuild.sql.verdicts import is_wide, outcome_verdict, row_equality

DEFAULT_SETTINGS = RewardSettings()


class Variant(NamedTuple):
    """One hidden variant of the database, and the gold's result there."""

    session: Session
    gold: GoldResult


def score_answer(
    sql: str | None,
    *,
    session: Session,
    gold: GoldResult,
    schema: Schema,
    settings: RewardSettings = DEFAULT_SETTINGS,
    variants: Iterable[Variant] = (),
) -> RewardBreakdown:
    """The answer's breakdown, before its group's consensus is known (`reward.consensus`).

    `sql`: the answer; None or blank is none. `session`: the visible database. `schema`: its
    foreign keys, for the join share. `variants` count only for an answer that is right on the
    visible database, and are asked for only then; one that cannot judge is skipped.
    Raises UnknownNameError where the settings name an unknown verdict.
    """
    row_equality(settings.verdict)  # an unknown name is said before anything runs
    stored = QueryResult(outcome=Outcome(gold.outcome))
    answered = sql is not None and sql.strip() != ""
    if not stored.ok:
        verdict = outcome_verdict(None, stored)
        return unscored_answer(verdict or Verdict.GOLD_ERROR, settings)
    if sql is None or not answered:
        return _breakdown(Tier.INVALID, Verdict.NO_PREDICTION, settings)
    predicted = session.run(sql)
    if verdict := outcome_verdict(predicted, stored):
        tier = Tier.PARSABLE if predicted.parsed else Tier.INVALID
        return _breakdown(tier, verdict, settings, outcome=predicted.outcome)
    right, f1, wide = _compare(predicted, gold, settings)
    scored = matched = 0
    if right:
        scored, matched = _on_variants(sql, variants, settings)
    return _breakdown(
        Tier.EQUIVALENT if right and scored == matched else Tier.EXECUTABLE,
        Verdict.EQUAL if right else Verdict.DIFFERENT,
        settings,
        outcome=predicted.outcome,
        f1=f1,
        wide=wide,
        join_share=0.0 if right else join_share(sql, schema),
        result_digest=digest_rows(predicted.rows, ordered=False),
        variants_scored=scored,
        variants_matched=matched,
    )


def unscored_answer(
    verdict: Verdict, settings: RewardSettings = DEFAULT_SETTINGS
) -> RewardBreakdown:
    """The breakdown of an answer that nobody can judge, which is null and never 0."""
    return _breakdown(Tier.UNSCORED, verdict, settings)


def can_judge(gold: GoldResult) -> bool:
    """Whether a variant with this gold result judges answers; else it is skipped (SIGNAL 7).

    A gold that fails there, or is empty, says nothing about an answer.
    """
    return gold.outcome == Outcome.OK and bool(gold_rows(gold).rows)


def _compare(
    predicted: QueryResult, gold: GoldResult, settings: RewardSettings
) -> tuple[bool, float, bool]:
    """(whether it is right, its F1, whether one of them is wide).

    F1 is the larger of the whole-row F1 and, between unequal numbers of columns, the subset's.
    """
    rows, ours = gold_rows(gold), predicted.rows
    same_columns = len(predicted.columns) == len(gold.columns)
    wide = is_wide(ours) or is_wide(rows.rows)
    if wide and not same_columns:  # rows of unequal length are never equal
        return False, 0.0, wide
    if wide:
        rows, ours = GoldRows(digest_each(rows.rows)), digest_each(ours)
    if settings.verdict == "bag@1":
        right = rows.equals(ours)
    else:
        right = row_equality(settings.verdict)(ours, rows.rows, gold.ordered, None)
    f1 = rows.f1(ours)
    if not same_columns:
        f1 = max(f1, settings.subset_weight * subset_f1(ours, rows.rows))
    return right, f1, wide


def _on_variants(
    sql: str, variants: Iterable[Variant], settings: RewardSettings
) -> tuple[int, int]:
    """(variants that can score this question, those where the answer is right too)."""
    equal = row_equality(settings.verdict)
    scored = matched = 0
    for variant in variants:
        gold = variant.gold
        if not can_judge(gold):
            continue
        scored += 1
        predicted = variant.session.run(sql)
        matched += predicted.ok and equal(predicted.rows, gold_rows(gold).rows, gold.ordered, None)
    return scored, matched


def _breakdown(
    tier: Tier,
    verdict: Verdict,
    settings: RewardSettings,
    *,
    outcome: Outcome | None = None,
    f1: float = 0.0,
    wide: bool = False,
    join_share: float = 0.0,
    result_digest: str = "",
    variants_scored: int = 0,
    variants_matched: int = 0,
) -> RewardBreakdown:
    unpaid = RewardBreakdown(
        tier=tier,
        reward=None,
        verdict=verdict,
        verdict_name=settings.verdict,
        outcome=outcome or "",
        f1=f1,
        wide=wide,
        join_share=join_share,
        result_digest=result_digest,
        variants_scored=variants_scored,
        variants_matched=variants_matched,
        constants_sha256=settings_sha256(settings),
    )
    return replace(unpaid, reward=reward_of(unpaid, settings))
