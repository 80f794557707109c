"""EX official and strict from single verdicts, whole and by group, unscored beside the score."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

from envbuild.corpora.wording import one_spelling
from envbuild.evaluate.statistics import clustered_interval
from envbuild.records.evaluation import QuestionVerdict, Score, Share
from envbuild.records.execution import Verdict

SIZES = ((4, "1-4 tables"), (8, "5-8"), (16, "9-16"), (32, "17-32"), (64, "33-64"))
"""Last table count of each size group; more tables are `65+`."""
GRADES = (
    *("short", "easy", "simple", "medium", "moderate", "long"),
    *("hard", "challenging", "extra", "complex", "highly complex"),
)
"""Buckets and the difficulties of BIRD, Spider, SQaLe and SynSQL: each one's own order holds."""


def score_all(verdicts: Sequence[QuestionVerdict]) -> Score:
    """EX over all verdicts."""
    return score_group("all", verdicts)


def score_by(
    verdicts: Iterable[QuestionVerdict], key: Callable[[QuestionVerdict], str], *, by: str = ""
) -> list[Score]:
    """One score a group, easiest or smallest first; answers with an empty key are left out.

    Keys that differ only in case or blanks are one group, under their commonest spelling.
    """
    named = [(name, verdict) for verdict in verdicts if (name := key(verdict))]
    shown = one_spelling(name for name, _ in named)
    groups: dict[str, list[QuestionVerdict]] = defaultdict(list)
    for name, verdict in named:
        groups[shown[name]].append(verdict)
    return [score_group(name, groups[name], by=by) for name in sorted(groups, key=_natural)]


def score_group(name: str, verdicts: Sequence[QuestionVerdict], *, by: str = "") -> Score:
    """EX over one group."""
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
