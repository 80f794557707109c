"""What a corpus's scores come to: the figures preflight shows, and their findings."""

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import fmean, median

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
from envbuild.signal.score import VERDICT

NAMED_OPERATORS = 3
WRONG_QUERIES = 4
"""Mutants shown in the worked example."""


def summarize_scores(
    folder: CorpusFolder, scores: Iterable[SignalScore], *, wanted: int | None, seed: int
) -> SignalSummary:
    """The summary; means are None where nothing could be scored. No score is held."""
    # shares of at most a dozen mutants take few different values
    low: Counter[float] = Counter()
    high: Counter[float] = Counter()
    reasons: Counter[str] = Counter()
    alive: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    empty_golds = variants = 0
    plainest: SignalScore | None = None
    for score in scores:
        if score.signal_low is None or score.signal_high is None:
            reasons[score.reason] += 1
            continue
        low[score.signal_low] += 1
        high[score.signal_high] += 1
        empty_golds += score.gold_rows == 0
        variants = max(variants, score.variants)
        alive.update(score.alive)
        tried.update(score.operators)
        if score.alive and (plainest is None or _plainness(score) < _plainness(plainest)):
            plainest = score
    ranked = sorted(alive.items(), key=lambda pair: (-pair[1], pair[0]))
    scored = high.total()
    below_half = sum(count for share, count in high.items() if share < 0.5)
    return SignalSummary(
        corpus=folder.name,
        questions=folder.num_questions,
        sampled=scored + reasons.total(),
        scored=scored,
        unscored=dict(sorted(reasons.items())),
        empty_golds=empty_golds,
        mean_low=fmean(low.elements()) if scored else None,
        mean_high=fmean(high.elements()) if scored else None,
        median=median(high.elements()) if scored else None,
        share_below_half=below_half / scored if scored else None,
        variants=variants,
        top_alive=tuple(
            AliveOperator(operator=operator, alive=count, mutants=tried[operator])
            for operator, count in ranked[:NAMED_OPERATORS]
        ),
        example=_example(plainest, folder) if plainest else None,
        verdict=VERDICT,
        version=VERSION,
        wanted=wanted,
        seed=seed,
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
            message=f"on average {summary.mean_high:.0%} of wrong queries near a gold are told "
            f"from it; {summary.share_below_half:.0%} of questions score below 0.5",
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
    """The lowest makes the best example: its gold has rows, four kinds of change go unnoticed.

    That an empty result equals an empty result is plain, and so is one kind of change four times;
    among the rest the shortest SQL reads best.
    """
    kinds = min(len(set(score.alive)), WRONG_QUERIES)
    return score.gold_rows == 0, -kinds, max(map(len, _shown(score))), score_order(score)


def _shown(score: SignalScore) -> tuple[str, ...]:
    """Up to four alive mutants, each of another operator where there are so many."""
    pairs = list(zip(score.alive, score.alive_sql, strict=True))
    first = dict(reversed(pairs))
    shown = [sql for operator, sql in pairs if first[operator] == sql]
    return tuple(shown + [sql for _, sql in pairs if sql not in shown])[:WRONG_QUERIES]
