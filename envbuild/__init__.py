"""envbuild: training databases, question pools and environments for text-to-SQL agents.

    from envbuild import Agent, Environment

The two are imported when they are first asked for, so that `import envbuild` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envbuild.env.agent import Agent as Agent
    from envbuild.env.environment import Environment as Environment

__version__ = "0.1.0"

_LATE = {"Agent": "envbuild.env.agent", "Environment": "envbuild.env.environment"}


def __dir__() -> list[str]:
    return sorted((*globals(), *_LATE))


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(_LATE[name]), name)
    raise AttributeError(f"module 'envbuild' has no attribute {name!r}")
