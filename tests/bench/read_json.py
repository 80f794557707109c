"""Reading SynSQL's data.json: our chunks beside `json.load`, and the memory each needs."""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

RECORDS = 30_000
"""Some 110 MB; the published file has 2,544,390 records and 9 GB."""
_OURS = """
import sys
from pathlib import Path
from envbuild.corpora.benchmarks import SourceRecord
from envbuild.io.json_stream import iter_json
count = sum(1 for _ in iter_json(Path(sys.argv[1]), SourceRecord))
"""
_PEER = """
import json, sys
with open(sys.argv[1], encoding="utf-8") as stream:
    count = len(json.load(stream))
"""
_NOTHING = "import sys; from pathlib import Path"


def measure(rounds: int) -> list[dict[str, object]]:
    """Seconds of CPU and MiB at the peak of a process that reads all records; medians.

    A second file of twice the size shows whether the memory depends on it. What starting Python
    costs is taken off both.
    """
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        small, large = Path(folder, "small.json"), Path(folder, "large.json")
        _write(small, RECORDS)
        _write(large, 2 * RECORDS)
        rows = []
        start = median(_run(_NOTHING, small)[0] for _ in range(rounds))
        for path in (small, large):
            ours = [_run(_OURS, path) for _ in range(rounds)]
            peer = [_run(_PEER, path) for _ in range(rounds)]
            rows.append(_row(path, ours, peer, start))
    return rows


def _row(
    path: Path,
    ours: Sequence[tuple[float, float]],
    peer: Sequence[tuple[float, float]],
    start: float,
) -> dict[str, object]:
    pairs = zip(ours, peer, strict=True)
    return {
        "what": f"read data.json of {path.stat().st_size / 1e6:.0f} MB",
        "envbuild_cpu_s": round(median(cpu for cpu, _ in ours) - start, 2),
        "envbuild_peak_mib": round(median(peak for _, peak in ours)),
        "json_load_cpu_s": round(median(cpu for cpu, _ in peer) - start, 2),
        "json_load_peak_mib": round(median(peak for _, peak in peer)),
        "less_cpu": round(median((p[0] - start) / (o[0] - start) for o, p in pairs), 2),
    }


def _write(path: Path, records: int) -> None:
    generator = random.Random(0)
    words = [f"word{n}" for n in range(500)]

    def text(count: int) -> str:
        return " ".join(generator.choices(words, k=count))

    with path.open("w", encoding="utf-8") as stream:
        stream.write("[")
        for number in range(records):
            record = {
                "db_id": f"database_{number % 16000}",
                "sql_complexity": "Complex",
                "question_style": "Formal",
                "question": text(25),
                "external_knowledge": text(8),
                "cot": text(380),
                "sql": f"SELECT {text(40)} FROM t WHERE a = '}}, {{'",
            }
            stream.write((",\n  " if number else "\n  ") + json.dumps(record, indent=2))
        stream.write("\n]\n")


def _run(program: str, path: Path) -> tuple[float, float]:
    """(seconds of CPU, MiB at the peak) of one process."""
    child = subprocess.Popen([sys.executable, "-c", program, str(path)])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"the reading process ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
