"""Throughput of each stage on this machine, beside a peer where one is installed.

One module a stage, each with `measure(rounds)`: our way and the peer's way take turns, round by
round, so that a machine whose speed drifts does not decide the ratio. CPU time is what to quote.
"""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

from envbuild.errors import UnknownNameError

_NO_STAGES = ("__main__", "inputs", "sqlglot_ways")

Measured = Mapping[str, Any]
"""One line of a stage's table: `what`, its figures, and `ratio` where there is a peer."""


def stage_names() -> list[str]:
    """The stages that can be measured."""
    names = {module.name for module in pkgutil.iter_modules(__path__)}
    return sorted(names.difference(_NO_STAGES))


def measure_stage(name: str, *, rounds: int) -> Sequence[Measured]:
    """The figures of one stage, medians over rounds. Raises UnknownNameError for another name."""
    if name not in stage_names():
        raise UnknownNameError("stage", name, stage_names())
    found: Sequence[Measured] = importlib.import_module(f"{__name__}.{name}").measure(rounds)
    return found
