"""What a corpus's scores come to: the figures preflight shows, and their findings."""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction

from envbuild.corpora.folder import CorpusFolder
from envbuild.records.preflight import Finding, Severity
from envbuild.records.signal import (
    AliveOperator,
    SignalExample,
    SignalScore,
    SignalSummary,
    SignalThresholds,
)
from envbuild.signal.mutants import VERSION

NAMED_OPERATORS = 3
WRONG_QUERIES = 4
"""Mutants shown in the worked example."""


class Shares:
    """Scores counted by value: shares of at most a dozen mutants take few different values."""

    def __init__(self) -> None:
        self.counts: Counter[float] = Counter()

    def add(self, share: float) -> None:
        """Counts one score."""
        self.counts[share] += 1

    @property
    def mean(self) -> float | None:
        """The mean, rounded once as `statistics.fmean` rounds it; None where nothing was added."""
        exact = sum((Fraction(share) * times for share, times in self.counts.items()), Fraction())
        return float(exact) / self.counts.total() if self.counts else None

    @property
    def median(self) -> float | None:
        """The median; the mean of the two in the middle of an even number of scores."""
        total = self.counts.total()
        return (self._at((total - 1) // 2) + self._at(total // 2)) / 2 if total else None

    def below(self, limit: float) -> float | None:
        """The share of scores under a limit."""
        under = sum(times for share, times in self.counts.items() if share < limit)
        return under / self.counts.total() if self.counts else None

    def _at(self, place: int) -> float:
        for share, times in sorted(self.counts.items()):
            if place < times:
                return share
            place -= times
        raise IndexError(place)


class ScoreTally:
    """Adds up scores one by one, in any order, without keeping them."""

    def __init__(self) -> None:
        self.sampled = self.empty_golds = self.variants = 0
        self.low, self.high = Shares(), Shares()
        self.reasons: Counter[str] = Counter()
        self.alive: Counter[str] = Counter()
        self.tried: Counter[str] = Counter()
        self.plainest: SignalScore | None = None
        """The score that makes the best example."""

    def add(self, score: SignalScore) -> None:
        """Counts one question's score."""
        self.sampled += 1
        if score.reason:
            self.reasons[score.reason] += 1
        if score.signal_high is None or score.signal_low is None:
            return
        self.low.add(score.signal_low)
        self.high.add(score.signal_high)
        self.empty_golds += score.gold_rows == 0
        self.variants = max(self.variants, score.variants)
        self.alive.update(score.alive)
        self.tried.update(score.operators)
        if score.alive and (self.plainest is None or _plainness(score) < _plainness(self.plainest)):
            self.plainest = score

    def summary(
        self, folder: CorpusFolder, *, verdict: str, wanted: int | None = None, seed: int = 0
    ) -> SignalSummary:
        """The summary; means are None where nothing could be scored."""
        return SignalSummary(
            corpus=folder.name,
            questions=folder.num_questions,
            sampled=self.sampled,
            scored=self.high.counts.total(),
            unscored=dict(sorted(self.reasons.items())),
            empty_golds=self.empty_golds,
            mean_low=self.low.mean,
            mean_high=self.high.mean,
            median=self.high.median,
            share_below_half=self.high.below(0.5),
            variants=self.variants,
            top_alive=self._top_alive(),
            example=_example(self.plainest, folder) if self.plainest else None,
            verdict=verdict,
            version=VERSION,
            wanted=wanted,
            seed=seed,
        )

    def _top_alive(self) -> tuple[AliveOperator, ...]:
        ranked = sorted(self.alive.items(), key=lambda pair: (-pair[1], pair[0]))
        return tuple(
            AliveOperator(operator=operator, alive=count, mutants=self.tried[operator])
            for operator, count in ranked[:NAMED_OPERATORS]
        )


def score_order(score: SignalScore) -> tuple[str, str]:
    """The order of signal.parquet."""
    return score.question_id, score.db_id


def signal_findings(
    scores: Iterable[SignalScore],
    summary: SignalSummary,
    thresholds: SignalThresholds | None = None,
) -> Iterator[Finding]:
    """`corpus_signal` for the corpus, `no_signal` and `weak_signal` for its questions."""
    limits = thresholds or SignalThresholds()
    if (severity := corpus_severity(summary, limits)) is not None:
        yield Finding(
            corpus=summary.corpus,
            code="corpus_signal",
            severity=severity,
            count=summary.scored,
            message=f"on average {_percent(summary.mean_high)} of wrong queries near a gold are "
            f"told from it; {_percent(summary.share_below_half)} of questions score below 0.5",
        )
    for score in scores:
        value = score.signal_high
        if value is None or value >= limits.question_warning:
            continue
        dead = value < limits.question_error
        yield Finding(
            corpus=score.corpus,
            code="no_signal" if dead else "weak_signal",
            severity=Severity.ERROR if dead else Severity.WARNING,
            db_id=score.db_id,
            question_id=score.question_id,
            message=f"{len(score.alive)} of {len(score.operators)} wrong queries near the gold "
            "get its result",
            example=score.alive_sql[0] if score.alive_sql else "",
        )


def corpus_severity(summary: SignalSummary, thresholds: SignalThresholds) -> Severity | None:
    """The worst threshold a corpus crosses; None where it is fine or nothing was scored."""
    mean, share = summary.mean_high, summary.share_below_half
    if mean is None or share is None:
        return None
    if mean < thresholds.mean_error or share > thresholds.share_error:
        return Severity.ERROR
    if mean < thresholds.mean_warning or share > thresholds.share_warning:
        return Severity.WARNING
    return None


def _example(best: SignalScore, folder: CorpusFolder) -> SignalExample:
    """The question that shows it best: its gold has rows, four kinds of change go unnoticed.

    That an empty result equals an empty result is plain, and so is one kind of change four times;
    among the rest the shortest SQL reads best.
    """
    asked = folder.find_question(best.question_id)
    return SignalExample(
        question_id=best.question_id,
        db_id=best.db_id,
        question=asked.question if asked else "",
        gold_sql=asked.gold_sql if asked else "",
        gold_rows=best.gold_rows,
        wrong_sql=_shown(best),
    )


def _plainness(score: SignalScore) -> tuple[bool, int, int, tuple[str, str]]:
    kinds = min(len(set(score.alive)), WRONG_QUERIES)
    return score.gold_rows == 0, -kinds, max(map(len, _shown(score))), score_order(score)


def _shown(score: SignalScore) -> tuple[str, ...]:
    """Up to four alive mutants, each of another operator where there are so many."""
    pairs = list(zip(score.alive, score.alive_sql, strict=True))
    first = dict(reversed(pairs))
    shown = [sql for operator, sql in pairs if first[operator] == sql]
    return tuple(shown + [sql for _, sql in pairs if sql not in shown])[:WRONG_QUERIES]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
