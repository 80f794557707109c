"""One answer's reward: run it, compare it with the stored gold, say which tier it reached;
consensus over its group (CONTRACT 9)."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from envbuild.query.joins import join_share
from envbuild.records.corpus import Schema
from envbuild.records.episode import RewardBreakdown, RewardSettings, Tier
from envbuild.records.execution import Outcome, QueryResult, Verdict
from envbuild.records.manifest import GoldResult
from envbuild.sql.execution.session import Session
from envbuild.sql.f1 import GoldRows, subset_f1
from envbuild.sql.verdicts import (
    decode_rows,
    digest_each,
    digest_rows,
    is_wide,
    outcome_verdict,
    row_equality,
)

DEFAULT_SETTINGS = RewardSettings()
KEPT_GOLDS = 256
"""Decoded golds kept for the next episodes of the same row, the last used ones."""
MAX_KEPT_BYTES = 128 * 1024
"""Encoded bytes of a kept gold; decoded it takes about ten times as much. A larger one is decoded
each time, which takes no longer than to run an answer that is as large."""


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
    """The answer's breakdown, before its group's consensus is known (`with_consensus`).

    `sql`: the answer; None or blank is none. `session`: the visible database. `schema`: its
    foreign keys, for the join share. `variants` count only for an answer that is right on the
    visible database, and are asked for only then; one that cannot judge is skipped.

    The gold is never run again: its result was computed once, with the manifest. A gold that could
    not be computed leaves the answer unscored, which is not the same as wrong. Raises
    UnknownNameError where the settings name an unknown verdict.
    """
    row_equality(settings.verdict)  # an unknown name is said before anything runs
    stored = QueryResult(outcome=Outcome(gold.outcome))
    if not stored.ok:
        return unscored_answer(outcome_verdict(None, stored) or Verdict.GOLD_ERROR, settings)
    if sql is None or not sql.strip():
        return _breakdown(settings, tier=Tier.INVALID, verdict=Verdict.NO_PREDICTION)
    predicted = session.run(sql)
    if verdict := outcome_verdict(predicted, stored):
        tier = Tier.PARSABLE if predicted.parsed else Tier.INVALID
        return _breakdown(settings, tier=tier, verdict=verdict, outcome=predicted.outcome)
    right, f1, wide = _compare(predicted, gold, settings)
    scored, matched = _on_variants(sql, variants, settings) if right else (0, 0)
    return _breakdown(
        settings,
        tier=Tier.EQUIVALENT if right and scored == matched else Tier.EXECUTABLE,
        verdict=Verdict.EQUAL if right else Verdict.DIFFERENT,
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
    return _breakdown(settings, tier=Tier.UNSCORED, verdict=verdict)


def reward_of(breakdown: RewardBreakdown, settings: RewardSettings) -> float | None:
    """The reward that this breakdown's tier and parts come to; None where it is unscored."""
    if breakdown.tier is not Tier.EXECUTABLE:
        return {
            Tier.EQUIVALENT: settings.equivalent,
            Tier.PARSABLE: settings.parsable,
            Tier.INVALID: settings.invalid,
        }.get(breakdown.tier)
    if breakdown.variants_matched < breakdown.variants_scored:  # right on the visible database only
        share = breakdown.variants_matched / breakdown.variants_scored
        return settings.variant_base + settings.variant_weight * share
    return (
        settings.executable
        + settings.f1_weight * breakdown.f1
        + settings.join_weight * breakdown.join_share
        + settings.consensus_weight * breakdown.consensus
    )


def settings_sha256(settings: RewardSettings) -> str:
    """Hex SHA-256 of the constants; equal constants, equal digest."""
    return hashlib.sha256(msgspec.json.encode(settings)).hexdigest()


def can_judge(gold: GoldResult) -> bool:
    """Whether a variant with this gold result judges answers; else it is skipped (SIGNAL 7).

    A gold that fails there, or is empty, says nothing about an answer.
    """
    return gold.outcome == Outcome.OK and bool(_gold_rows(gold).rows)


def _breakdown(settings: RewardSettings, **parts: Any) -> RewardBreakdown:
    """The breakdown with these parts, and the reward that they come to."""
    unpaid = RewardBreakdown(
        reward=None,
        verdict_name=settings.verdict,
        constants_sha256=settings_sha256(settings),
        **parts,
    )
    return replace(unpaid, reward=reward_of(unpaid, settings))


def _compare(
    predicted: QueryResult, gold: GoldResult, settings: RewardSettings
) -> tuple[bool, float, bool]:
    """(whether it is right, its F1, whether one of them is wide).

    F1 is the larger of the whole-row F1 and, between unequal numbers of columns, the subset's.
    """
    rows, ours = _gold_rows(gold), predicted.rows
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
        matched += predicted.ok and equal(predicted.rows, _gold_rows(gold).rows, gold.ordered, None)
    return scored, matched


def _gold_rows(gold: GoldResult) -> GoldRows:
    small = len(gold.result) <= MAX_KEPT_BYTES
    return _kept_rows(gold.result) if small else GoldRows(decode_rows(gold.result))


@lru_cache(maxsize=KEPT_GOLDS)
def _kept_rows(encoded: bytes) -> GoldRows:
    return GoldRows(decode_rows(encoded) if encoded else ())


def with_consensus(
    group: Sequence[RewardBreakdown], settings: RewardSettings = DEFAULT_SETTINGS
) -> list[RewardBreakdown]:
    """The group's breakdowns, in order, with consensus and reward filled in.

    A class is the episodes with equal results, right ones included; episodes without a result are
    in none. The members of the largest class get 1.0 where it has at least two and no other class
    is as large: a tie gives nobody the bonus. `group`: the episodes of one row, and only those.
    """
    classes = Counter(one.result_digest for one in group if one.result_digest).most_common(2)
    (largest, size), (_, second) = (*classes, ("", 0), ("", 0))[:2]
    decided = size >= 2 and size > second
    counted = [
        replace(one, consensus=float(decided and one.result_digest == largest)) for one in group
    ]
    return [replace(one, reward=reward_of(one, settings)) for one in counted]


# What a trainer does with the rewards of one group (the episodes of one row): reference maths.
#
# Plain Python, without a trainer; the adapters use it or are tested against it.


def group_advantages(
    rewards: Sequence[float | None], *, clip: float = 2.0, negative_weight: float = 0.7
) -> list[float]:
    """Each reward less the group's mean, clipped to ±`clip`, negative ones times `negative_weight`.

    Not divided by a standard deviation. An unscored episode (None or NaN) takes no part in the
    mean and gets 0.0: it says nothing about the policy.
    """
    scored = _scored(rewards)
    mean = math.fsum(scored) / len(scored) if scored else 0.0
    advantages = []
    for reward in rewards:
        told = mean if reward is None or math.isnan(reward) else reward
        clipped = max(-clip, min(clip, told - mean))
        advantages.append(clipped * negative_weight if clipped < 0 else clipped)
    return advantages


def has_zero_variance(rewards: Sequence[float | None]) -> bool:
    """True where the scored rewards are all alike, or fewer than two: nothing to learn from."""
    return len(set(_scored(rewards))) < 2


def _scored(rewards: Sequence[float | None]) -> list[float]:
    return [reward for reward in rewards if reward is not None and not math.isnan(reward)]
