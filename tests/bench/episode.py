"""Opening an episode beside a fresh copy of its tables, and what whole episodes cost.

The copy is made by Python's sqlite3, as most environments would.
"""

import random
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import median

from envbuild.env.episode import TextEpisode
from envbuild.env.views import ViewCache
from envbuild.records.episode import Task
from envbuild.sql.connect import Connection, quote_name
from tests.bench import Measured, line_of, take_turns

TABLES, SHOWN, ROWS = 75, 16, 68
"""Of a SQaLe-shaped database: tables, how many an episode sees, rows a table."""
LARGE_ROWS = 1_000_000
OPENS = 40
DATABASES = 8
"""Databases that nobody has opened before, each round."""


def episode(rounds: int) -> Sequence[Measured]:
    """Microseconds of CPU an open (with a first query and close); medians over the rounds."""
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        many, large = Path(folder, "many.sqlite"), Path(folder, "large.sqlite")
        _write(many, [ROWS] * TABLES)
        _write(large, [LARGE_ROWS, 1000, 1000, 1000, 1000])
        chance = random.Random(0)
        views = [tuple(chance.sample(_names(TABLES), SHOWN)) for _ in range(OPENS)]
        cache, part_of_large = ViewCache(), tuple(_names(3))
        cache.view(large, part_of_large, digest=large.name)  # built before the clock starts
        new = [Path(folder, f"new_{n}.sqlite") for n in range(rounds * DATABASES)]
        for path in new:
            _write(path, [ROWS] * TABLES, amount=path.stem)
        to_open, to_copy = iter(new), iter(new)
        caches: list[ViewCache] = []

        def first() -> None:
            caches.append(ViewCache())
            again()

        def again() -> None:
            open_all(caches[-1], many, views)

        def open_all(cache: ViewCache, path: Path, asked: Sequence[tuple[str, ...]]) -> None:
            for tables in asked:
                _open(cache, path, tables)

        def first_view() -> None:
            fresh = ViewCache()
            for path in islice(to_open, DATABASES):
                _open(fresh, path, views[0])

        def copy_first_view() -> None:
            for path in islice(to_copy, DATABASES):
                _copy_tables(path, views[0])

        def copy() -> None:
            for tables in views:
                _copy_tables(many, tables)

        def play() -> None:
            for tables in views:
                _play(cache, many, tables)

        ways: dict[str, tuple[Callable[[], object], int]] = {
            "first view": (first_view, DATABASES),
            "first view copied": (copy_first_view, DATABASES),
            "copied": (copy, OPENS),
            "first": (first, OPENS),
            "again": (again, OPENS),
            "again, large": (lambda: open_all(cache, large, [part_of_large] * OPENS), OPENS),
            "turns": (play, OPENS),
        }
        taken = take_turns(ways, rounds)
    shape = f"{SHOWN} of {TABLES} tables x {ROWS} rows"
    alone = {
        f"open again, {shape}": "again",
        f"open again, 3 of 5 tables, one of {LARGE_ROWS:,} rows": "again, large",
        f"episode of four turns, {shape}": "turns",
    }
    return [
        line_of(f"first open of a view, {shape}", taken, "first", "copied", unit="view"),
        line_of(
            f"first open of a database's first view, {shape}",
            taken,
            "first view",
            "first view copied",
            unit="view",
        ),
        *({"what": what, "envbuild_us": round(median(taken[way]))} for what, way in alone.items()),
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


def _copy_tables(path: Path, tables: Sequence[str]) -> None:
    """What a straightforward environment does for every episode."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
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


def _open(cache: ViewCache, path: Path, tables: Sequence[str]) -> None:
    database = cache.open(path, tables, digest=path.name)
    database.session.run(f"SELECT count(*) FROM {quote_name(tables[-1])}")
    database.close()


def _play(cache: ViewCache, path: Path, tables: Sequence[str]) -> None:
    query = f"SELECT name FROM {tables[0]} WHERE amount > 3"
    played = TextEpisode(Task(question="?"), cache.open(path, tables, digest=path.name))
    for completion in (
        '{"tool": "list_tables"}',
        f'{{"tool": "describe_table", "args": {{"table_name": "{tables[0]}"}}}}',
        f'{{"tool": "run_query", "args": {{"sql": "{query}"}}}}',
        f'{{"tool": "submit_sql", "args": {{"sql": "{query}"}}}}',
    ):
        played.feed(completion)
    played.close()
