"""One answer's reward: run it, compare it with the stored gold, say which tier it reached;
consensus over its group."""

import hashlib
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from envbuild.query.joins import join_share
from envbuild.records.corpus import Schema
from envbuild.records.episode import RewardBreakdown, RewardSettings, Tier
from envbuild.records.execution import Outcome, QueryResult, Verdict
from envbuild.records.manifest import GoldResult
from envbuild.sql.execution.session import Session
from envbuild.sql.f1 import GoldRows, subset_f1
from envbuild.sql.forks import renew_in_children
from envbuild.sql.verdicts import (
    decode_rows,
    digest_each,
    digest_rows,
    is_wide,
    outcome_verdict,
    row_equality,
)

# The reward's arithmetic: a tier and its parts in, a number out (CONTRACT 9).


def reward_of(breakdown: RewardBreakdown, settings: RewardSettings) -> float | None:
    """The reward that this breakdown's tier and parts come to; None where it is unscored."""
    if breakdown.tier is Tier.UNSCORED:
        return None
    if breakdown.tier is Tier.EQUIVALENT:
        return settings.equivalent
    if breakdown.tier is Tier.PARSABLE:
        return settings.parsable
    if breakdown.tier is Tier.INVALID:
        return settings.invalid
    if matches_visible_only(breakdown):
        share = breakdown.variants_matched / breakdown.variants_scored
        return settings.variant_base + settings.variant_weight * share
    return (
        settings.executable
        + settings.f1_weight * breakdown.f1
        + settings.join_weight * breakdown.join_share
        + settings.consensus_weight * breakdown.consensus
    )


def matches_visible_only(breakdown: RewardBreakdown) -> bool:
    """Right on the visible database, not on every hidden variant."""
    return breakdown.variants_matched < breakdown.variants_scored


def settings_sha256(settings: RewardSettings) -> str:
    """Hex SHA-256 of the constants; equal constants, equal digest."""
    return hashlib.sha256(msgspec.json.encode(settings)).hexdigest()


# Gold results made ready for comparing, kept for the next episodes of the same row.


KEPT_BYTES = 32 * 1024 * 1024
"""Encoded bytes whose decoded rows are kept; decoded they take about ten times as much."""


def gold_rows(gold: GoldResult) -> GoldRows:
    """The gold's rows, decoded once while they are in use."""
    return _kept.rows(gold.result)


class _KeptGolds:
    """The last used golds, bounded by their encoded bytes."""

    def __init__(self) -> None:
        self.golds: OrderedDict[bytes, GoldRows] = OrderedDict()
        self.bytes = 0
        self.renew_locks()
        renew_in_children(self)

    def renew_locks(self) -> None:
        """For a forked child: another thread of the parent may have been scoring."""
        self.lock = threading.Lock()

    def rows(self, encoded: bytes) -> GoldRows:
        with self.lock:
            if (found := self.golds.get(encoded)) is not None:
                self.golds.move_to_end(encoded)
                return found
        found = GoldRows(decode_rows(encoded) if encoded else ())
        with self.lock:
            if encoded not in self.golds and len(encoded) <= KEPT_BYTES:
                self.golds[encoded] = found
                self.bytes += len(encoded)
                while self.bytes > KEPT_BYTES:
                    dropped, _ = self.golds.popitem(last=False)
                    self.bytes -= len(dropped)
        return found


_kept = _KeptGolds()


# One answer's reward: run it, compare it with the stored gold, say which tier it reached.
#
# The gold is never run again: its result was computed once, with the manifest. A gold that could
# not be computed leaves the answer unscored, which is not the same as wrong.


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


# The consensus bonus: episodes of one group whose results agree with most of the others.


def with_consensus(
    group: Sequence[RewardBreakdown], settings: RewardSettings = DEFAULT_SETTINGS
) -> list[RewardBreakdown]:
    """The group's breakdowns, in order, with consensus and reward filled in.

    A class is the episodes with equal results, right ones included; episodes without a result are
    in none. The members of the largest class get 1.0 where it has at least two and no other class
    is as large: a tie gives nobody the bonus. `group`: the episodes of one row, and only those.
    """
    largest = largest_class([breakdown.result_digest for breakdown in group])
    return [
        _paid(breakdown, float(largest != "" and breakdown.result_digest == largest), settings)
        for breakdown in group
    ]


def largest_class(digests: Sequence[str]) -> str:
    """The digest that occurs most often, at least twice and more often than any other; else ''."""
    counts = Counter(digest for digest in digests if digest).most_common(2)
    if not counts or counts[0][1] < 2 or (len(counts) == 2 and counts[1][1] == counts[0][1]):
        return ""
    return counts[0][0]


def _paid(
    breakdown: RewardBreakdown, consensus: float, settings: RewardSettings
) -> RewardBreakdown:
    counted = replace(breakdown, consensus=consensus)
    return replace(counted, reward=reward_of(counted, settings))


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
    return [
        0.0 if _unscored(reward) else _shaped(reward - mean, clip, negative_weight)  # type: ignore[operator]  # None is unscored
        for reward in rewards
    ]


def has_zero_variance(rewards: Sequence[float | None]) -> bool:
    """True where the scored rewards are all alike, or fewer than two: nothing to learn from."""
    return len(set(_scored(rewards))) < 2


def _shaped(advantage: float, clip: float, negative_weight: float) -> float:
    clipped = max(-clip, min(clip, advantage))
    return clipped * negative_weight if clipped < 0 else clipped


def _scored(rewards: Sequence[float | None]) -> list[float]:
    return [reward for reward in rewards if reward is not None and not math.isnan(reward)]


def _unscored(reward: float | None) -> bool:
    return reward is None or math.isnan(reward)
