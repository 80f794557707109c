"""Masking gold SQL, beside sqlglot's parse + replace + generate."""

from collections.abc import Sequence
from statistics import mean

from envbuild.sql.mask import mask_sql
from tests.bench import Measured, line_of, take_turns
from tests.bench.inputs import gold_queries
from tests.bench.sqlglot_ways import mask_by_parsing

QUERIES = 20_000
PEER_QUERIES = 1_000


def measure(rounds: int) -> Sequence[Measured]:
    """Microseconds of CPU a query, and how many times less than the peer; medians over rounds."""
    texts = gold_queries(QUERIES, tables=75)
    some = texts[:5000]
    ways = {
        "sqlglot": (lambda: list(map(mask_by_parsing, texts[:PEER_QUERIES])), PEER_QUERIES),
        "literals": (lambda: list(map(mask_sql, texts)), QUERIES),
        "skeleton": (lambda: [mask_sql(sql, mode="skeleton") for sql in some], len(some)),
    }
    taken = take_turns(ways, rounds)
    size = f"SQL of {mean(map(len, texts)):.0f} characters"
    return [
        line_of(f"mask {name}: {size}", taken, name, "sqlglot", unit="query")
        for name in ("literals", "skeleton")
    ]
