"""One scripted group, and what envbuild itself makes of it: the measure of every adapter."""

from pathlib import Path
from typing import Any

import msgspec

from envbuild.env.environment import Environment
from envbuild.env.reward import with_consensus
from envbuild.records.episode import Episode, RewardBreakdown
from envbuild.testing.policies import ByteTokenizer
from envbuild.train.trainer_env import EpisodeSpec, TrainerEnv
from tests.adapters.questions import QUESTIONS, call

ROW = "towns/q3"
GOLD = QUESTIONS[3][1]
NEAR = "SELECT shop.name FROM shop JOIN town ON shop.town = town.id"
GROUP: tuple[tuple[str, ...], ...] = (
    (
        f"<think>\nWhat is there? {{not a call}}\n</think>\n{call('list_tables')}",
        call("describe_table", table_name="shop") + "\n" + call("run_query", sql=GOLD),
        call("submit_sql", sql=GOLD),
    ),
    (call("run_query", sql=NEAR), call("submit_sql", sql=f"{NEAR} ;")),
    (call("submit_sql", sql=f"{NEAR} WHERE 1"),),
    ("I give up.", *["no call at all"] * 5, "SELECT name FROM"),
)
"""Right; wrong; wrong with the same result (so the two have consensus); nothing that parses."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What must be equal, whoever drove the episode."""

    turns: tuple[tuple[str, str], ...] = ()
    """Completion and observation of each turn."""
    sql: str = ""
    ended_by: str
    breakdown: dict[str, Any]
    prompt_ids: tuple[int, ...] = ()
    response_ids: tuple[int, ...] = ()
    response_mask: tuple[int, ...] = ()


def spec_json(env: TrainerEnv) -> str:
    """The `env_json` of the group's row."""
    spec = EpisodeSpec(row_id=ROW, manifest_sha256=env.manifest_sha256)
    return msgspec.json.encode(spec).decode()


def outcome(episode: Episode, breakdown: RewardBreakdown) -> Outcome:
    return Outcome(
        turns=tuple((turn.completion, turn.observation) for turn in episode.turns),
        sql=episode.sql,
        ended_by=str(episode.ended_by),
        breakdown=msgspec.to_builtins(breakdown),
        prompt_ids=episode.prompt_ids,
        response_ids=episode.response_ids,
        response_mask=episode.response_mask,
    )


def reference(manifest: Path, *, consensus: bool, tokens: bool) -> list[Outcome]:
    """The group as envbuild's own environment plays it, no adapter involved."""
    environment = Environment.open(manifest)
    tokenizer = ByteTokenizer()
    episodes, breakdowns = [], []
    for candidate, completions in enumerate(GROUP):
        running: Any = (
            environment.new_token_episode(ROW, tokenizer=tokenizer, candidate=candidate)
            if tokens
            else environment.new_episode(ROW, candidate=candidate)
        )
        for completion in completions:
            running.feed(tokenizer.encode(f"{completion}<|im_end|>") if tokens else completion)
        episodes.append(running.record())
        running.close()
        breakdowns.append(environment.score(episodes[-1]))
    if consensus:
        breakdowns = with_consensus(breakdowns)
    return [outcome(e, b) for e, b in zip(episodes, breakdowns, strict=True)]
