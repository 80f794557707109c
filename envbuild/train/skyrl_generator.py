"""SkyRL's generator over token ids: each turn's own limit, and groups scored together.

The environment of `skyrl.py` needs nothing but skyrl-gym and loses three things that this keeps:
a limit a turn, end-of-message tokens in the loss, and the consensus bonus. It wants SkyRL itself
(0.4, Python 3.12) and runs where the trainer's generator would.
"""

import asyncio
from collections import Counter
from typing import Any
from uuid import uuid4

import msgspec

from envbuild.env.chat import HubTokenizer
from envbuild.env.episode import TokenEpisode
from envbuild.errors import MissingDependencyError
from envbuild.train.group_barrier import GroupBarrier
from envbuild.train.layouts import ENV_CLASS, EpisodeSpec
from envbuild.train.trainer_env import ScoredEpisode, candidate_number, shared_trainer_env

try:
    from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInput
    from skyrl.backends.skyrl_train.inference_servers.engine_utils import (
        get_sampling_params_for_backend,
    )
    from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator, TrajectoryOutput
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the SkyRL generator", str(e.name), "pip install 'skyrl==0.4.*' '.[skyrl]' in a checkout"
    ) from e

SIBLING_SECONDS = 1800.0
"""How long a member waits for its group before it is scored alone."""


class EpisodeGenerator(SkyRLGymGenerator):  # type: ignore[misc]  # untyped here: not installed
    """SkyRL's generator; rows of other environments go SkyRL's own way."""

    _barrier: GroupBarrier[TokenEpisode, ScoredEpisode] | None = None

    async def generate(self, input_batch: Any, **options: Any) -> Any:
        """Generates a batch; a group's members meet in it."""
        ids = input_batch.get("trajectory_ids") or ()
        sizes = set(Counter(one.instance_id for one in ids).values())
        rollouts = shared_trainer_env()
        self._barrier = (
            GroupBarrier(
                size=sizes.pop(),
                together=rollouts.finish_group,
                alone=rollouts.finish_alone,
                timeout_s=SIBLING_SECONDS,
            )
            if len(sizes) == 1
            else None
        )
        return await super().generate(input_batch, **options)

    async def agent_loop(
        self,
        prompt: Any,
        env_class: str,
        env_extras: dict[str, Any],
        max_tokens: int,
        max_input_length: int,
        sampling_params: dict[str, Any] | None = None,
        trajectory_id: Any = None,
        cache_salt: str | None = None,
        **options: Any,
    ) -> Any:
        """One episode on SkyRL's inference engine."""
        if env_class != ENV_CLASS:
            return await super().agent_loop(
                prompt,
                env_class,
                env_extras,
                max_tokens,
                max_input_length,
                sampling_params=sampling_params,
                trajectory_id=trajectory_id,
                cache_salt=cache_salt,
                **options,
            )
        barrier = self._barrier if trajectory_id is not None else None
        try:
            episode = await self._play(env_extras, sampling_params, trajectory_id, cache_salt)
        except BaseException:
            if barrier is not None:
                barrier.leave(trajectory_id.instance_id)
            raise
        if barrier is None:
            (played,) = await asyncio.to_thread(shared_trainer_env().finish_alone, [episode])
        else:
            played = await barrier.join(
                trajectory_id.instance_id, trajectory_id.repetition_id, episode
            )
        return _output(played)

    async def _play(
        self,
        env_extras: dict[str, Any],
        sampling_params: dict[str, Any] | None,
        trajectory_id: Any,
        cache_salt: str | None,
    ) -> TokenEpisode:
        config = self.generator_cfg
        base = sampling_params or get_sampling_params_for_backend(
            config.inference_engine.backend, config.sampling_params
        )
        episode = await asyncio.to_thread(
            shared_trainer_env().start_tokens,
            msgspec.json.decode(env_extras["env_json"], type=EpisodeSpec),
            tokenizer=HubTokenizer(self.tokenizer),
            candidate=candidate_number(getattr(trajectory_id, "repetition_id", None)),
        )
        session = uuid4().hex if trajectory_id is None else trajectory_id.to_string()
        try:
            while (request := episode.next_request()) is not None:
                asked = InferenceEngineInput(
                    prompt_token_ids=[list(request.context)],
                    session_ids=[session],
                    sampling_params={
                        **base,
                        "max_tokens": request.max_new_tokens,
                        "stop_token_ids": list(request.stop_ids),
                    },
                    cache_salt=cache_salt,
                )
                answer = await self.inference_engine_client.generate(
                    asked, model=self.policy_model_name
                )
                logprobs = answer.get("response_logprobs")
                await asyncio.to_thread(
                    episode.feed, answer["response_ids"][0], logprobs[0] if logprobs else None
                )
        finally:
            await self.inference_engine_client.finish_session(session)
        return episode


def _output(played: ScoredEpisode) -> TrajectoryOutput:
    episode, breakdown = played.episode, played.breakdown
    scored = breakdown.reward is not None
    return TrajectoryOutput(
        response_ids=list(episode.response_ids),
        # the last token carries the reward
        reward=[0.0] * (len(episode.response_ids) - 1) + [breakdown.reward or 0.0],
        stop_reason="stop",
        # without a scorable gold there is nothing to learn: no token counts
        loss_mask=[m if scored else 0 for m in episode.response_mask],
        prompt_ids=list(episode.prompt_ids),
        rollout_logprobs=list(episode.response_logprobs) or None,
        env_metrics={
            "equivalent": float(breakdown.tier == "equivalent"),
            "scored": float(scored),
            "f1": breakdown.f1,
            "consensus": breakdown.consensus,
            "turns": float(len(episode.turns)),
            "submitted": float(episode.ended_by == "submit_sql"),
            "unknown_logprobs": float(episode.unknown_logprobs),
            "group_seen": float(played.group_seen),
        },
    )
