"""One self-contained HTML page to read episodes turn by turn: no network, no other file."""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from envbuild.io.pages import embed_json
from envbuild.records.episode import Episode, RewardBreakdown
from envbuild.records.manifest import ManifestRow


def render_episodes(
    name: str,
    episodes: Iterable[Episode],
    *,
    rows: Mapping[str, ManifestRow],
    rewards: Mapping[str, RewardBreakdown],
) -> str:
    """The page; `rows` by row_id and `rewards` by episode_id may lack any of them."""
    document = {
        "name": name,
        "episodes": [
            _plain(episode, rows.get(episode.row_id), rewards.get(episode.episode_id))
            for episode in episodes
        ],
    }
    template = files("envbuild.rollout").joinpath("page.html").read_text(encoding="utf-8")
    return template.replace("@DOCUMENT@", embed_json(document))


def _plain(
    episode: Episode, row: ManifestRow | None, reward: RewardBreakdown | None
) -> dict[str, Any]:
    return {
        "id": episode.episode_id,
        "policy": episode.policy,
        "ended_by": episode.ended_by,
        "gated": episode.gated,
        "error": episode.error,
        "prompt": episode.prompt,
        "sql": episode.sql,
        "turns": [
            {
                "kind": turn.kind,
                "completion": turn.completion,
                "observation": turn.observation,
                "tokens": turn.completion_tokens,
                "truncated": turn.truncated,
                "failed": sum(call.failed for call in turn.calls),
                "calls": len(turn.calls),
            }
            for turn in episode.turns
        ],
        "question": row.question if row else "",
        "evidence": row.evidence if row else "",
        "gold": row.gold_sql if row else "",
        "bucket": row.bucket if row else "",
        "db": row.db_id if row else "",
        "tables": len(row.tables) if row else 0,
        "reward": reward,
        "tier": reward.tier if reward else "",
    }
