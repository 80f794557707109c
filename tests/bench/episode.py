"""Opening an episode beside a fresh copy of its tables, and what whole episodes cost.

The copy is made by Python's sqlite3, as most environments would.
"""

import random
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import median

from envbuild.env.episode import TextEpisode
from envbuild.env.views import ViewCache
from envbuild.records.episode import Task
from envbuild.sql.connect import quote_name
from tests.bench import Measured, line_of, take_turns
from tests.bench.inputs import build_shape, fill_tables, table_name

TABLES, SHOWN, ROWS = 75, 16, 68
"""Of a SQaLe-shaped database: tables, how many an episode sees, rows a table."""
LARGE_ROWS = 1_000_000
OPENS = 40
DATABASES = 8
"""Databases that nobody has opened before, each round."""


def episode(rounds: int) -> Sequence[Measured]:
    """Microseconds of CPU an open (with a first query and close); medians over the rounds."""
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        many = build_shape(Path(folder, "many.sqlite"), tables=TABLES)
        large = build_shape(Path(folder, "large.sqlite"), tables=5)
        fill_tables(many, [ROWS] * TABLES)
        fill_tables(large, [LARGE_ROWS, 1000, 1000, 1000, 1000])
        chance, names = random.Random(0), [table_name(number) for number in range(TABLES)]
        views = [tuple(chance.sample(names, SHOWN)) for _ in range(OPENS)]
        new = [  # no two with the same DDL, which a cache could know
            build_shape(Path(folder, f"new_{n}.sqlite"), tables=TABLES, seed=n)
            for n in range(rounds * DATABASES)
        ]
        for path in new:
            fill_tables(path, [ROWS] * TABLES)
        to_open, to_copy, cache = iter(new), iter(new), ViewCache()
        part = tuple(names[:3])
        cache.view(large, part, digest=large.name)  # built before the clock starts
        caches: list[ViewCache] = []

        def again() -> None:
            for tables in views:
                _open(caches[-1], many, tables)

        def first() -> None:
            caches.append(ViewCache())
            again()

        def first_view() -> None:
            fresh = ViewCache()
            for path in islice(to_open, DATABASES):
                _open(fresh, path, views[0])

        ways = {
            "first view": (first_view, DATABASES),
            "first view copied": (
                lambda: [_copy_tables(path, views[0]) for path in islice(to_copy, DATABASES)],
                DATABASES,
            ),
            "copied": (lambda: [_copy_tables(many, tables) for tables in views], OPENS),
            "first": (first, OPENS),
            "again": (again, OPENS),
            "again, large": (lambda: [_open(cache, large, part) for _ in views], OPENS),
            "turns": (lambda: [_play(cache, many, tables) for tables in views], OPENS),
        }
        taken = take_turns(ways, rounds)
    shape = f"{SHOWN} of {TABLES} tables x {ROWS} rows"
    new_view, new_database = f"first open of a view, {shape}", f"a database's first view, {shape}"
    alone = {
        f"open again, {shape}": "again",
        f"open again, 3 of 5 tables, one of {LARGE_ROWS:,} rows": "again, large",
        f"episode of four turns, {shape}": "turns",
    }
    return [
        line_of(new_view, taken, "first", "copied", unit="view"),
        line_of(new_database, taken, "first view", "first view copied", unit="view"),
        *({"what": what, "envbuild_us": round(median(taken[way]))} for what, way in alone.items()),
    ]


def _copy_tables(path: Path, tables: Sequence[str]) -> None:
    """What a straightforward environment does for every episode."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS src", (str(path),))
        connection.execute("BEGIN")
        listed = "SELECT name, sql FROM src.sqlite_schema WHERE type = 'table'"
        ddl = dict(connection.execute(listed))
        for table in tables:
            connection.execute(str(ddl[table]))
            name = quote_name(table)
            connection.execute(f"INSERT INTO main.{name} SELECT * FROM src.{name}")
        connection.execute("COMMIT")
        connection.execute("DETACH src")
        connection.execute(f"SELECT count(*) FROM {quote_name(tables[0])}").fetchall()


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
