"""SkyRL: one episode as a `skyrl_gym` text environment, in both of its multi-turn modes.

    conversation  SkyRL puts observations into the model's chat template
                  (`use_conversation_multi_turn=true`)
    string        SkyRL appends what the environment says as it is, after dropping the
                  end-of-message token that the policy sampled (`false`); the delimiters
                  are then the environment's own

An environment sees one episode, never its group: no consensus bonus is paid here.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from envbuild.env.episode import TextEpisode
from envbuild.errors import MissingDependencyError, StateError, UnknownNameError
from envbuild.train.trainer_env import (
    NAME,
    EpisodeSpec,
    ScoredEpisode,
    candidate_number,
    metrics,
    shared_trainer_env,
)

try:
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
    from skyrl_gym.envs.registration import register, registry
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "the SkyRL adapter", str(e.name), "pip install '.[skyrl]' in a checkout"
    ) from e

MODES = ("conversation", "string")


def register_environment(
    *, mode: str = "conversation", manifest: str | None = None, rerun_golds: bool = False
) -> None:
    """Registers the environment; call it in the Ray task that starts the trainer.

    SkyRL has no configuration for an environment it does not know, so what it needs is given here:
    the `mode` that `use_conversation_multi_turn` asks for, the manifest ($ENVBUILD_MANIFEST), and
    whether golds are run here instead of taken from it ($ENVBUILD_RERUN_GOLDS).
    """
    if mode not in MODES:
        raise UnknownNameError("multi-turn mode", mode, MODES)
    registry.pop(NAME, None)
    register(
        id=NAME,
        entry_point="envbuild.train.skyrl:EpisodeEnv",
        kwargs={"mode": mode, "manifest": manifest, "rerun_golds": rerun_golds},
    )


class EpisodeEnv(BaseTextEnv):  # type: ignore[misc]  # skyrl-gym is absent where types are checked
    """One episode of a manifest row: `init`, then `step` until `done`."""

    def __init__(
        self,
        env_config: Any,
        extras: Mapping[str, Any],
        *,
        mode: str = "conversation",
        **shared: Any,
    ) -> None:
        """The keywords are those of `register_environment`; `env_config` is not used."""
        super().__init__()
        self.mode = mode
        self.trainer_env = shared_trainer_env(**shared)
        self.asked = EpisodeSpec.from_json(extras["env_json"])
        self.candidate = candidate_number(extras.get("candidate"))
        self.episode: TextEpisode | None = None
        self.scored: ScoredEpisode | None = None

    def init(self, prompt: Any) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The episode's own opening messages; those of the data set are the same ones."""
        self.episode = self.trainer_env.start_text(self.asked, candidate=self.candidate)
        self.scored = None
        return self.episode.messages, {"row_id": self.asked.row_id}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Takes a completion; the reward comes with the last one, 0.0 before."""
        episode = self.episode
        if episode is None:
            raise StateError("init comes before step")
        before = len(episode.context)
        observation = episode.feed(action)
        if not episode.over:
            if self.mode == "string":
                added = episode.context[before:]
                observation = added[added.index(episode.chat.message_end) :]
            return BaseTextEnvStepOutput(
                observations=[{"role": "user", "content": observation}],
                reward=0.0,
                done=False,
                metadata={"kind": episode.kind},
            )
        (self.scored,) = self.trainer_env.finish_alone([episode])
        breakdown = msgspec.to_builtins(self.scored.breakdown)
        ended_by = str(self.scored.episode.ended_by)
        return BaseTextEnvStepOutput(
            observations=[],
            reward=breakdown["reward"] or 0.0,  # SkyRL knows no missing reward; metadata does
            done=True,
            metadata={**breakdown, "ended_by": ended_by, "group_seen": False},
        )

    def close(self) -> None:
        """Closes the database, also of an episode that was cut off."""
        if self.episode is not None:
            self.episode.close()

    def get_metrics(self) -> dict[str, float]:
        """Numbers of a finished episode; SkyRL averages them."""
        return {} if self.scored is None else metrics(self.scored)
