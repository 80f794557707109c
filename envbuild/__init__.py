"""envbuild: training databases, question pools and environments for text-to-SQL agents.

    from envbuild import Agent, Environment, open_manifest

Each name is imported when it is first asked for, so that `import envbuild` costs nothing. These are
the public names; everything else may change.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envbuild.env.agent import Agent as Agent
    from envbuild.env.client import ServerGenerate as ServerGenerate
    from envbuild.env.client import WindowFullError as WindowFullError
    from envbuild.env.environment import Environment as Environment
    from envbuild.errors import EnvbuildError as EnvbuildError
    from envbuild.manifest.read import Manifest as Manifest
    from envbuild.manifest.read import open_manifest as open_manifest
    from envbuild.records.episode import Completion as Completion
    from envbuild.records.episode import Episode as Episode
    from envbuild.records.episode import EpisodeSettings as EpisodeSettings
    from envbuild.records.episode import RewardBreakdown as RewardBreakdown
    from envbuild.records.episode import RewardSettings as RewardSettings
    from envbuild.records.episode import TextRequest as TextRequest
    from envbuild.records.episode import TokenRequest as TokenRequest
    from envbuild.train.trainer_env import EpisodeSpec as EpisodeSpec
    from envbuild.train.trainer_env import TrainerEnv as TrainerEnv

__version__ = "0.2.0"

_EPISODES = "envbuild.records.episode"
_HOMES = {
    "Agent": "envbuild.env.agent",
    "Completion": _EPISODES,
    "EnvbuildError": "envbuild.errors",
    "Environment": "envbuild.env.environment",
    "Episode": _EPISODES,
    "EpisodeSettings": _EPISODES,
    "EpisodeSpec": "envbuild.train.trainer_env",
    "Manifest": "envbuild.manifest.read",
    "RewardBreakdown": _EPISODES,
    "RewardSettings": _EPISODES,
    "ServerGenerate": "envbuild.env.client",
    "TextRequest": _EPISODES,
    "TokenRequest": _EPISODES,
    "TrainerEnv": "envbuild.train.trainer_env",
    "WindowFullError": "envbuild.env.client",
    "open_manifest": "envbuild.manifest.read",
}

__all__ = ["__version__", *_HOMES]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'envbuild' has no attribute {name!r}")
