"""One function over many shards, results in shard order, whatever the engine and its workers.

Not a scheduler: the unit of work is a shard worth a few tenths of a second, and a function that
gives the same result for the same shard gives the same results for any number of workers.
"""

import hashlib
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from envbuild.errors import UnknownNameError, UsageError

S = TypeVar("S")
R = TypeVar("R")


Engine = Callable[..., Iterator[Any]]
"""`(function, shards, *, workers, on_crash)`, as `run_shards` documents them; engines of several
machines take `shared_file` too."""
ENGINES = {
    "local": "envbuild.engine.local:run_local",
    "ray": "envbuild.engine.ray_tasks:run_ray",
    "slurm": "envbuild.engine.slurm:run_slurm",
}


def run_shards(
    function: Callable[[S], R],
    shards: Iterable[S],
    *,
    workers: int | None = None,
    engine: str = "local",
    on_crash: Callable[[S, str], R] | None = None,
    shared_file: Path | None = None,
) -> Iterator[R]:
    """The results of `function`, one a shard, in the order of `shards`.

    `function` is a top-level function of an importable module; `shards` is read lazily, a few
    ahead of the results. `workers` None means one a core. What `function` raises is raised here.
    A worker that dies (a segmentation fault, the out-of-memory killer) costs its shard one retry;
    when it dies again, `on_crash(shard, reason)` stands in for the result, and without `on_crash`
    WorkerError is raised. The other shards go on. `shared_file` is one that every machine at work
    must see, tried before the work starts; UsageError names a machine that does not. Raises
    UnknownNameError for an unknown engine.
    """
    spread: dict[str, Any] = {"workers": workers or available_cores(), "on_crash": on_crash}
    if engine != "local":
        spread["shared_file"] = shared_file and shared_file.resolve()
    return load_engine(engine)(function, shards, **spread)


def check_seen(shared_file: Path | None) -> None:
    """Raises UsageError where this machine, of a cluster, does not see `shared_file`."""
    if shared_file is not None and not shared_file.is_file():
        raise UsageError(
            f"{socket.gethostname()}, a machine of the cluster, does not see {shared_file}:"
            " corpora and results must lie in a folder that all its machines share"
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


T = TypeVar("T")


def shard_of(key: str, shards: int) -> int:
    """Which of `shards` a key belongs to: BLAKE2b of the key, never `hash()`."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) % shards


def parse_shard(text: str) -> tuple[int, int]:
    """`I/N` as (I, N), 0 <= I < N. Raises UsageError otherwise."""
    index, slash, count = text.partition("/")
    if slash and index.isdigit() and count.isdigit() and int(index) < int(count):
        return int(index), int(count)
    raise UsageError(f"--shard takes I/N with 0 <= I < N, such as 0/64; got {text!r}")


def chunked(values: Sequence[T], size: int) -> list[Sequence[T]]:
    """Runs of at most `size` neighbouring values."""
    return [values[start : start + size] for start in range(0, len(values), size)]
