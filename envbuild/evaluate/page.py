"""One self-contained HTML page of an evaluation: no network, no other file."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from envbuild.io.pages import embed_json
from envbuild.records.episode import Episode
from envbuild.records.evaluation import Evaluation, QuestionVerdict

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
