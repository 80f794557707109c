"""Rows per table: scalar COUNT subqueries on immutable connections beside a plain COUNT loop."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from envbuild.materialize.build import build_database
from envbuild.records.corpus import DatabaseRecord
from envbuild.sql.files.inspect import count_rows
from tests.bench import Measured, line_of, take_turns

SHAPES = (("SynSQL-shaped", 600, 8, 2), ("SQaLe-shaped", 40, 75, 68))
"""(name, databases, tables a database, rows a table), as published."""
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


def measure(rounds: int) -> Sequence[Measured]:
    """Microseconds of CPU a table, ours and the loop's, and the ratio; medians over the rounds."""
    lines = []
    for name, databases, tables, rows in SHAPES:
        with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
            paths = _build(Path(folder), databases, tables, rows)
            assert count_rows(paths[0]) == _naive_counts(paths[0])
            counted = databases * tables
            ways = {
                "count loop": (partial(_count_all, _naive_counts, paths), counted),
                "count_rows": (partial(_count_all, count_rows, paths), counted),
            }
            what = f"rows per table, {name}: {databases} databases, {counted} tables"
            taken = take_turns(ways, rounds)
            lines.append(line_of(what, taken, "count_rows", "count loop", unit="table"))
    return lines


def _count_all(count: Callable[[Path], dict[str, int]], paths: Sequence[Path]) -> None:
    for path in paths:
        count(path)


def _naive_counts(path: Path) -> dict[str, int]:
    """What a straightforward script does."""
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute(_TABLES)]
    counts = {
        name: connection.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0] for name in names
    }
    connection.close()
    return counts


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
