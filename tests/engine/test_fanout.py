"""Shards over engines: order, crashes, errors, and nothing left behind."""

import os
import signal
import time
from pathlib import Path

import pytest

from envbuild.engine.fanout import run_shards
from envbuild.errors import SourceError, UnknownNameError, WorkerError


def square(n: int) -> int:
    return n * n


def slow_first(n: int) -> int:
    time.sleep(0.3 if n == 0 else 0.0)
    return n


def own_process(_: int) -> int:
    return os.getpid()


def refuse(n: int) -> int:
    if n == 3:
        raise SourceError("the third one is broken")
    return n


def bug(n: int) -> int:
    return 1 // (n - 1)


def die_on_two(n: int) -> int:
    if n == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def die_once(shard: tuple[int, str]) -> int:
    number, marker = shard
    if number == 1 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGSEGV)
    return number


def big(n: int) -> bytes:
    return bytes([n]) * 3_000_000


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_shard_order(workers: int) -> None:
    assert list(run_shards(square, range(40), workers=workers)) == [n * n for n in range(40)]
    assert list(run_shards(slow_first, range(9), workers=workers)) == list(range(9))
    assert list(run_shards(square, [], workers=workers)) == []


def test_work_happens_in_other_processes() -> None:
    pids = set(run_shards(own_process, range(20), workers=2))
    assert os.getpid() not in pids
    assert len(pids) <= 2


def test_large_results_and_shards_do_not_jam_the_pipe() -> None:
    results = list(run_shards(big, range(12), workers=2))
    assert [r[0] for r in results] == list(range(12))


@pytest.mark.parametrize("workers", [1, 2])
def test_what_the_function_raises_is_raised_here(workers: int) -> None:
    with pytest.raises(SourceError, match="third"):
        list(run_shards(refuse, range(6), workers=workers))
    with pytest.raises(ZeroDivisionError):
        list(run_shards(bug, range(6), workers=workers))


def test_a_dead_worker_costs_its_shard_a_retry(tmp_path: Path) -> None:
    shards = [(n, str(tmp_path / "died")) for n in range(6)]
    assert list(run_shards(die_once, shards, workers=2)) == list(range(6))
    assert (tmp_path / "died").exists()


def test_a_shard_that_always_kills_its_worker_fails_alone() -> None:
    results = list(
        run_shards(die_on_two, range(8), workers=2, on_crash=lambda n, reason: (n, reason))
    )
    assert [r for r in results if isinstance(r, int)] == [0, 1, 3, 4, 5, 6, 7]
    assert results[2][0] == 2
    assert "signal 9" in results[2][1]
    with pytest.raises(WorkerError, match="twice"):
        list(run_shards(die_on_two, range(8), workers=2))


def test_stopping_early_leaves_no_process() -> None:
    results = run_shards(own_process, range(1000), workers=2)
    pids = {next(results) for _ in range(5)}
    results.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="local, ray, slurm"):
        run_shards(square, [1], engine="lsf")


@pytest.mark.slow
def test_ray_gives_the_same_results() -> None:
    ray = pytest.importorskip("ray")
    try:
        assert list(run_shards(square, range(20), workers=2, engine="ray")) == [
            n * n for n in range(20)
        ]
        with pytest.raises(SourceError, match="third"):
            list(run_shards(refuse, range(6), workers=2, engine="ray"))
    finally:
        ray.shutdown()
