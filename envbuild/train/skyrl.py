"""SkyRL 0.4 (Python 3.12): its generator over token ids, each turn with its own limit, and groups
scored together.

A `skyrl_gym` environment would see one episode and never its group, and SkyRL's own generator gives
all turns one limit.
"""

import asyncio
from collections import Counter
from functools import partial
from typing import Any
from uuid import uuid4

from envbuild.env.chat import HubTokenizer
from envbuild.env.episode import TokenEpisode
from envbuild.errors import MissingDependencyError
from envbuild.records.episode import TokenRequest
from envbuild.train.group_barrier import GroupBarrier, play
from envbuild.train.trainer_env import (
    NAME,
    EpisodeSpec,
    ScoredEpisode,
    candidate_number,
    metrics,
    shared_trainer_env,
)

try:
    from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInput
    from skyrl.backends.skyrl_train.inference_servers.engine_utils import (
        get_sampling_params_for_backend,
    )
    from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator, TrajectoryOutput
    from skyrl_gym.envs.registration import register, registry
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the SkyRL adapter", str(e.name), "pip install 'skyrl==0.4.*' '.[skyrl]' in a checkout"
    ) from e

if NAME not in registry:  # SkyRL asks the rows' environment how their metrics are averaged
    register(id=NAME, entry_point="skyrl_gym.envs.base_text_env:BaseTextEnv")


class EpisodeGenerator(SkyRLGymGenerator):  # type: ignore[misc]  # untyped here: not installed
    """SkyRL's generator; rows of other environments go SkyRL's own way.

    $ENVBUILD_MANIFEST names the manifest.
    """

    _barrier: GroupBarrier | None = None

    async def generate(self, input_batch: Any, **options: Any) -> Any:
        """Generates a batch; a group's members meet in it."""
        ids = input_batch.get("trajectory_ids") or ()
        sizes = set(Counter(one.instance_id for one in ids).values())
        whole = len(sizes) == 1
        self._barrier = GroupBarrier(shared_trainer_env(), sizes.pop()) if whole else None
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
        if env_class != NAME:
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
        playing = self._play(env_extras["env_json"], sampling_params, trajectory_id, cache_salt)
        if self._barrier is None or trajectory_id is None:
            finish = shared_trainer_env().finish_alone
            (scored,) = await asyncio.to_thread(finish, [await playing])
        else:
            group, member = trajectory_id.instance_id, trajectory_id.repetition_id
            scored = await self._barrier.meet(group, member, playing)
        return _output(scored)

    async def _play(
        self,
        env_json: str,
        sampling_params: dict[str, Any] | None,
        trajectory_id: Any,
        cache_salt: str | None,
    ) -> TokenEpisode:
        config, client = self.generator_cfg, self.inference_engine_client
        base = sampling_params or get_sampling_params_for_backend(
            config.inference_engine.backend, config.sampling_params
        )
        session = uuid4().hex if trajectory_id is None else trajectory_id.to_string()

        async def sample(request: TokenRequest) -> Any:
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
            answer = await client.generate(asked, model=self.policy_model_name)
            logprobs = answer.get("response_logprobs")
            return answer["response_ids"][0], logprobs[0] if logprobs else None

        start = partial(
            shared_trainer_env().start_tokens,
            EpisodeSpec.from_json(env_json),
            tokenizer=HubTokenizer(self.tokenizer),
            candidate=candidate_number(getattr(trajectory_id, "repetition_id", None)),
        )
        try:
            return await play(start, sample)
        finally:
            await client.finish_session(session)


def _output(scored: ScoredEpisode) -> TrajectoryOutput:
    episode, breakdown = scored.episode, scored.breakdown
    return TrajectoryOutput(
        response_ids=list(episode.response_ids),
        # the last token carries the reward
        reward=[0.0] * (len(episode.response_ids) - 1) + [breakdown.reward or 0.0],
        stop_reason="stop",
        # without a scorable gold there is nothing to learn: no token counts
        loss_mask=[0 if breakdown.reward is None else m for m in episode.response_mask],
        prompt_ids=list(episode.prompt_ids),
        rollout_logprobs=list(episode.response_logprobs) or None,
        env_metrics=metrics(scored),
    )
