"""verl 0.9: an agent loop and an advantage estimator; verl imports this by the entry point.

Token ids go in and come out, nothing is rendered again. verl's v1 trainer runs a group's members
as tasks of one event loop, so they wait for each other here and the consensus bonus is theirs.
Where a member comes without its group (the older trainer, validation), it is scored alone and its
record says so.
"""

import asyncio
from collections import defaultdict
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import msgspec

from envbuild.env.chat import HubTokenizer
from envbuild.env.reward import group_advantages
from envbuild.errors import MissingDependencyError
from envbuild.records.episode import TokenRequest
from envbuild.records.manifest import Recipe
from envbuild.train.group_barrier import GroupBarrier, play
from envbuild.train.trainer_env import (
    NAME,
    EpisodeSpec,
    ScoredEpisode,
    TrainerEnv,
    candidate_number,
    metrics,
    shared_trainer_env,
)

try:
    import torch
    from verl.experimental.agent_loop.agent_loop import (
        AgentLoopBase,
        AgentLoopMetrics,
        AgentLoopOutput,
        register,
    )
    from verl.trainer.ppo.core_algos import register_adv_est
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the verl adapter",
        str(e.name),
        "pip install torch, then pip install '.[verl]' in a checkout",
    ) from e

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


_barriers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[TrainerEnv, GroupBarrier]]
_barriers = WeakKeyDictionary()
"""The barriers of each event loop, one a manifest: verl makes an agent loop for every episode."""


@register(NAME)
class EpisodeAgentLoop(AgentLoopBase):  # type: ignore[misc]  # verl is not installed where types are checked
    """One episode of a manifest row."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Plays the row's episode on verl's own generation and scores it."""
        env = shared_trainer_env(
            self.data_config.get("envbuild_manifest"),
            rerun_golds=bool(self.data_config.get("envbuild_rerun_golds")),
        )
        session, step, request_id = row.get("session_id"), row.get("global_steps"), uuid4().hex

        async def sample(request: TokenRequest) -> Any:
            sampled = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=list(request.context),
                sampling_params={
                    **sampling_params,
                    "max_tokens": request.max_new_tokens,
                    "stop_token_ids": list(request.stop_ids),
                },
            )
            return sampled.token_ids, sampled.log_probs

        start = partial(
            env.start_tokens,
            EpisodeSpec.from_json(row["env_json"]),
            tokenizer=HubTokenizer(self.tokenizer),
            candidate=candidate_number(session),
            # verl counts steps from 1
            step=None if step is None else max(0, int(step) - 1),
        )
        playing = play(start, sample)
        if session is None or "uid" not in row or row["extra_info"]["split"] == "test":
            (scored,) = await asyncio.to_thread(env.finish_alone, [await playing])
            return _output(scored)
        barriers = _barriers.setdefault(asyncio.get_running_loop(), {})
        if env not in barriers:
            barriers[env] = GroupBarrier(env, self.rollout_config.n)
        return _output(await barriers[env].meet(str(row["uid"]), int(session), playing))


def _output(scored: ScoredEpisode) -> AgentLoopOutput:
    episode, breakdown = scored.episode, scored.breakdown
    return AgentLoopOutput(
        prompt_ids=list(episode.prompt_ids),
        response_ids=list(episode.response_ids),
        # without a scorable gold there is nothing to learn: no token counts
        response_mask=[0 if breakdown.reward is None else m for m in episode.response_mask],
        response_logprobs=list(episode.response_logprobs) or None,
        reward_score=breakdown.reward or 0.0,
        num_turns=2 * len(episode.turns),
        metrics=AgentLoopMetrics(),
        extra_fields={
            "reward_extra_info": {
                **metrics(scored),
                "tier": str(breakdown.tier),
                "ended_by": str(episode.ended_by),
            },
            "env_breakdown": msgspec.json.encode(breakdown).decode(),
        },
    )
