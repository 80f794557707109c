"""Gold tables: SQLite's authorizer, the connection kept per database, beside sqlglot's scopes."""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from envbuild.sql.connect import open_read_only
from envbuild.sql.gold_tables import GoldTableReader
from tests.bench import Measured, line_of, take_turns
from tests.bench.inputs import build_shape, gold_queries
from tests.bench.sqlglot_ways import tables_by_scope

SHAPES = (("SQaLe-shaped", 10, 75, 60), ("SynSQL-shaped", 100, 8, 4))
"""(name, databases, tables a database, queries a database), as published."""
Work = list[tuple[Path, list[str]]]


def measure(rounds: int) -> Sequence[Measured]:
    """Microseconds of CPU a query, opening the databases included; medians over the rounds."""
    lines = []
    for name, databases, tables, queries in SHAPES:
        with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
            work = [
                (
                    build_shape(Path(folder, f"{n}.sqlite"), tables=tables, seed=n),
                    gold_queries(queries, tables=tables, seed=n),
                )
                for n in range(databases)
            ]
            count = databases * queries
            ways = {
                "sqlglot": (partial(_by_scope, work), count),
                "authorizer": (partial(_by_authorizer, work), count),
            }
            what = f"gold tables, {name}: {databases} databases, {count} queries"
            taken = take_turns(ways, rounds)
            lines.append(line_of(what, taken, "authorizer", "sqlglot", unit="query"))
    return lines


def _by_authorizer(work: Work) -> None:
    for path, queries in work:
        connection = open_read_only(path)
        with GoldTableReader(connection) as reader:
            for sql in queries:
                reader.read(sql)
        connection.close()


def _by_scope(work: Work) -> None:
    for _, queries in work:
        for sql in queries:
            tables_by_scope(sql)
