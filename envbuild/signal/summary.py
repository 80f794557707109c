"""What a corpus's scores come to: the figures preflight shows, and their findings."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from envbuild.records.corpus import Question
from envbuild.records.finding import Finding, Severity
from envbuild.records.signal import (
    AliveOperator,
    SignalExample,
    SignalScore,
    SignalSummary,
    SignalThresholds,
)

NAMED_OPERATORS = 3
WRONG_QUERIES = 4
"""Mutants shown in the worked example."""


def summarize(
    scores: Sequence[SignalScore],
    *,
    corpus: str = "",
    questions: Sequence[Question],
    verdict: str,
    wanted: int | None = None,
    seed: int = 0,
) -> SignalSummary:
    """The summary of the scores; means are None where nothing could be scored."""
    scored = [score for score in scores if score.signal_high is not None]
    high = [score.signal_high for score in scored if score.signal_high is not None]
    low = [score.signal_low for score in scored if score.signal_low is not None]
    reasons = Counter(score.reason for score in scores if score.reason)
    return SignalSummary(
        corpus=corpus,
        questions=len(questions),
        sampled=len(scores),
        scored=len(scored),
        unscored=dict(sorted(reasons.items())),
        empty_golds=sum(score.gold_rows == 0 for score in scored),
        mean_low=statistics.fmean(low) if low else None,
        mean_high=statistics.fmean(high) if high else None,
        median=statistics.median(high) if high else None,
        share_below_half=sum(value < 0.5 for value in high) / len(high) if high else None,
        variants=max((score.variants for score in scored), default=0),
        top_alive=_top_alive(scored),
        example=_example(scored, questions),
        verdict=verdict,
        wanted=wanted,
        seed=seed,
    )


def signal_findings(
    scores: Sequence[SignalScore],
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


def _top_alive(scored: Sequence[SignalScore]) -> tuple[AliveOperator, ...]:
    alive = Counter(operator for score in scored for operator in score.alive)
    tried = Counter(operator for score in scored for operator in score.operators)
    ranked = sorted(alive.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(
        AliveOperator(operator=operator, alive=count, mutants=tried[operator])
        for operator, count in ranked[:NAMED_OPERATORS]
    )


def _example(scored: Sequence[SignalScore], questions: Sequence[Question]) -> SignalExample | None:
    """The question that shows it best: its gold has rows, four kinds of change go unnoticed.

    That an empty result equals an empty result is plain, and so is one kind of change four times;
    among the rest the shortest SQL reads best.
    """
    candidates = [score for score in scored if score.alive]
    if not candidates:
        return None
    best = min(candidates, key=_plainness)
    asked = next((q for q in questions if q.question_id == best.question_id), None)
    return SignalExample(
        question_id=best.question_id,
        db_id=best.db_id,
        question=asked.question if asked else "",
        gold_sql=asked.gold_sql if asked else "",
        gold_rows=best.gold_rows,
        wrong_sql=_shown(best),
    )


def _plainness(score: SignalScore) -> tuple[bool, int, int, str]:
    kinds = min(len(set(score.alive)), WRONG_QUERIES)
    return score.gold_rows == 0, -kinds, max(map(len, _shown(score))), score.question_id


def _shown(score: SignalScore) -> tuple[str, ...]:
    """Up to four alive mutants, each of another operator where there are so many."""
    pairs = list(zip(score.alive, score.alive_sql, strict=True))
    first = dict(reversed(pairs))
    shown = [sql for operator, sql in pairs if first[operator] == sql]
    return tuple(shown + [sql for _, sql in pairs if sql not in shown])[:WRONG_QUERIES]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
