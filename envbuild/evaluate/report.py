"""An evaluation put together from judged answers: the files and the page it leaves."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from envbuild.evaluate.curve import LoggedStep, RewardCurve
from envbuild.evaluate.episodes import JudgedEpisode, describe_behaviour, summarize_ledger
from envbuild.evaluate.statistics import (
    RULES,
    VERDICTS_FILE,
    Key,
    Side,
    score_by,
    score_group,
    share_of,
    size_group,
)
from envbuild.io.files import write_bytes
from envbuild.io.pages import embed_json
from envbuild.io.pages import render_page as render_template
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.records.corpus import interval, percent
from envbuild.records.episode import Episode
from envbuild.records.evaluation import Comparison, Evaluation, LiteralUse, QuestionVerdict, Rung
from envbuild.sql.connect import VERSIONS
from envbuild.sql.verdicts import VERDICTS

EVALUATION_FILE = "evaluation.json"
LITERALS_FILE = "literals.parquet"
GROUPS = {
    "schema": lambda verdict: verdict.schema if verdict.episode_id else "",
    "bucket": lambda verdict: verdict.bucket,
    "difficulty": lambda verdict: verdict.difficulty,
    "size": size_group,
}
"""What answers are grouped by -> an answer's group, empty where it has none."""
BEHAVIOUR = (
    ("submitted", "submit_rate"),
    ("SQL that executes", "executable_sql"),
    ("identical repeats among calls", "wasted_calls"),
    ("truncated completions", "truncated"),
    ("fell back to the last working query", "fallback_rate"),
    ("opened every gold table", "opened_all_gold_tables"),
)
"""Shares of `Behaviour`: what is said of each, and its field."""
WRONG_FIELDS = (
    *("question_id", "db_id", "question", "predicted_sql", "gold_sql", "official", "reason"),
    "episode_id",
)
"""What the page shows of an answer that is not equal."""


def evaluate_answers(
    verdicts: Sequence[QuestionVerdict],
    *,
    name: str,
    said: str,
    judged: Sequence[JudgedEpisode] = (),
    compare_rules: bool = False,
) -> Evaluation:
    """Scores whole and by group, behaviour and literals where there are episodes.

    `compare_rules`: how many answers each rule calls equal, and where one does and another not.
    """
    literals = [use for one in judged for use in one.literals]
    sets = [frozenset(verdict.equal_under) for verdict in verdicts]
    rules = tuple(VERDICTS) if compare_rules else ()
    groups = [score for by, key in GROUPS.items() for score in score_by(verdicts, key, by=by)]
    return Evaluation(
        name=name,
        policy=next((v.policy for v in verdicts if v.policy), ""),
        questions=len({v.key for v in verdicts}),
        said=said,
        official_name=verdicts[0].official_name if verdicts else "official@1",
        scores=(score_group(verdicts), *groups),
        reasons=dict(sorted(Counter(v.official for v in verdicts).items())),
        behaviour=describe_behaviour(judged) if judged else None,
        literals=summarize_ledger(literals) if literals else {},
        rules={rule: sum(rule in equal for equal in sets) for rule in rules},
        disagreements={
            one: {
                other: sum(one in equal and other not in equal for equal in sets)
                for other in rules
                if other != one
            }
            for one in rules
        },
        versions=VERSIONS,
    )


def build_rung(name: str, judged: Sequence[JudgedEpisode]) -> Rung:
    """One database size of the ladder."""
    verdicts = [one.verdict for one in judged]
    opened = [one.opened_all for one in judged if one.opened_all is not None]
    return Rung(
        name=name,
        tables=sum(v.tables for v in verdicts) / len(verdicts) if verdicts else 0.0,
        official=share_of((v.key, v.official_correct) for v in verdicts),
        strict=share_of((v.key, v.strict_correct) for v in verdicts),
        unscored=sum(v.official_correct is None for v in verdicts),
        coverage=sum(opened) / len(opened) if opened else None,
    )


def render_page(
    evaluation: Evaluation,
    verdicts: Iterable[QuestionVerdict],
    episodes: Iterable[Episode] = (),
    *,
    training: Sequence[LoggedStep] = (),
) -> str:
    """One self-contained HTML page: no network, no other file.

    Bars with intervals, the ladder, rules, and every wrong answer with its episode: `episodes`
    are gone through once, and only those are kept. `training` is drawn as the run's reward curve.
    """
    wrong = [verdict for verdict in verdicts if not verdict.official_correct]
    wanted = {verdict.episode_id for verdict in wrong if verdict.episode_id}
    document = {
        "wrong": [{name: getattr(v, name) for name in WRONG_FIELDS} for v in wrong],
        "episodes": {
            episode.episode_id: {
                "ended_by": episode.ended_by,
                "sql": episode.sql,
                "turns": [
                    {"kind": t.kind, "completion": t.completion, "observation": t.observation}
                    for t in episode.turns
                ],
            }
            for episode in (episodes if wanted else ())
            if episode.episode_id in wanted
        },
    }
    apart = evaluation.disagreements.values()
    return render_template(
        "evaluation.html",
        title=evaluation.name,
        evaluation=evaluation,
        groups=[
            (by, list(scores))
            for by, scores in groupby(evaluation.scores, key=lambda score: score.by)
            if by
        ],
        most=max((count for counts in apart for count in counts.values()), default=0),
        behaviour=behaviour_rows(evaluation),
        literals=literal_rows(evaluation),
        curve=RewardCurve(training) if training else None,
        document=embed_json(document),
    )


def behaviour_rows(evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """What was measured of the episodes, its value and its interval; without episodes none."""
    if (acted := evaluation.behaviour) is None:
        return []
    rows = [("episodes", f"{acted.episodes:,}", "")]
    for said, field in BEHAVIOUR:
        ends = acted.intervals.get(field)
        rows.append((said, percent(getattr(acted, field)), interval(*ends) if ends else "-"))
    return [
        *rows,
        ("turns an episode", f"{acted.mean_turns:.2f}", ""),
        ("tool calls an episode", f"{acted.mean_tool_calls:.2f}", ""),
    ]


def literal_rows(evaluation: Evaluation) -> list[tuple[str, str]]:
    """What was measured of the literals, with its value."""
    return [
        (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else percent(value))
        for name, value in evaluation.literals.items()
    ]


def render_comparison(
    first: Side, second: Side, comparison: Comparison, *, rule: str, text: bool
) -> str:
    """One self-contained HTML page of two runs side by side, over the questions both scored.

    Intervals of both and of their difference, endings, and each question whose verdict changed,
    with an answer of either side. `text`: with the words of questions and SQL.
    """
    sides, (judged,) = (first, second), first.rules
    score = name_score(rule, judged)
    shared = first.shares.keys() & second.shares.keys()
    answers = [[v for v in side.verdicts if v.key in shared] for side in sides]
    groups = []
    for by, key in GROUPS.items():
        scores = [{s.name: getattr(s, rule) for s in score_by(a, key, by=by)} for a in answers]
        names = dict.fromkeys(name for side in scores for name in side)
        groups.append((by, [(name, [side.get(name) for side in scores]) for name in names]))
    c = comparison
    intervals = (
        ("questions resampled", c.low, c.high),
        ("databases resampled", c.clustered_low, c.clustered_high),
    )
    furthest = max(abs(end) for _, *ends in intervals for end in ends)
    return render_template(
        "comparison.html",
        title=f"{first.name} against {second.name}",
        names=(first.name, second.name),
        comparison=comparison,
        judged=judged,
        score=score,
        all=[getattr(score_group(found), rule) for found in answers],
        groups=[(by, found) for by, found in groups if found],
        intervals=intervals,
        reach=next((reach for reach in (0.05, 0.1, 0.2, 0.5) if furthest <= reach), 1.0),
        endings=_count_both([[v.ended_by for v in found if v.ended_by] for found in answers]),
        verdicts=_count_both([[getattr(v, rule) for v in found] for found in answers]),
        rows=comparison_rows(comparison, score),
        versions=VERSIONS,
        document=embed_json(list(_changed(first, second, rule=rule, text=text))),
    )


def _count_both(values: Sequence[Sequence[str]]) -> list[list[tuple[str, int]]]:
    """How often each value stands on either side, in one order for both."""
    counts = [Counter(side) for side in values]
    ordered = sum(counts, Counter[str]()).most_common()
    return [[(name, side[name]) for name, _ in ordered] for side in counts]


def _changed(first: Side, second: Side, *, rule: str, text: bool) -> Iterator[dict[str, object]]:
    """The questions that the sides do not answer alike, those that the second lost before others.

    Of several answers the first that shows the change is taken.
    """
    right = RULES[rule]
    found: list[dict[Key, list[QuestionVerdict]]] = []
    for side in (first, second):
        by_question: dict[Key, list[QuestionVerdict]] = defaultdict(list)
        for verdict in side.verdicts:
            by_question[verdict.key].append(verdict)
        found.append(by_question)
    shared = sorted(first.shares.keys() & second.shares.keys())
    gain = {key: second.shares[key] - first.shares[key] for key in shared}
    for key in sorted((key for key in shared if gain[key]), key=lambda key: gain[key] > 0):
        asked = found[0][key][0]
        yield {
            "key": f"{asked.db_id} · {asked.question_id}",
            "question": asked.question if text else "",
            "gold_sql": (asked.gold_sql or None) if text else None,
            "sides": [
                {
                    "right": sum(right(v) is True for v in answers[key]),
                    "of": len(answers[key]),
                    "verdict": getattr(shown, rule),
                    "reason": shown.reason if text else "",
                    "sql": shown.predicted_sql if text and asked.gold_sql else None,
                }
                for answers, wanted in zip(found, (gain[key] < 0, gain[key] > 0), strict=True)
                for shown in [
                    next((v for v in answers[key] if right(v) is wanted), answers[key][0])
                ]
            ],
        }


def name_score(rule: str, judged: str) -> str:
    """What shares of right answers are called under a rule of `RULES`."""
    return "EX" if rule == "official" else judged


def comparison_rows(c: Comparison, score: str) -> list[tuple[str, str]]:
    """What was measured of the pair, with its value; `score` is what the shares are called."""
    detectable = "-" if c.detectable is None else f"{c.detectable:.3f}"
    clustered = f"{c.clustered_low:+.3f} to {c.clustered_high:+.3f}"
    return [
        ("questions both scored (left out)", f"{c.questions} ({c.left_out})"),
        (f"{score} of {c.first}", f"{c.first_score:.3f}"),
        (f"{score} of {c.second}", f"{c.second_score:.3f}"),
        ("delta", f"{c.delta:+.3f}"),
        ("only the first / only the second right", f"{c.only_first} / {c.only_second}"),
        (f"p ({c.test})", _p(c.p)),
        ("p after Holm / Benjamini-Hochberg", f"{_p(c.holm)} / {_p(c.benjamini_hochberg)}"),
        ("bootstrap 95 % of delta, questions", f"{c.low:+.3f} to {c.high:+.3f}"),
        ("bootstrap 95 % of delta, databases", clustered),
        ("smallest delta found with power 0.8", detectable),
    ]


def _p(value: float) -> str:
    return "<0.0001" if value < 0.00005 else f"{value:.4f}"


def write_evaluation(
    folder: Path,
    evaluation: Evaluation,
    verdicts: Iterable[QuestionVerdict],
    literals: Iterable[LiteralUse] = (),
) -> None:
    """Writes evaluation.parquet, literals.parquet and, last, evaluation.json into `folder`."""
    rows = sorted(verdicts, key=lambda v: (v.corpus, v.question_id, v.candidate))
    judged = arrow_schema(QuestionVerdict)
    write_records(folder / VERDICTS_FILE, rows, judged, metadata=evaluation.versions)
    used = arrow_schema(LiteralUse)
    write_records(folder / LITERALS_FILE, literals, used, metadata=evaluation.versions)
    write_bytes(folder / EVALUATION_FILE, msgspec.json.format(msgspec.json.encode(evaluation)))


def iter_metrics(evaluation: Evaluation) -> Iterator[dict[str, object]]:
    """One flat record a metric, for a JSON-lines log.

    Keys: `evaluation`, `metric`, `by` and `group` (`bucket` and `short`; empty and `all`), `value`;
    shares have `low` and `high` (95 %, by question), those of EX `n` too. What was not measured has
    no line.
    """

    def line(metric: str, value: object, **more: object) -> dict[str, object]:
        named = {"evaluation": evaluation.name, "metric": metric, "by": "", "group": "all"}
        return {**named, "value": value, **more}

    for score in evaluation.scores:
        of = {"by": score.by, "group": score.name}
        for rule, share in (
            (evaluation.official_name, score.official),
            ("strict@1", score.strict),
            ("hidden@1", score.hidden),
        ):
            if share is not None and share.value is not None:
                interval = {"low": share.low, "high": share.high, "n": share.total}
                yield line(f"ex/{rule}", share.value, **of, **interval)
        yield line("unscored", score.unscored, **of)
    behaviour = msgspec.to_builtins(evaluation.behaviour) if evaluation.behaviour else {}
    intervals = {f"behaviour/{key}": ends for key, ends in behaviour.get("intervals", {}).items()}
    for prefix, values in (
        ("behaviour", behaviour),
        ("ended_by", behaviour.get("ended_by", {})),
        ("literals", evaluation.literals),
        ("equal_under", evaluation.rules),
    ):
        for key, value in values.items():
            if isinstance(value, int | float):
                low, high = intervals.get(f"{prefix}/{key}", (None, None))
                ends = {} if low is None else {"low": low, "high": high}
                yield line(f"{prefix}/{key}", value, **ends)
