"""An evaluation put together from judged answers: the files and the page it leaves."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from envbuild.evaluate.episodes import JudgedEpisode, describe_behaviour, summarize_ledger
from envbuild.evaluate.statistics import VERDICTS_FILE, score_by, score_group, share_of, size_group
from envbuild.io.files import write_bytes
from envbuild.io.pages import embed_json
from envbuild.io.pages import render_page as render_template
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.records.corpus import interval, percent
from envbuild.records.episode import Episode
from envbuild.records.evaluation import Evaluation, LiteralUse, QuestionVerdict, Rung
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
) -> str:
    """One self-contained HTML page: no network, no other file.

    Bars with intervals, the ladder, rules, and every wrong answer with its episode: `episodes`
    are gone through once, and only those are kept.
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
