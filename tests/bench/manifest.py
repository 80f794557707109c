"""Writing a manifest: column batches streamed to Parquet, beside pyarrow from row dictionaries."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from envbuild.io.parquet import columns_of, write_batches
from envbuild.manifest.build import GROUP_OF_ROWS, regroup
from envbuild.manifest.read import ROW_SCHEMA
from envbuild.records.manifest import ManifestRow
from tests.bench.inputs import gold_queries, table_name

PART_ROWS = 4096
"""Rows of one part, as a manifest is built."""
PARTS = 32


def measure(rounds: int) -> list[dict[str, object]]:
    """Rows a second of CPU, the columns being there; medians over the rounds."""
    rows = [_row(number, sql) for number, sql in enumerate(gold_queries(PART_ROWS, tables=75))]
    batch = columns_of(rows, ROW_SCHEMA)
    count = PART_ROWS * PARTS
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        streamed, peer = Path(folder, "ours.parquet"), Path(folder, "peer.parquet")
        dictionaries = batch.to_pylist()
        for _ in range(rounds):
            theirs.append(_cpu(lambda: _write_dictionaries(peer, dictionaries)) / PART_ROWS)
            ours.append(
                _cpu(
                    lambda: write_batches(
                        streamed, regroup(_repeat(batch), rows=GROUP_OF_ROWS), ROW_SCHEMA
                    )
                )
                / count
            )
    ratios = [their / own for their, own in zip(theirs, ours, strict=True)]
    return [
        {
            "what": f"write a manifest: {count:,} rows of {len(ROW_SCHEMA)} columns",
            "envbuild_rows_a_second": round(1 / median(ours)),
            "row_dictionaries_rows_a_second": round(1 / median(theirs)),
            "ratio": round(median(ratios), 1),
        }
    ]


def _repeat(batch: Any) -> Iterator[Any]:
    for _ in range(PARTS):
        yield batch


def _cpu(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


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
