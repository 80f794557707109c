"""verl 0.9: an agent loop and an advantage estimator, found by entry point."""

import asyncio
from collections import defaultdict
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import msgspec

from envbuild.env.chat import HubTokenizer
from envbuild.env.episode import TokenEpisode
from envbuild.env.reward import group_advantages
from envbuild.errors import MissingDependencyError
from envbuild.records.manifest import Recipe
from envbuild.train.group_barrier import GroupBarrier
from envbuild.train.layouts import VERL_AGENT, EpisodeSpec
from envbuild.train.trainer_env import (
    ScoredEpisode,
    TrainerEnv,
    candidate_number,
    shared_trainer_env,
)

# The published advantages as a verl estimator: `algorithm.adv_estimator=envbuild`.


try:
    import torch
    from verl.trainer.ppo.core_algos import register_adv_est
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the verl adapter",
        str(e.name),
        "pip install torch, then pip install '.[verl]' in a checkout",
    ) from e

NAME = "envbuild"
PUBLISHED = Recipe(name="published", model="")
"""The clip and the weight are common to both published recipes."""


@register_adv_est(NAME)  # type: ignore[untyped-decorator]  # verl is absent where types are checked
def shaped_grpo(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns of shape (episodes, response length), one value an episode.

    Reward less its group's mean, clipped, negative ones weighted; `index` names the group.
    """
    scores = token_level_rewards.sum(dim=-1)
    members: defaultdict[Any, list[int]] = defaultdict(list)
    for place, group in enumerate(index):
        members[group].append(place)
    advantages = torch.zeros_like(scores)
    for places in members.values():
        shaped = group_advantages(
            [float(scores[place]) for place in places],
            clip=PUBLISHED.advantage_clip,
            negative_weight=PUBLISHED.negative_weight,
        )
        advantages[places] = torch.tensor(shaped, dtype=scores.dtype, device=scores.device)
    spread = advantages.unsqueeze(-1) * response_mask
    return spread, spread


# Episodes as a verl agent loop: token ids in, token ids out, nothing rendered again.
#
# verl's v1 trainer runs a group's members as tasks of one event loop, so they wait for each other
# here and the consensus bonus is theirs. Where a member comes without its group (the older
# trainer, validation), it is scored alone and its record says so.


try:
    from verl.experimental.agent_loop.agent_loop import (
        AgentLoopBase,
        AgentLoopMetrics,
        AgentLoopOutput,
        register,
    )
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the verl adapter",
        str(e.name),
        "pip install torch, then pip install '.[verl]' in a checkout",
    ) from e

SIBLING_SECONDS = 1800.0
"""How long a member waits for its group before it is scored alone."""

_Barriers = dict[TrainerEnv, GroupBarrier[TokenEpisode, ScoredEpisode]]
_barriers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Barriers] = WeakKeyDictionary()
"""The barriers of each event loop, one a manifest: verl makes an agent loop for every episode."""


@register(VERL_AGENT)
class EpisodeAgentLoop(AgentLoopBase):  # type: ignore[misc]  # verl is not installed where types are checked
    """One episode of a manifest row."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Plays the row's episode on verl's own generation and scores it."""
        rollouts = shared_trainer_env(
            self.data_config.get("envbuild_manifest"),
            rerun_golds=bool(self.data_config.get("envbuild_rerun_golds")),
        )
        ticket = msgspec.json.decode(row["env_json"], type=EpisodeSpec)
        barrier = self._barrier(rollouts)
        group = _group_of(row)
        try:
            episode = await self._play(rollouts, ticket, sampling_params, row)
        except BaseException:
            if group:
                barrier.leave(group)
            raise
        if group:
            played = await barrier.join(group, int(row["session_id"]), episode)
        else:
            (played,) = await asyncio.to_thread(rollouts.finish_alone, [episode])
        return _output(played)

    async def _play(
        self,
        rollouts: TrainerEnv,
        ticket: EpisodeSpec,
        sampling_params: dict[str, Any],
        row: dict[str, Any],
    ) -> TokenEpisode:
        step = row.get("global_steps")
        episode = await asyncio.to_thread(
            rollouts.start_tokens,
            ticket,
            tokenizer=HubTokenizer(self.tokenizer),
            candidate=candidate_number(row.get("session_id")),
            # verl counts steps from 1
            step=None if step is None else max(0, int(step) - 1),
        )
        request_id = uuid4().hex
        while (request := episode.next_request()) is not None:
            sampled = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=list(request.context),
                sampling_params={
                    **sampling_params,
                    "max_tokens": request.max_new_tokens,
                    "stop_token_ids": list(request.stop_ids),
                },
            )
            await asyncio.to_thread(episode.feed, sampled.token_ids, sampled.log_probs)
        return episode

    def _barrier(self, rollouts: TrainerEnv) -> GroupBarrier[TokenEpisode, ScoredEpisode]:
        barriers = _barriers.setdefault(asyncio.get_running_loop(), {})
        if rollouts not in barriers:
            barriers[rollouts] = GroupBarrier(
                size=self.rollout_config.n,
                together=rollouts.finish_group,
                alone=rollouts.finish_alone,
                timeout_s=SIBLING_SECONDS,
            )
        return barriers[rollouts]


def _group_of(row: dict[str, Any]) -> str:
    """The group's name where its members meet; empty where this one is alone."""
    if "uid" not in row or "session_id" not in row or row["extra_info"]["split"] == "test":
        return ""
    return str(row["uid"])


def _output(played: ScoredEpisode) -> AgentLoopOutput:
    episode, breakdown = played.episode, played.breakdown
    scored = breakdown.reward is not None
    return AgentLoopOutput(
        prompt_ids=list(episode.prompt_ids),
        response_ids=list(episode.response_ids),
        # without a scorable gold there is nothing to learn: no token counts
        response_mask=[m if scored else 0 for m in episode.response_mask],
        response_logprobs=list(episode.response_logprobs) or None,
        reward_score=breakdown.reward if scored else 0.0,
        num_turns=2 * len(episode.turns),
        metrics=AgentLoopMetrics(),
        extra_fields={
            "reward_extra_info": {
                "tier": str(breakdown.tier),
                "f1": breakdown.f1,
                "join_share": breakdown.join_share,
                "consensus": breakdown.consensus,
                "ended_by": str(episode.ended_by),
                "unknown_logprobs": episode.unknown_logprobs,
                "scored": scored,
                "group_seen": played.group_seen,
            },
            "env_breakdown": msgspec.json.encode(breakdown).decode(),
        },
    )
