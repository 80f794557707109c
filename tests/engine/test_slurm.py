"""Shards over Slurm arrays: by submitit's own local executors, and on a real Slurm where one is."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuild.engine.fanout import run_shards
from envbuild.errors import SourceError, UsageError, WorkerError

submitit = pytest.importorskip("submitit")
slurm = pytest.importorskip("envbuild.engine.slurm")


def square(n: int) -> int:
    return n * n


def refuse(n: int) -> int:
    if n == 3:
        raise SourceError("the third one is broken")
    return n


def logged(shard: tuple[int, str]) -> int:
    number, log = shard
    with Path(log).open("a") as stream:
        stream.write(f"{number}\n")
    return number


def die_on_two(shard: tuple[int, str]) -> int:
    if shard[0] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return logged(shard)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    monkeypatch.setenv("ENVBUILD_SLURM", str(tmp_path / "shared"))
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(slurm, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(slurm, "ASK_SECONDS", 0.0)

    def listed(function: Any, shards: Any, executor: str = "local", on_crash: Any = None) -> Any:
        new = submitit.LocalExecutor if executor == "local" else submitit.DebugExecutor
        return list(slurm.run_array(function, shards, 2, on_crash, new))

    return listed


@pytest.mark.parametrize("executor", ["local", "debug"])
def test_results_come_in_shard_order_and_nothing_is_left(
    run: Callable[..., list[Any]], executor: str, tmp_path: Path
) -> None:
    assert run(square, range(7), executor) == [n * n for n in range(7)]
    assert run(square, [], executor) == []
    with pytest.raises(SourceError, match="third"):
        run(refuse, range(6), executor)
    assert not list((tmp_path / "shared").iterdir())


def test_only_shards_without_a_result_run_again(
    run: Callable[..., list[Any]], tmp_path: Path
) -> None:
    shards = [(n, str(tmp_path / "log")) for n in range(7)]
    crashed = run(die_on_two, shards, on_crash=lambda shard, reason: (shard[0], reason))
    assert [n for n in crashed if isinstance(n, int)] == [0, 1, 3, 4, 5, 6]
    assert crashed[2][0] == 2
    done = (tmp_path / "log").read_text().split()
    assert sorted(done) == ["0", "1", "3", "4", "5", "6"]
    with pytest.raises(WorkerError, match="logs are in"):
        run(die_on_two, shards)


def test_a_machine_without_slurm_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="no `sbatch`"):
        list(run_shards(square, [1], engine="slurm"))


def cluster_answers() -> bool:
    if shutil.which("sinfo") is None:
        return False
    try:
        asked = subprocess.run(["sinfo", "-h"], capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:  # its controller is away
        return False
    return asked.returncode == 0 and bool(asked.stdout.strip())


@pytest.mark.slow
def test_a_real_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not cluster_answers():
        pytest.skip("no Slurm answers here")
    monkeypatch.setenv("ENVBUILD_SLURM", str(tmp_path))
    monkeypatch.setattr(slurm, "GRACE_SECONDS", 0.0)
    results = run_shards(square, range(9), workers=3, engine="slurm")
    assert list(results) == [n * n for n in range(9)]
