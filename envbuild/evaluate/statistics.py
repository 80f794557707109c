"""Paired statistics for two policies on the same questions: what a referee asks for.

The question is the unit throughout: several seeds of one policy are averaged per question first.
Exact McNemar: McNemar 1947, two-sided binomial on the discordant pairs. Interval for one share:
Wilson 1927, with a design effect where a question was answered several times. Family-wise: Holm
1979; false discovery rate: Benjamini and Hochberg 1995.
"""

from collections.abc import Hashable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from envbuild.errors import UsageError

RESAMPLES = 10_000


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A two-sided interval, both ends as shares of 1."""

    low: float
    high: float


class Discordant(msgspec.Struct, frozen=True, kw_only=True):
    """Questions that exactly one of two policies answers."""

    only_first: int
    only_second: int


class NoiseFloor(msgspec.Struct, frozen=True, kw_only=True):
    """How far one policy's repeated runs lie apart with nothing changed between them."""

    runs: int
    questions: int
    flipped: float
    """Mean share of questions whose verdict differs between two runs."""
    standard_deviation: float
    """Of the score over runs."""
    difference: float
    """Half-width of the 95 % range of (run i - run j): smaller deltas are noise."""


def wilson_interval(correct: float, total: float, *, confidence: float = 0.95) -> Interval:
    """The Wilson score interval of correct/total; [0, 1] when nothing was scored.

    Counts need not be whole: `clustered_interval` gives effective ones.
    """
    if not total:
        return Interval(low=0.0, high=1.0)
    z, share = float(stats.norm.ppf((1 + confidence) / 2)), correct / total
    centre = share + z * z / (2 * total)
    half = z * (share * (1 - share) / total + z * z / (4 * total**2)) ** 0.5
    low, high = ((centre + side * half) / (1 + z * z / total) for side in (-1, 1))
    return Interval(low=low if correct > 0 else 0.0, high=high if correct < total else 1.0)


def clustered_interval(
    correct: Sequence[bool], clusters: Sequence[Hashable], *, confidence: float = 0.95
) -> Interval:
    """The Wilson interval of a share over cases in clusters, such as episodes by question.

    Cases of one cluster are not independent, so their number is divided by the design effect: the
    variance of the share with whole clusters as the unit, over that of as many independent cases
    (Korn and Graubard 1998). Where that variance is 0, the clusters themselves are counted, by
    their sizes (Kish 1965). Clusters of one case each give the plain interval.
    """
    values = np.asarray(correct, dtype=float)
    sums, sizes = _cluster_sums(values, clusters)
    total = len(values)
    if total == len(sums):
        return wilson_interval(sum(correct), total, confidence=confidence)
    share = float(values.mean())
    variance = float(((sums - share * sizes) ** 2).sum()) / total**2
    if variance > 1e-12:
        effective = min(total, share * (1 - share) / variance)
    else:
        effective = total**2 / float((sizes**2).sum())
    return wilson_interval(share * effective, effective, confidence=confidence)


def count_discordant(first: Sequence[bool], second: Sequence[bool]) -> Discordant:
    """The off-diagonal counts of two aligned verdict lists."""
    _check_aligned(first, second)
    pairs = list(zip(first, second, strict=True))
    return Discordant(
        only_first=sum(a and not b for a, b in pairs),
        only_second=sum(b and not a for a, b in pairs),
    )


def mcnemar_exact(discordant: Discordant) -> float:
    """Two-sided exact p-value; 1.0 where no pair is discordant."""
    total = discordant.only_first + discordant.only_second
    if not total:
        return 1.0
    return float(stats.binomtest(discordant.only_first, total, 0.5).pvalue)


def paired_bootstrap(
    first: Sequence[float],
    second: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Interval:
    """Percentile interval of mean(second) - mean(first), resampling questions.

    `clusters` (one label a question, e.g. its db_id) resamples whole clusters instead: questions
    of one database are not independent. Empty input gives [0, 0].
    """
    _check_aligned(first, second)
    if not len(first):
        return Interval(low=0.0, high=0.0)
    delta = np.asarray(second, dtype=float) - np.asarray(first, dtype=float)
    sums, sizes = _cluster_sums(delta, clusters)
    generator = np.random.default_rng(seed)
    share = np.full(len(sums), 1 / len(sums))
    means = []
    for start in range(0, resamples, 1000):  # bounds memory at 1,000 x clusters
        weights = generator.multinomial(len(sums), share, size=min(1000, resamples - start))
        means.append((weights @ sums) / (weights @ sizes))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(low=float(low), high=float(high))


def sign_flip_test(
    first: Sequence[float], second: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> float:
    """Two-sided paired permutation p-value on per-question means, for several seeds a policy.

    With one run a side McNemar's exact test says the same thing exactly; use that instead.
    """
    _check_aligned(first, second)
    delta = np.asarray(second, dtype=float) - np.asarray(first, dtype=float)
    delta = delta[delta != 0]
    if not len(delta):
        return 1.0
    generator = np.random.default_rng(seed)
    observed = abs(delta.sum()) - 1e-12
    extreme = 0
    for start in range(0, resamples, 1000):
        rows = min(1000, resamples - start)
        signs = generator.integers(0, 2, size=(rows, len(delta))) * 2 - 1
        extreme += int((np.abs(signs @ delta) >= observed).sum())
    return (extreme + 1) / (resamples + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p-values, in the order given (family-wise error rate)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini-Hochberg adjusted p-values, in the order given (false discovery rate)."""
    if not p_values:
        return []
    return [float(p) for p in stats.false_discovery_control(list(p_values), method="bh")]


def minimum_detectable_effect(
    questions: int, discordant_share: float, *, alpha: float = 0.05, power: float = 0.8
) -> float:
    """The smallest true difference that McNemar's test finds with this power (Connor 1987).

    `discordant_share` is the share of questions on which the two policies disagree; no difference
    can exceed it, so it is returned where even that would not be found. NaN without questions.
    """
    if questions <= 0:
        return float("nan")
    z_alpha, z_power = stats.norm.ppf(1 - alpha / 2), stats.norm.ppf(power)

    def shortfall(delta: float) -> float:
        spread = z_alpha * discordant_share**0.5
        spread += z_power * max(0.0, discordant_share - delta**2) ** 0.5
        return float(delta * questions**0.5 - spread)

    if discordant_share <= 0 or shortfall(discordant_share) < 0:
        return discordant_share
    return float(optimize.brentq(shortfall, 0.0, discordant_share))


def noise_floor(runs: Sequence[Sequence[float]]) -> NoiseFloor:
    """Test-retest noise over aligned runs of one policy. Raises UsageError for fewer than two."""
    if len(runs) < 2:
        raise UsageError("a noise floor needs at least two runs of the same policy")
    for run in runs[1:]:
        _check_aligned(runs[0], run)
    table = np.asarray(runs, dtype=float)
    pairs = [(i, j) for i in range(len(runs)) for j in range(i)]
    flipped = float(np.mean([np.mean(table[i] != table[j]) for i, j in pairs]))
    # per-question variance over runs, summed: the variance of one run's score given the questions
    variance = float(table.var(axis=0, ddof=1).sum()) / table.shape[1] ** 2 if table.size else 0.0
    return NoiseFloor(
        runs=len(runs),
        questions=table.shape[1],
        flipped=flipped,
        standard_deviation=variance**0.5,
        difference=float(stats.norm.ppf(0.975)) * (2 * variance) ** 0.5,
    )


def _cluster_sums(
    delta: NDArray[np.float64], clusters: Sequence[Hashable] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if clusters is None:
        return delta, np.ones(len(delta))
    if len(clusters) != len(delta):
        raise UsageError(f"{len(clusters)} cluster labels for {len(delta)} cases")
    positions = {label: i for i, label in enumerate(dict.fromkeys(clusters))}
    index = np.asarray([positions[label] for label in clusters], dtype=np.int64)
    sums = np.bincount(index, weights=delta).astype(np.float64)
    return sums, np.bincount(index).astype(np.float64)


def _check_aligned(first: Sequence[object], second: Sequence[object]) -> None:
    if len(first) != len(second):
        raise UsageError(f"{len(first)} and {len(second)} verdicts: pair them by question first")
