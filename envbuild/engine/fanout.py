"""One function over many shards, results in shard order, whatever the engine and its workers.

Not a scheduler: the unit of work is a shard worth a few tenths of a second, and a function that
gives the same result for the same shard gives the same results for any number of workers.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Protocol, TypeVar

from envbuild.errors import UnknownNameError

S = TypeVar("S")
R = TypeVar("R")


class Engine(Protocol):
    """What an engine module offers as its `run`."""

    def __call__(
        self,
        function: Callable[[S], R],
        shards: Iterable[S],
        *,
        workers: int,
        on_crash: Callable[[S, str], R] | None,
    ) -> Iterator[R]: ...


ENGINES = {
    "local": "envbuild.engine.local:run_local",
    "ray": "envbuild.engine.ray_tasks:run_ray",
}


def run_shards(
    function: Callable[[S], R],
    shards: Iterable[S],
    *,
    workers: int | None = None,
    engine: str = "local",
    on_crash: Callable[[S, str], R] | None = None,
) -> Iterator[R]:
    """The results of `function`, one a shard, in the order of `shards`.

    `function` is a top-level function of an importable module; `shards` is read lazily, a few
    ahead of the results. `workers` None means one a core. What `function` raises is raised here.
    A worker that dies (a segmentation fault, the out-of-memory killer) costs its shard one retry;
    when it dies again, `on_crash(shard, reason)` stands in for the result, and without `on_crash`
    WorkerError is raised. The other shards go on. Raises UnknownNameError for an unknown engine.
    """
    return load_engine(engine)(
        function, shards, workers=workers or available_cores(), on_crash=on_crash
    )


def available_cores() -> int:
    """Cores this process may use, at least 1."""
    try:
        return len(os.sched_getaffinity(0)) or 1
    except AttributeError:  # macOS has no affinity
        return os.cpu_count() or 1


def load_engine(name: str) -> Engine:
    """The engine registered under `name`, imported only now.

    Raises UnknownNameError for another name, MissingDependencyError where it is not installed.
    """
    if name not in ENGINES:
        raise UnknownNameError("engine", name, ENGINES)
    module, _, attribute = ENGINES[name].partition(":")
    engine: Any = getattr(import_module(module), attribute)
    return engine  # type: ignore[no-any-return]  # the table's strings carry no types
