"""An evaluation put together from judged answers: the files and the page it leaves."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from envbuild.evaluate.episodes import JudgedEpisode, describe_behaviour, summarize_ledger
from envbuild.evaluate.statistics import VERDICTS_FILE, score_all, score_by, share_of, size_group
from envbuild.io.files import write_bytes
from envbuild.io.pages import embed_json
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.records.episode import Episode
from envbuild.records.evaluation import Evaluation, LiteralUse, QuestionVerdict, Rung, Score
from envbuild.sql.connect import VERSIONS

# One self-contained HTML page of an evaluation: no network, no other file.


GROUPS = ("bucket", "difficulty", "size")


def render_page(
    evaluation: Evaluation,
    verdicts: Iterable[QuestionVerdict],
    episodes: Iterable[Episode] = (),
    *,
    groups: Mapping[str, Sequence[int]],
) -> str:
    """The page: bars with intervals, the ladder, rules, and every wrong answer with its episode.

    `groups` maps a chart's title to positions in `evaluation.scores`.
    """
    wrong = [v for v in verdicts if not v.official_correct]
    wanted = {v.episode_id for v in wrong if v.episode_id}
    document: dict[str, Any] = {
        "evaluation": evaluation,
        "groups": {title: list(places) for title, places in groups.items() if places},
        "wrong": [
            {
                name: getattr(v, name)
                for name in (
                    "question_id",
                    "db_id",
                    "question",
                    "predicted_sql",
                    "gold_sql",
                    "official",
                    "reason",
                    "episode_id",
                )
            }
            for v in wrong
        ],
        "episodes": {
            episode.episode_id: {
                "ended_by": episode.ended_by,
                "sql": episode.sql,
                "turns": [
                    {"kind": t.kind, "completion": t.completion, "observation": t.observation}
                    for t in episode.turns
                ],
            }
            for episode in episodes
            if episode.episode_id in wanted
        },
    }
    template = files("envbuild.evaluate").joinpath("page.html").read_text(encoding="utf-8")
    return template.replace("@DOCUMENT@", embed_json(document))


# An evaluation put together from judged answers, and the files it leaves.


EVALUATION_FILE = "evaluation.json"
LITERALS_FILE = "literals.parquet"


def evaluate_answers(
    verdicts: Sequence[QuestionVerdict],
    *,
    name: str,
    said: str,
    episodes: Sequence[Episode] = (),
    judged: Sequence[JudgedEpisode] = (),
    rules: dict[str, int] | None = None,
) -> Evaluation:
    """Scores whole and by group, behaviour and literals where there are episodes."""
    literals = [use for one in judged for use in one.literals]
    return Evaluation(
        name=name,
        policy=next((v.policy for v in verdicts if v.policy), ""),
        questions=len({v.key for v in verdicts}),
        said=said,
        official_name=verdicts[0].official_name if verdicts else "official@1",
        scores=(score_all(verdicts), *(score for _, score in iter_groups(verdicts))),
        reasons=dict(sorted(Counter(v.official for v in verdicts).items())),
        behaviour=(
            describe_behaviour(
                episodes,
                [one.opened_all for one in judged],
                [one.verdict.outcome for one in judged],
                [one.verdict.key for one in judged],
            )
            if episodes
            else None
        ),
        literals=summarize_ledger(literals) if literals else {},
        rules=rules or {},
        disagreements=count_disagreements(verdicts, rules or {}),
        versions=VERSIONS,
    )


def count_disagreements(
    verdicts: Sequence[QuestionVerdict], rules: Iterable[str]
) -> dict[str, dict[str, int]]:
    """Rule -> each other rule -> answers that are equal under the first and not under the other."""
    sets = [set(verdict.equal_under) for verdict in verdicts]
    return {
        one: {
            other: sum(one in s and other not in s for s in sets) for other in rules if other != one
        }
        for one in rules
    }


def iter_groups(verdicts: Sequence[QuestionVerdict]) -> Iterator[tuple[str, Score]]:
    """(chart, score) by schema, bucket, difficulty and size, in `Evaluation.scores`' order."""
    for chart, key in (
        ("schema", lambda v: v.schema if v.episode_id else ""),
        ("bucket", lambda v: v.bucket),
        ("difficulty", lambda v: v.difficulty),
        ("size", size_group),
    ):
        for score in score_by(verdicts, key, by=chart):
            yield chart, score


def chart_groups(verdicts: Sequence[QuestionVerdict]) -> dict[str, list[int]]:
    """Chart title -> positions in `Evaluation.scores`, for the page."""
    groups: dict[str, list[int]] = {}
    for place, (chart, _) in enumerate(iter_groups(verdicts), 1):
        groups.setdefault(chart, []).append(place)
    return groups


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
