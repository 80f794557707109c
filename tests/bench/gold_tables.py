"""Gold tables: SQLite's authorizer, the connection kept per database, beside sqlglot's scopes."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from envbuild.sql.connect import open_read_only
from envbuild.sql.gold_tables import GoldTableReader
from tests.bench.inputs import build_shape, gold_queries
from tests.bench.sqlglot_ways import tables_by_scope

SHAPES = (("SQaLe-shaped", 10, 75, 60), ("SynSQL-shaped", 100, 8, 4))
"""(name, databases, tables a database, queries a database), as published."""


def measure(rounds: int) -> list[dict[str, object]]:
    """Microseconds of CPU a query, opening the databases included; medians over the rounds."""
    lines: list[dict[str, object]] = []
    for name, databases, tables, queries in SHAPES:
        with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
            work = [
                (
                    build_shape(Path(folder, f"{n}.sqlite"), tables=tables, seed=n),
                    gold_queries(queries, tables=tables, seed=n),
                )
                for n in range(databases)
            ]
            ours, scopes = [], []
            for _ in range(rounds):
                scopes.append(_cpu(lambda w=work: _by_scope(w)))  # type: ignore[misc]  # bound now
                ours.append(_cpu(lambda w=work: _by_authorizer(w)))  # type: ignore[misc]
        count = databases * queries
        ratios = [theirs / own for theirs, own in zip(scopes, ours, strict=True)]
        lines.append(
            {
                "what": f"gold tables, {name}: {databases} databases, {count} queries",
                "envbuild_us_a_query": round(median(ours) / count * 1e6, 1),
                "sqlglot_us_a_query": round(median(scopes) / count * 1e6, 1),
                "ratio": round(median(ratios), 1),
            }
        )
    return lines


def _by_authorizer(work: list[tuple[Path, list[str]]]) -> None:
    for path, queries in work:
        connection = open_read_only(path)
        with GoldTableReader(connection) as reader:
            for sql in queries:
                reader.read(sql)
        connection.close()


def _by_scope(work: list[tuple[Path, list[str]]]) -> None:
    for _, queries in work:
        for sql in queries:
            tables_by_scope(sql)


def _cpu(run: Callable[[], None]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started
