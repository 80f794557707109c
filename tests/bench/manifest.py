"""Writing a manifest: column batches streamed to Parquet, beside pyarrow from row dictionaries."""

import itertools
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from envbuild.io.parquet import columns_of, write_batches
from envbuild.manifest.build import GROUP_OF_ROWS, regroup
from envbuild.manifest.read import ROW_SCHEMA
from envbuild.records.manifest import ManifestRow
from tests.bench import Measured, line_of, take_turns
from tests.bench.inputs import gold_queries, table_name

PART_ROWS = 4096
"""Rows of one part, as a manifest is built."""
PARTS = 32


def measure(rounds: int) -> Sequence[Measured]:
    """Microseconds of CPU a row, the columns being there; medians over the rounds."""
    rows = [_row(number, sql) for number, sql in enumerate(gold_queries(PART_ROWS, tables=75))]
    batch = columns_of(rows, ROW_SCHEMA)
    dictionaries = batch.to_pylist()
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        streamed, peer = Path(folder, "ours.parquet"), Path(folder, "peer.parquet")

        def stream() -> None:
            parts = itertools.repeat(batch, PARTS)
            write_batches(streamed, regroup(parts, rows=GROUP_OF_ROWS), ROW_SCHEMA)

        ways: dict[str, tuple[Callable[[], object], int]] = {
            "row dictionaries": (partial(_write_dictionaries, peer, dictionaries), PART_ROWS),
            "streamed": (stream, PART_ROWS * PARTS),
        }
        taken = take_turns(ways, rounds)
    what = f"write a manifest: {PART_ROWS * PARTS:,} rows of {len(ROW_SCHEMA)} columns"
    return [line_of(what, taken, "streamed", "row dictionaries", unit="row")]


def _row(number: int, sql: str) -> ManifestRow:
    tables = tuple(table_name((number + step) % 75) for step in range(4 + number % 61))
    return ManifestRow(
        row_id=f"bench/database_{number // 60}/{number:06}",
        corpus="bench",
        split="train",
        question_id=f"{number:06}",
        db_id=f"database_{number // 60}",
        question=f"Which customers of order {number} spent more than the mean of their region?",
        style="verbose",
        gold_sql=sql,
        masked_length=len(sql),
        bucket=("short", "medium", "long")[number % 3],
        difficulty="moderate",
        gold_tables=tables[:3],
        literals=("'high'", "'low'", str(number)),
        signal=number % 100 / 100,
        signal_mutants=12,
        tables=tables,
        distractors=tables[3:],
        target_size=len(tables),
        seed=number * 7919,
        sqlite_file=f"../corpus/bench/databases/database_{number // 60}.sqlite",
        database_sha256=f"{number // 60:064x}",
        gold_id=f"bench/database_{number // 60}/{number:016x}",
        gold_digest=f"{number:064x}",
        gold_rows=number % 50,
        gold_columns=2,
        gold_ordered=bool(number % 2),
    )


def _write_dictionaries(path: Path, rows: list[dict[str, Any]]) -> None:
    """As most scripts write Parquet: from rows given as dictionaries."""
    pq.write_table(pa.Table.from_pylist(rows, schema=ROW_SCHEMA), path, compression="zstd")
