"""Opening an episode beside a fresh copy of its tables, and what whole episodes cost.

The copy is made by our own engine, and by Python's sqlite3, as most environments would.
"""

import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from envbuild.env.episode import TextEpisode
from envbuild.env.views import ViewCache
from envbuild.records.episode import Task
from envbuild.sql.connect import Connection, quote_name

TABLES, SHOWN, ROWS = 75, 16, 68
"""Of a SQaLe-shaped database: tables, how many an episode sees, rows a table."""
LARGE_ROWS = 1_000_000
Work = TypeVar("Work")
OPENS = 40
DATABASES = 8
"""Databases that nobody has opened before, each round."""


def measure(rounds: int) -> list[dict[str, object]]:
    """Microseconds of CPU an open (with a first query and close); medians over the rounds."""
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        many, large = Path(folder, "many.sqlite"), Path(folder, "large.sqlite")
        _write(many, [ROWS] * TABLES)
        _write(large, [LARGE_ROWS, 1000, 1000, 1000, 1000])
        chance = random.Random(0)
        views = [tuple(chance.sample(_names(TABLES), SHOWN)) for _ in range(OPENS)]
        part_of_large = tuple(_names(3))
        cache = ViewCache()
        cache.view(large, part_of_large, digest=large.name)  # built before the clock starts
        first, again, again_large = [], [], []
        alone: list[float] = []
        copied: dict[str, list[float]] = {engine: [] for engine in _ENGINES}
        copied_new: dict[str, list[float]] = {engine: [] for engine in _ENGINES}
        for number in range(rounds):
            unseen = [Path(folder, f"new_{number}_{at}.sqlite") for at in range(DATABASES)]
            for path in unseen:
                _write(path, [ROWS] * TABLES, amount=path.stem)
            alone.append(_cpu(unseen, partial(_open, ViewCache(), tables=views[0])))
            for engine, connect in _ENGINES.items():
                copy = partial(_copy_tables, connect)
                copied_new[engine].append(_cpu(unseen, partial(copy, tables=views[0])))
                copied[engine].append(_cpu(views, partial(copy, many)))
            for path in unseen:
                path.unlink()
            fresh = ViewCache()
            first.append(_cpu(views, partial(_open, fresh, many)))
            again.append(_cpu(views, partial(_open, fresh, many)))
            again_large.append(_cpu([part_of_large] * OPENS, partial(_open, cache, large)))
        turns = [_cpu(views, partial(_play, cache, many)) for _ in range(rounds)]
    shape = f"{SHOWN} of {TABLES} tables x {ROWS} rows"
    return [
        *_beside(f"first open of a view, {shape}", first, copied),
        *_beside(f"first open of a database's first view, {shape}", alone, copied_new),
        {"what": f"open again, {shape}", "envbuild_us": round(median(again))},
        {
            "what": f"open again, 3 of 5 tables, one of {LARGE_ROWS:,} rows",
            "envbuild_us": round(median(again_large)),
        },
        {"what": f"episode of four turns, {shape}", "envbuild_us": round(median(turns))},
    ]


def _beside(
    what: str, own: Sequence[float], copies: dict[str, list[float]]
) -> list[dict[str, object]]:
    return [
        {
            "what": what,
            "envbuild_us": round(median(own)),
            "copied_by": engine,
            "copy_us": round(median(peer)),
            "ratio": round(median(a / b for a, b in zip(own, peer, strict=True)), 2),
        }
        for engine, peer in copies.items()
    ]


def _names(count: int) -> list[str]:
    return [f"table_{number}" for number in range(count)]


def _write(path: Path, rows: Sequence[int], *, amount: str = "amount") -> None:
    """`amount`: a column's name, so that no two databases need have the same DDL."""
    connection = Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF; BEGIN")
    for number, count in enumerate(rows):
        parent = f" REFERENCES table_{number // 2}(id)" if number else ""
        connection.execute(
            f"CREATE TABLE table_{number} (id INTEGER PRIMARY KEY, name TEXT NOT NULL,"
            f" {amount} REAL DEFAULT 0, day DATE, status VARCHAR(20), parent_id INT{parent})"
        )
        connection.execute(
            f"WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n LIMIT {count})"
            f" INSERT INTO table_{number} SELECT i, 'name ' || i, i * 1.5,"
            " date('2024-01-01', i || ' days'), 'open', 1 FROM n"
        )
    connection.execute("COMMIT")
    connection.close()


def _copy_tables(
    connect: Callable[[str], Connection | sqlite3.Connection], path: Path, tables: Sequence[str]
) -> None:
    """What a straightforward environment does for every episode."""
    connection = connect(":memory:")
    connection.execute("ATTACH ? AS src", (str(path),))
    connection.execute("BEGIN")
    ddl = dict(connection.execute("SELECT name, sql FROM src.sqlite_schema WHERE type = 'table'"))
    for table in tables:
        connection.execute(str(ddl[table]))
        name = quote_name(table)
        connection.execute(f"INSERT INTO main.{name} SELECT * FROM src.{name}")
    connection.execute("COMMIT")
    connection.execute("DETACH src")
    connection.execute(f"SELECT count(*) FROM {quote_name(tables[0])}").fetchall()
    connection.close()


_ENGINES: dict[str, Callable[[str], Connection | sqlite3.Connection]] = {
    "our engine": Connection,
    f"Python's sqlite3, {sqlite3.sqlite_version}": sqlite3.connect,
}
"""What makes the copy."""


def _open(cache: ViewCache, path: Path, tables: Sequence[str]) -> None:
    database = cache.open(path, tables, digest=path.name)
    database.session.run(f"SELECT count(*) FROM {quote_name(tables[-1])}")
    database.close()


def _play(cache: ViewCache, path: Path, tables: Sequence[str]) -> None:
    query = f"SELECT name FROM {tables[0]} WHERE amount > 3"
    episode = TextEpisode(Task(question="?"), cache.open(path, tables, digest=path.name))
    for completion in (
        '{"tool": "list_tables"}',
        f'{{"tool": "describe_table", "args": {{"table_name": "{tables[0]}"}}}}',
        f'{{"tool": "run_query", "args": {{"sql": "{query}"}}}}',
        f'{{"tool": "submit_sql", "args": {{"sql": "{query}"}}}}',
    ):
        episode.feed(completion)
    episode.close()


def _cpu(works: Sequence[Work], act: Callable[[Work], None]) -> float:
    """Microseconds of CPU for each."""
    started = time.process_time()
    for work in works:
        act(work)
    return (time.process_time() - started) / len(works) * 1e6
