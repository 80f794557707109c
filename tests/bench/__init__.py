"""Throughput of each stage on this machine, beside a peer where one is installed.

Our way and the peer's way take turns, round by round, so that a machine whose speed drifts does
not decide the ratio. CPU time is what to quote.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from statistics import median
from typing import Any

from envbuild.errors import UnknownNameError

STAGES = {
    "episode": "episode:episode",
    "gold_tables": "stages:gold_tables",
    "judge": "judge:judge_pairs",
    "manifest": "stages:manifest",
    "mask": "stages:mask",
    "materialize": "stages:materialize",
    "predictions": "judge:predictions",
    "preflight": "stages:preflight",
    "read_json": "stages:read_json",
    "signal": "stages:signal",
}
"""Stage -> module and function, which takes the number of rounds."""

Measured = Mapping[str, Any]
"""One line of a stage's table: `what`, its figures, and `ratio` where there is a peer."""


def measure_stage(name: str, *, rounds: int) -> Sequence[Measured]:
    """The figures of one stage, medians over rounds. Raises UnknownNameError for another name."""
    if name not in STAGES:
        raise UnknownNameError("stage", name, STAGES)
    module, _, function = STAGES[name].partition(":")
    found: Sequence[Measured] = getattr(import_module(f"{__name__}.{module}"), function)(rounds)
    return found


def take_turns(
    ways: Mapping[str, tuple[Callable[[], object], int]], rounds: int
) -> dict[str, list[float]]:
    """Microseconds of CPU a unit of each (way, units it works on), round by round."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (way, units) in ways.items():
            started = time.process_time()
            way()
            taken[name].append((time.process_time() - started) / units * 1e6)
    return taken


def line_of(
    what: str, taken: Mapping[str, list[float]], own: str, peer: str, *, unit: str
) -> Measured:
    """Our way beside a peer's: medians, and the median of the rounds' ratios."""
    ratios = [theirs / ours for theirs, ours in zip(taken[peer], taken[own], strict=True)]
    return {
        "what": what,
        f"envbuild_us_a_{unit}": round(median(taken[own]), 1),
        "peer": peer,
        f"peer_us_a_{unit}": round(median(taken[peer]), 1),
        "ratio": round(median(ratios), 2),
    }
