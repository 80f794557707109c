"""EX from single verdicts with intervals, and paired statistics for policies on the same
questions."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from envbuild.corpora.wording import one_spelling
from envbuild.errors import CorpusFolderError, UsageError
from envbuild.io.parquet import iter_records
from envbuild.records.evaluation import Comparison, QuestionVerdict, Score, Share
from envbuild.records.execution import Verdict

# Paired statistics for two policies on the same questions: what a referee asks for.
#
# The question is the unit throughout: several seeds of one policy are averaged per question
# first. Exact McNemar: McNemar 1947, two-sided binomial on the discordant pairs. Interval for one
# share: Wilson 1927, with a design effect where a question was answered several times.
# Family-wise: Holm 1979; false discovery rate: Benjamini and Hochberg 1995.

RESAMPLES = 10_000
BATCH = 1000
"""Resamples drawn at a time, which bounds the memory."""
Z_95 = float(stats.norm.ppf(0.975))


class Interval(NamedTuple):
    """A two-sided 95 % interval, both ends as shares of 1."""

    low: float
    high: float


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


def wilson_interval(correct: float, total: float) -> Interval:
    """The Wilson score interval of correct/total; [0, 1] when nothing was scored.

    Counts need not be whole: `clustered_interval` gives effective ones.
    """
    if not total:
        return Interval(0.0, 1.0)
    z, share = Z_95, correct / total
    centre = share + z * z / (2 * total)
    half = z * (share * (1 - share) / total + z * z / (4 * total**2)) ** 0.5
    low, high = ((centre + side * half) / (1 + z * z / total) for side in (-1, 1))
    return Interval(low if correct > 0 else 0.0, high if correct < total else 1.0)


def clustered_interval(correct: Sequence[bool], clusters: Sequence[Hashable]) -> Interval:
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
        return wilson_interval(sum(correct), total)
    share = float(values.mean())
    variance = float(((sums - share * sizes) ** 2).sum()) / total**2
    if variance > 1e-12:
        effective = min(total, share * (1 - share) / variance)
    else:
        effective = total**2 / float((sizes**2).sum())
    return wilson_interval(share * effective, effective)


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Two-sided exact p-value of the questions that exactly one of two policies answers."""
    total = only_first + only_second
    return float(stats.binomtest(only_first, total, 0.5).pvalue) if total else 1.0


def paired_bootstrap(
    first: Sequence[float],
    second: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Interval:
    """95 % percentile interval of mean(second) - mean(first), resampling questions.

    `clusters` (one label a question, e.g. its db_id) resamples whole clusters instead: questions
    of one database are not independent.
    """
    delta = _differences(first, second)
    sums, sizes = _cluster_sums(delta, range(len(delta)) if clusters is None else clusters)
    generator = np.random.default_rng(seed)
    share = np.full(len(sums), 1 / len(sums))
    means = []
    for _ in range(0, RESAMPLES, BATCH):
        weights = generator.multinomial(len(sums), share, size=BATCH)
        means.append((weights @ sums) / (weights @ sizes))
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Interval(float(low), float(high))


def sign_flip_test(first: Sequence[float], second: Sequence[float], *, seed: int = 0) -> float:
    """Two-sided paired permutation p-value on per-question means, for several seeds a policy.

    Few differing questions are enumerated, so the value is exact; of many, signs are drawn. With
    one run a side McNemar's exact test says the same thing exactly; use that instead.
    """
    delta = _differences(first, second)
    delta = delta[delta != 0]
    if len(delta) < 2:
        return 1.0
    flipped = stats.permutation_test(
        (delta,),
        lambda signed, axis: signed.sum(axis),
        vectorized=True,
        permutation_type="samples",
        n_resamples=RESAMPLES,
        batch=BATCH,
        rng=seed,
    )
    return float(flipped.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p-values, in the order given (family-wise error rate)."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    raised = p[order] * np.arange(len(p), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(raised))
    return [float(value) for value in adjusted]


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini-Hochberg adjusted p-values, in the order given (false discovery rate)."""
    adjusted = stats.false_discovery_control(p_values) if len(p_values) else ()
    return [float(p) for p in adjusted]


def minimum_detectable_effect(questions: int, discordant_share: float) -> float:
    """The smallest true difference that McNemar's test at 5 % finds with power 0.8 (Connor 1987).

    `discordant_share` is the share of questions on which the two policies disagree; no difference
    can exceed it, so it is returned where even that would not be found.
    """
    # Connor's equation, delta sqrt(n) = z sqrt(d) + z_power sqrt(d - delta^2), solved for delta
    root, power = Z_95 * math.sqrt(discordant_share), float(stats.norm.ppf(0.8)) ** 2
    total = questions + power
    rest = questions * root**2 - total * (root**2 - power * discordant_share)
    if rest < 0:
        return discordant_share
    return min(discordant_share, (math.sqrt(questions) * root + math.sqrt(rest)) / total)


def noise_floor(runs: Sequence[Sequence[float]]) -> NoiseFloor:
    """Test-retest noise over at least two aligned runs of one policy."""
    table = np.asarray(runs, dtype=float)
    count, questions = table.shape
    flipped = [np.mean(one != other) for one, other in combinations(table, 2)]
    # per-question variance over runs, summed: the variance of one run's score given the questions
    variance = float(table.var(axis=0, ddof=1).sum()) / questions**2 if table.size else 0.0
    return NoiseFloor(
        runs=count,
        questions=questions,
        flipped=float(np.mean(flipped)),
        standard_deviation=variance**0.5,
        difference=Z_95 * (2 * variance) ** 0.5,
    )


def _cluster_sums(
    values: NDArray[np.float64], clusters: Sequence[Hashable]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sum of the values in each cluster, and how many they are."""
    places: dict[Hashable, int] = {}
    index = [places.setdefault(label, len(places)) for label in clusters]
    counted = np.asarray(index, dtype=np.int64)
    sums = np.bincount(counted, weights=values).astype(np.float64)
    return sums, np.bincount(counted).astype(np.float64)


def _differences(first: Sequence[float], second: Sequence[float]) -> NDArray[np.float64]:
    return np.array(second, dtype=np.float64) - np.array(first, dtype=np.float64)


# EX official and strict from single verdicts, whole and by group, unscored beside the score.

SIZES = ((4, "1-4 tables"), (8, "5-8"), (16, "9-16"), (32, "17-32"), (64, "33-64"))
"""Last table count of each size group; more tables are `65+`."""
GRADES = (
    *("short", "easy", "simple", "medium", "moderate", "long"),
    *("hard", "challenging", "extra", "complex", "highly complex"),
)
"""Buckets and the difficulties of BIRD, Spider, SQaLe and SynSQL: each one's own order holds."""


def score_by(
    verdicts: Iterable[QuestionVerdict], key: Callable[[QuestionVerdict], str], *, by: str = ""
) -> list[Score]:
    """One score a group, easiest or smallest first.

    Answers with an empty key stand last, such as `no difficulty`, where others have one. Keys that
    differ only in case or blanks are one group, under their commonest spelling.
    """
    keyed = [(key(verdict), verdict) for verdict in verdicts]
    named = [(name, verdict) for name, verdict in keyed if name]
    nameless = [verdict for name, verdict in keyed if not name]
    shown = one_spelling(name for name, _ in named)
    groups: dict[str, list[QuestionVerdict]] = defaultdict(list)
    for name, verdict in named:
        groups[shown[name]].append(verdict)
    scores = [score_group(groups[name], name=name, by=by) for name in sorted(groups, key=_natural)]
    if scores and nameless:
        scores.append(score_group(nameless, name=f"no {by}", by=by))
    return scores


def score_group(verdicts: Sequence[QuestionVerdict], *, name: str = "all", by: str = "") -> Score:
    """EX over one group, or over all verdicts."""
    hidden = [(v.key, v.hidden == Verdict.EQUAL) for v in verdicts if v.hidden]
    return Score(
        name=name,
        by=by,
        official=share_of((v.key, v.official_correct) for v in verdicts),
        strict=share_of((v.key, v.strict_correct) for v in verdicts),
        unscored=sum(v.official_correct is None for v in verdicts),
        hidden=share_of(hidden) if hidden else None,
    )


def share_of(answers: Iterable[tuple[Hashable, bool | None]]) -> Share:
    """The share of True among what was scored, with its 95 % interval.

    Each answer comes with the question it is to: the unit of the interval.
    """
    scored = [(question, value) for question, value in answers if value is not None]
    correct = [value for _, value in scored]
    interval = clustered_interval(correct, [question for question, _ in scored])
    return Share(correct=sum(correct), total=len(scored), low=interval.low, high=interval.high)


def size_group(verdict: QuestionVerdict) -> str:
    """The size group of the view the policy saw; empty where it is not known."""
    if not verdict.tables:
        return ""
    return next((name for last, name in SIZES if verdict.tables <= last), "65+")


def _natural(name: str) -> tuple[int, int, str]:
    """Buckets, difficulties and sizes in their own order, numbers as numbers, the rest by name."""
    if name.lower() in GRADES:
        return 0, GRADES.index(name.lower()), ""
    if (numbered := re.match(r"\D?(\d+)", name)) is not None:
        return 1, int(numbered[1]), name
    return 2, 0, name


# Policies compared in pairs on the questions they share, corrected for the number of pairs.

VERDICTS_FILE = "evaluation.parquet"
Key = tuple[str, str]
"""A question's corpus and id."""
RULES: dict[str, Callable[[QuestionVerdict], bool | None]] = {
    "official": lambda verdict: verdict.official_correct,
    "strict": lambda verdict: verdict.strict_correct,
    "hidden": lambda verdict: verdict.hidden == Verdict.EQUAL if verdict.hidden else None,
}
"""Whether an answer is right by each rule; None where it says nothing of it."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's runs on one set of questions."""

    name: str
    shares: dict[Key, float]
    """Question -> share of its candidates that are right, the mean over the runs; questions that
    a run did not score are absent."""
    databases: dict[Key, str]
    """Question -> db_id, for clustering."""
    rules: tuple[str, ...]
    """Verdict rules its answers were judged by."""
    noise: NoiseFloor | None
    """Test-retest noise; None for one run."""
    verdicts: list[QuestionVerdict]
    """Every answer of its runs."""


def read_side(text: str, *, rule: str = "official") -> Side:
    """One side from `FOLDER` or, for several seeds, `FOLDER,FOLDER,…`.

    A folder is one that `envbuild evaluate` wrote evaluation.parquet into; the file itself will do.
    Raises UsageError for an unknown rule, an empty side or one that the rule says nothing of,
    CorpusFolderError for a missing file.
    """
    if rule not in RULES:
        raise UsageError(f"--rule takes {', '.join(RULES)}; got {rule!r}")
    paths = [Path(part) for part in text.split(",") if part]
    if not paths:
        raise UsageError("a side of a comparison needs at least one folder")
    databases: dict[Key, str] = {}
    runs: list[dict[Key, float]] = []
    rules: set[str] = set()
    answers: list[QuestionVerdict] = []
    for path in paths:
        verdicts = list(iter_records(_verdicts_file(path), QuestionVerdict))
        answers += verdicts
        databases.update((v.key, f"{v.corpus}/{v.db_id}") for v in verdicts)
        rules.update(v.official_name if rule == "official" else f"{rule}@1" for v in verdicts)
        runs.append(_means(verdicts, rule=rule))
        if rule == "hidden" and not runs[-1]:
            raise UsageError(
                f"{path} carries no hidden@1 verdict: its questions have no scored variant. Build "
                "the manifest with --variants N, roll out, and evaluate again"
            )
    shared = sorted(set.intersection(*map(set, runs)))
    several = len(runs) > 1
    names = [path.parent.name if path.is_file() else path.name or str(path) for path in paths]
    return Side(
        name=f"{names[0]} and {len(names) - 1} more" if several else names[0],
        shares={key: sum(run[key] for run in runs) / len(runs) for key in shared},
        databases=databases,
        rules=tuple(sorted(rules)),
        noise=noise_floor([[run[key] for key in shared] for run in runs]) if several else None,
        verdicts=answers,
    )


def read_sides(texts: Sequence[str], *, rule: str = "official") -> list[Side]:
    """`read_side` of each; sides of one folder name are called by what was given for them."""
    sides = [read_side(text, rule=rule) for text in texts]
    names = Counter(side.name for side in sides)
    return [
        msgspec.structs.replace(side, name=text) if names[side.name] > 1 else side
        for side, text in zip(sides, texts, strict=True)
    ]


def compare_all(sides: Sequence[Side], *, seed: int = 0) -> list[Comparison]:
    """Every pair of sides, with p-values adjusted over all the pairs compared.

    Raises UsageError for fewer than two sides, sides judged by different rules, or a pair that
    shares no scored question.
    """
    if len(sides) < 2:
        raise UsageError("compare needs at least two evaluations")
    rules = sorted({rule for side in sides for rule in side.rules})
    if len(rules) > 1:
        raise UsageError(
            f"these evaluations were judged by different rules ({', '.join(rules)}): evaluate them "
            "by one, or compare with --rule strict"
        )
    found = [_compare(first, second, seed=seed) for first, second in combinations(sides, 2)]
    p_values = [comparison.p for comparison in found]
    adjusted = zip(found, holm(p_values), benjamini_hochberg(p_values), strict=True)
    return [
        msgspec.structs.replace(comparison, holm=family, benjamini_hochberg=discovery)
        for comparison, family, discovery in adjusted
    ]


def _compare(first: Side, second: Side, *, seed: int) -> Comparison:
    left, right = first.shares, second.shares
    shared = sorted(left.keys() & right.keys())
    if not shared:
        raise UsageError(
            f"{first.name} and {second.name} share no scored question: were both run on the same "
            "manifest and split?"
        )
    a, b = [left[key] for key in shared], [right[key] for key in shared]
    single = {0.0, 1.0}.issuperset((*a, *b))
    only_first = sum(x > y for x, y in zip(a, b, strict=True))
    only_second = sum(y > x for x, y in zip(a, b, strict=True))
    differing = only_first + only_second
    databases = [first.databases.get(key) or second.databases[key] for key in shared]
    plain = paired_bootstrap(a, b, seed=seed)
    clustered = paired_bootstrap(a, b, clusters=databases, seed=seed)
    return Comparison(
        first=first.name,
        second=second.name,
        questions=len(shared),
        left_out=len((first.databases.keys() | second.databases.keys()) - set(shared)),
        first_score=sum(a) / len(a),
        second_score=sum(b) / len(b),
        delta=(sum(b) - sum(a)) / len(a),
        only_first=only_first,
        only_second=only_second,
        test="mcnemar_exact" if single else "sign_flip",
        p=mcnemar_exact(only_first, only_second) if single else sign_flip_test(a, b, seed=seed),
        holm=1.0,
        benjamini_hochberg=1.0,
        low=plain.low,
        high=plain.high,
        clustered_low=clustered.low,
        clustered_high=clustered.high,
        detectable=(
            minimum_detectable_effect(len(shared), differing / len(shared)) if differing else None
        ),
    )


def _means(verdicts: Iterable[QuestionVerdict], *, rule: str) -> dict[Key, float]:
    candidates: dict[Key, list[bool]] = defaultdict(list)
    for verdict in verdicts:
        correct = RULES[rule](verdict)
        if correct is not None:
            candidates[verdict.key].append(correct)
    return {key: sum(values) / len(values) for key, values in candidates.items()}


def _verdicts_file(path: Path) -> Path:
    file = path if path.is_file() else path / VERDICTS_FILE
    if not file.is_file():
        raise CorpusFolderError(f"no {file}: give a folder that `envbuild evaluate` wrote into")
    return file
