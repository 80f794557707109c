"""Masking gold SQL, beside sqlglot's parse + replace + generate."""

import time
from collections.abc import Callable
from statistics import mean, median

from envbuild.sql.mask import mask_sql
from tests.bench.inputs import gold_queries
from tests.bench.sqlglot_ways import mask_by_parsing

QUERIES = 20_000
PEER_QUERIES = 1_000


def measure(rounds: int) -> list[dict[str, object]]:
    """Microseconds of CPU a query, and how many times less than the peer; medians over rounds."""
    texts = gold_queries(QUERIES, tables=75)
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "sqlglot": (lambda: [mask_by_parsing(sql) for sql in texts[:PEER_QUERIES]], PEER_QUERIES),
        "literals": (lambda: [mask_sql(sql) for sql in texts], QUERIES),
        "skeleton": (lambda: [mask_sql(sql, mode="skeleton") for sql in texts[:5000]], 5000),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (run, queries) in ways.items():
            started = time.process_time()
            run()
            taken[name].append((time.process_time() - started) / queries * 1e6)
    length = mean(map(len, texts))
    lines: list[dict[str, object]] = []
    for name in list(ways)[1:]:
        ratios = [theirs / own for theirs, own in zip(taken["sqlglot"], taken[name], strict=True)]
        lines.append(
            {
                "what": f"mask {name}: SQL of {length:.0f} characters",
                "envbuild_us_a_query": round(median(taken[name]), 1),
                "sqlglot_us_a_query": round(median(taken["sqlglot"]), 1),
                "ratio": round(median(ratios), 1),
            }
        )
    return lines
