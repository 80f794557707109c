"""`envbuild materialize` beside `sqale-extract` on SQaLe-shaped row payloads, whole commands.

The peer (SQaLe 0.2.0 from PyPI) runs where it is on PATH, or where $ENVBUILD_BENCH_SQALE says.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from envbuild.corpora.synthetic import SampleDatabase, iter_shape, write_sqale
from envbuild.engine.fanout import run_shards

DATABASES = 200
DISTINCT = 25
"""Databases made; each is written several times under another id."""
WORKERS = 2


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one command took, its children included."""

    cpu: float
    """Seconds, user and system."""
    wall: float
    """Seconds."""
    peak: float
    """MiB of its largest process."""


def measure(rounds: int) -> list[dict[str, object]]:
    """Seconds of CPU and wall a command and MiB at its peak; medians over the rounds, in turn."""
    peer = os.environ.get("ENVBUILD_BENCH_SQALE") or shutil.which("sqale-extract")
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        source, out = Path(folder, "source"), Path(folder, "out")
        # in another process: what this one held would count as its children's peak
        list(run_shards(_write_source, [str(source)], workers=2))
        schemas = str(source / "sqale2_schemas")
        own = [sys.executable, "-m", "envbuild", "materialize", schemas, "--quiet"]
        own += ["--workers", str(WORKERS), "--out", str(out)]
        theirs = [peer or "", "--input", schemas, "--output", str(out)]
        ours, peers = [], []
        for _ in range(rounds):
            ours.append(_timed(own, out))
            if peer:
                peers.append(_timed(theirs, out))
    return [_row(f"materialize {DATABASES} SQaLe-shaped databases, {WORKERS} workers", ours, peers)]


def _write_source(folder: str) -> None:
    write_sqale(((database, ()) for database in _databases()), Path(folder), seed=0)


def _databases() -> Iterator[SampleDatabase]:
    for database, _ in iter_shape("sqale", databases=DISTINCT, seed=1):
        for copy in range(DATABASES // DISTINCT):
            yield msgspec.structs.replace(database, db_id=f"{database.db_id}_{copy}")


def _timed(command: Sequence[str], out: Path) -> _Run:
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{command[0]} ended with {child.returncode}")
    return _Run(
        cpu=usage.ru_utime + usage.ru_stime,
        wall=time.perf_counter() - began,
        peak=usage.ru_maxrss / 1024,
    )


def _row(what: str, ours: Sequence[_Run], peers: Sequence[_Run]) -> dict[str, object]:
    row: dict[str, object] = {
        "what": what,
        "envbuild_cpu_s": round(median(run.cpu for run in ours), 2),
        "envbuild_wall_s": round(median(run.wall for run in ours), 2),
        "envbuild_peak_mib": round(median(run.peak for run in ours)),
    }
    if not peers:
        return {**row, "sqale_extract": "not installed"}
    pairs = list(zip(peers, ours, strict=True))
    return {
        **row,
        "sqale_extract_cpu_s": round(median(run.cpu for run in peers), 2),
        "sqale_extract_wall_s": round(median(run.wall for run in peers), 2),
        "sqale_extract_peak_mib": round(median(run.peak for run in peers)),
        "less_cpu": round(median(a.cpu / b.cpu for a, b in pairs), 2),
        "less_wall": round(median(a.wall / b.wall for a, b in pairs), 2),
    }
