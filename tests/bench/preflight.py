"""Rows per table: scalar COUNT subqueries on immutable connections beside a plain COUNT loop."""

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec

from envbuild.materialize.build import build_database
from envbuild.records.corpus import DatabaseRecord
from envbuild.sql.files.inspect import count_rows

SHAPES = (("SynSQL-shaped", 600, 8, 2), ("SQaLe-shaped", 40, 75, 68))
"""(name, databases, tables a database, rows a table), as published."""
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


def measure(rounds: int) -> list[dict[str, object]]:
    """Microseconds of CPU a table, ours and the loop's, and the ratio; medians over the rounds."""
    lines = []
    for name, databases, tables, rows in SHAPES:
        with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
            paths = _build(Path(folder), databases, tables, rows)
            assert count_rows(paths[0]) == _naive_counts(paths[0])
            ours, naive = [], []
            for _ in range(rounds):
                naive.append(_cpu(paths, _naive_counts))
                ours.append(_cpu(paths, count_rows))
        ratios = [theirs / own for theirs, own in zip(naive, ours, strict=True)]
        counted = databases * tables
        lines.append(
            {
                "what": f"rows per table, {name}: {databases} databases, {counted} tables",
                "envbuild_us_a_table": round(median(ours) / counted * 1e6, 1),
                "count_loop_us_a_table": round(median(naive) / counted * 1e6, 1),
                "ratio": round(median(ratios), 2),
            }
        )
    return lines


def _naive_counts(path: Path) -> dict[str, int]:
    """What a straightforward script does."""
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute(_TABLES)]
    counts = {
        name: connection.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0] for name in names
    }
    connection.close()
    return counts


def _cpu(paths: list[Path], count: Callable[[Path], dict[str, int]]) -> float:
    started = time.process_time()
    for path in paths:
        count(path)
    return time.process_time() - started


def _build(folder: Path, databases: int, tables: int, rows: int) -> list[Path]:
    """One database of this shape, copied: counting never looks at another file's pages."""
    columns = "id INTEGER PRIMARY KEY, parent INT REFERENCES t0(id), name TEXT, amount REAL"
    ddl = "".join(f"CREATE TABLE t{n} ({columns}, note TEXT, day TEXT);\n" for n in range(tables))
    row = {"parent": 1, "name": "a name", "amount": 1.5, "note": "a note", "day": "2024-01-01"}
    payload = {f"t{n}": [{"id": r + 1, **row} for r in range(rows)] for n in range(tables)}
    first = folder / "0.sqlite"
    build_database(DatabaseRecord(db_id="0", ddl=ddl, payload=msgspec.json.encode(payload)), first)
    paths = [first] + [folder / f"{n}.sqlite" for n in range(1, databases)]
    for path in paths[1:]:
        shutil.copyfile(first, path)
    return paths
