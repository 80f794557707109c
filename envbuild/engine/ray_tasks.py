"""Ray core tasks: attaches to the cluster that is running, else starts one of two CPUs here."""

import collections
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from envbuild.engine.fanout import check_seen
from envbuild.errors import MissingDependencyError, WorkerError

try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ModuleNotFoundError as e:
    raise MissingDependencyError("--engine ray", "ray", "pip install '.[ray]' in a checkout") from e

S = TypeVar("S")
R = TypeVar("R")

LOCAL_CPUS = 2
AHEAD = 4
"""Tasks a CPU that may wait or run ahead of the result that is due."""


def run_ray(
    function: Callable[[S], R],
    shards: Iterable[S],
    *,
    workers: int,
    on_crash: Callable[[S, str], R] | None,
    shared_file: Path | None = None,
) -> Iterator[R]:
    """The results in shard order. `workers` bounds only how many tasks are under way at once."""
    _connect()
    _check_nodes(shared_file)
    task = ray.remote(num_cpus=1, max_retries=1)(function)
    under_way: collections.deque[tuple[Any, S]] = collections.deque()
    for shard in shards:
        under_way.append((task.remote(shard), shard))
        if len(under_way) >= AHEAD * workers:
            yield _result(*under_way.popleft(), on_crash)
    while under_way:
        yield _result(*under_way.popleft(), on_crash)


def _connect() -> None:
    if ray.is_initialized():
        return
    try:
        ray.init(address="auto", logging_level=logging.ERROR, log_to_driver=False)
    except ConnectionError:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster of ours reports to nobody
        ray.init(
            num_cpus=LOCAL_CPUS,
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )


def _check_nodes(shared_file: Path | None) -> None:
    """Every node that has CPUs to give sees the file, before the work starts."""
    look = ray.remote(num_cpus=0, max_retries=0)(check_seen)
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    working = [node["NodeID"] for node in nodes if node["Alive"] and node["Resources"].get("CPU")]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in working]
    looks = [look.options(scheduling_strategy=place).remote(shared_file) for place in places]
    for reference in looks:
        _result(reference, shared_file, None)


def _result(reference: Any, shard: S, on_crash: Callable[[S, str], R] | None) -> R:
    try:
        result: R = ray.get(reference)
    except ray.exceptions.RayTaskError as e:
        raise e.cause if isinstance(getattr(e, "cause", None), Exception) else e from e
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as e:
        if on_crash is None:
            raise WorkerError(f"a Ray worker died twice on the same shard: {e}") from e
        return on_crash(shard, type(e).__name__)
    return result
