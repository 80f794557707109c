"""A Slurm array through submitit: each task works off its part of the shards, a file a result.

Driver and nodes share the current folder, or the one that `$ENVBUILD_SLURM` names: a run keeps its
shards, results and logs in a folder of its own there until all results are read. What Slurm
should know of the job (partition, account, time, memory) is said to `sbatch` as ever, by its
variables: SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT, SBATCH_MEM_PER_NODE.
"""

import collections
import os
import pickle
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from envbuild.engine.fanout import check_seen
from envbuild.engine.local import ATTEMPTS, portable_error
from envbuild.errors import MissingDependencyError, UsageError, WorkerError
from envbuild.io.files import write_bytes

try:
    import submitit
except ModuleNotFoundError as e:
    raise MissingDependencyError(
        "--engine slurm", "submitit", "pip install '.[slurm]' in a checkout"
    ) from e

S = TypeVar("S")
R = TypeVar("R")

MAX_TASKS = 1000
"""Slurm's own default for the longest array."""
FOLDER_VARIABLE = "ENVBUILD_SLURM"
MINUTES = 24 * 60
"""A task's time limit where SBATCH_TIMELIMIT names none."""
STARTED = "started"
POLL_SECONDS = 1.0
ASK_SECONDS = 15.0
"""How long an answer of Slurm's controller is good for: it serves everybody."""
GRACE_SECONDS = 10.0
"""How late a shared file system may show a result after its task has ended."""


def run_slurm(
    function: Callable[[S], R],
    shards: Iterable[S],
    *,
    workers: int,
    on_crash: Callable[[S, str], R] | None,
    shared_file: Path | None = None,
) -> Iterator[R]:
    """The results in shard order, from an array of `workers` tasks at once, 1,000 at most.

    Raises UsageError where there is no Slurm or it refuses the array.
    """
    if shutil.which("sbatch") is None:
        raise UsageError(
            "--engine slurm takes a machine that submits to Slurm (there is no `sbatch` on the"
            " path); --engine local works on this one"
        )
    yield from run_array(function, shards, workers, on_crash, _slurm_executor, shared_file)


def run_array(
    function: Callable[[S], R],
    shards: Iterable[S],
    workers: int,
    on_crash: Callable[[S, str], R] | None,
    executor: Callable[[Path], Any],
    shared_file: Path | None = None,
) -> Iterator[R]:
    """`run_slurm` with a submitit executor, which `executor` makes for a folder of logs."""
    home = Path(os.environ.get(FOLDER_VARIABLE, ".")).resolve()
    home.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir=home))
    array = _Array(folder, executor(folder / "logs"), min(workers, MAX_TASKS))
    try:
        write_bytes(folder / "function.pkl", pickle.dumps((function, shared_file)))
        count = 0
        for count, shard in enumerate(shards, start=1):
            write_bytes(_shard_file(folder, count - 1), pickle.dumps(shard, protocol=5))
        array.missing = list(range(count))
        for due in range(count):
            while not _result_file(folder, due).is_file():
                if array.running():
                    time.sleep(POLL_SECONDS)
                    continue
                for number in array.given_up():
                    _answer_crash(folder, number, on_crash)
                array.submit()
            failed, value = pickle.loads(_result_file(folder, due).read_bytes())
            if failed:
                raise value
            yield value
    except BaseException as e:
        array.cancel()
        if not isinstance(e, WorkerError):  # whose logs say why
            shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _shard_file(folder: Path, number: int) -> Path:
    return folder / "shards" / f"{number:06}.pkl"


def _result_file(folder: Path, number: int) -> Path:
    return folder / "results" / f"{number:06}.pkl"


def _answer_crash(folder: Path, number: int, on_crash: Callable[[Any, str], Any] | None) -> None:
    reason = f"its Slurm task ended {ATTEMPTS} times without a result"
    if on_crash is None:
        raise WorkerError(f"shard {number}: {reason}; the tasks' logs are in {folder / 'logs'}")
    shard = pickle.loads(_shard_file(folder, number).read_bytes())
    answer = (False, on_crash(shard, reason))
    write_bytes(_result_file(folder, number), pickle.dumps(answer, protocol=5))


class _Array:
    """The array that runs, and what it was given; one at a time."""

    def __init__(self, folder: Path, executor: Any, tasks: int) -> None:
        self.folder = folder
        self.executor = executor
        self.tasks = tasks
        self.missing: list[int] = []
        """Shards without a result when the array was submitted, in order."""
        self.jobs: list[Any] = []
        self.ran, self.ask_at = False, 0.0
        self.crashes: collections.Counter[int] = collections.Counter()

    def parts(self) -> list[list[int]]:
        """What each task works off, interleaved: the results that are due come first."""
        return [self.missing[task :: self.tasks] for task in range(self.tasks)]

    def submit(self) -> None:
        self.missing = [n for n in self.missing if not _result_file(self.folder, n).is_file()]
        if not self.missing:
            return
        parts = [part for part in self.parts() if part]
        try:
            self.jobs = self.executor.map_array(work, [str(self.folder)] * len(parts), parts)
        except submitit.core.utils.FailedJobError as e:
            raise UsageError(f"Slurm refused the job: {str(e).strip()}") from e

    def running(self) -> bool:
        if time.monotonic() >= self.ask_at:
            self.ran = bool(self.jobs) and _running(self.jobs)
            self.ask_at = time.monotonic() + ASK_SECONDS * self.ran
        return self.ran

    def given_up(self) -> list[int]:
        """Shards that ended their task for the last time they may; the array has ended."""
        if not self.jobs:
            return []
        time.sleep(GRACE_SECONDS)
        if not (self.folder / STARTED).is_file():
            raise WorkerError(
                "no task of the Slurm array began its work: either its machines do not share"
                f" {self.folder}, or the logs in it say why"
            )
        without = [
            [n for n in part if not _result_file(self.folder, n).is_file()] for part in self.parts()
        ]
        guilty = [part[0] for part in without if part]
        self.crashes.update(guilty)
        return [number for number in guilty if self.crashes[number] >= ATTEMPTS]

    def cancel(self) -> None:
        arrays = {_array_of(job) for job in self.jobs if isinstance(job, submitit.SlurmJob)}
        if arrays:
            subprocess.run(["scancel", *arrays], capture_output=True, check=False)
        for job in self.jobs:
            if not isinstance(job, submitit.SlurmJob) and not job.done():
                job.cancel(check=False)


def work(folder: str, numbers: list[int]) -> None:
    """A task's life: shard after shard; those that have their result are not run again."""
    home = Path(folder)
    (home / STARTED).touch()
    function, shared_file = pickle.loads((home / "function.pkl").read_bytes())
    for number in numbers:
        if _result_file(home, number).is_file():
            continue
        shard = pickle.loads(_shard_file(home, number).read_bytes())
        try:
            check_seen(shared_file)
            answer = pickle.dumps((False, function(shard)), protocol=5)
        except Exception as e:  # noqa: BLE001 - it is raised again in the driver
            answer = pickle.dumps((True, portable_error(e)))
        write_bytes(_result_file(home, number), answer)


def _slurm_executor(logs: Path) -> Any:
    executor = submitit.SlurmExecutor(logs)
    executor.update_parameters(job_name="envbuild", time=MINUTES, array_parallelism=MAX_TASKS)
    return executor


def _running(jobs: list[Any]) -> bool:
    """Whether Slurm still knows one of the tasks; `squeue`, since `sacct` needs accounting."""
    if not isinstance(jobs[0], submitit.SlurmJob):
        return any(not job.done() for job in jobs)
    asked = subprocess.run(
        ["squeue", "--noheader", f"--jobs={_array_of(jobs[0])}", "--format=%i"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:  # a controller that does not answer knows the tasks later
        return "Invalid job id" not in asked.stderr
    return bool(asked.stdout.strip())


def _array_of(job: Any) -> str:
    """The array's own id, of `<array>_<task>`."""
    return str(job.job_id).partition("_")[0]
