"""Finished parts joined into the manifest's files: streamed, sorted as the parts are."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from envbuild.buckets.edges import NAMES_OF_TWO_EDGES
from envbuild.io.parquet import write_batches
from envbuild.manifest.arrow_files import iter_batches
from envbuild.manifest.layout import (
    GOLD_FILE,
    GOLD_SCHEMA,
    REJECT_SCHEMA,
    REJECTS_FILE,
    ROW_SCHEMA,
    ROWS_FILE,
    VARIANT_SCHEMA,
    VARIANTS_FILE,
)
from envbuild.manifest.make_part import PartCounts
from envbuild.manifest.parts import Part

GROUP_OF_ROWS = 32 * 1024
"""A row names up to 128 tables: twice as many rows a group would take twice the memory."""
GOLD_GROUP_ROWS = 4096
VARIANT_GROUP_ROWS = 32
GOLD_GROUP_BYTES = 16 * 1024 * 1024
"""A row group of gold results, so that reading one of them reads little besides."""


class ManifestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every question: offered = rows + rejects, over all reasons."""

    offered: int
    rows: int
    golds: int
    rejects: dict[str, int]
    buckets: dict[str, int]
    sizes: dict[int, int]
    variants: dict[str, int] = {}
    """`made`, and reason -> golds that a variant cannot judge."""

    @property
    def rejected(self) -> int:
        """Questions (phrasings) left out, whatever the reason."""
        return sum(self.rejects.values())


def write_manifest(out: Path, parts: list[Part]) -> None:
    """Writes manifest.parquet, gold.parquet and rejects.parquet from the parts' own files."""
    rows = (batch for part in parts for batch in iter_batches(part.file("rows")))
    write_batches(out / ROWS_FILE, regroup(rows, rows=GROUP_OF_ROWS), ROW_SCHEMA)
    golds = (batch for part in parts for batch in iter_batches(part.file("golds")))
    grouped = regroup(golds, rows=GOLD_GROUP_ROWS, size=GOLD_GROUP_BYTES)
    write_batches(out / GOLD_FILE, grouped, GOLD_SCHEMA)
    rejects = (batch for part in parts for batch in iter_batches(part.file("rejects")))
    write_batches(out / REJECTS_FILE, regroup(rejects, rows=GROUP_OF_ROWS), REJECT_SCHEMA)
    if any(part.settings.variants for part in parts):
        made = (batch for part in parts for batch in iter_batches(part.file("variants")))
        grouped = regroup(made, rows=VARIANT_GROUP_ROWS, size=GOLD_GROUP_BYTES)
        write_batches(out / VARIANTS_FILE, grouped, VARIANT_SCHEMA)
    else:  # an earlier manifest's, left by a kill
        (out / VARIANTS_FILE).unlink(missing_ok=True)


def add_up(counts: Iterable[PartCounts]) -> ManifestCounts:
    """The parts' counts taken together."""
    offered = rows = golds = 0
    rejects: Counter[str] = Counter()
    buckets: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    variants: Counter[str] = Counter()
    for part in counts:
        offered, rows, golds = offered + part.offered, rows + part.rows, golds + part.golds
        rejects.update(part.rejects)
        buckets.update(part.buckets)
        sizes.update(part.sizes)
        variants.update(part.variants)
    return ManifestCounts(
        offered=offered,
        rows=rows,
        golds=golds,
        rejects=dict(sorted(rejects.items())),
        buckets={name: buckets[name] for name in sorted(buckets, key=_bucket_order)},
        sizes=dict(sorted(sizes.items())),
        variants=dict(sorted(variants.items())),
    )


def _bucket_order(name: str) -> tuple[int, str]:
    """Shortest first: short, medium, long; b0, b1, …, b10."""
    if name in NAMES_OF_TWO_EDGES:
        return (NAMES_OF_TWO_EDGES.index(name), "")
    return (int(name[1:]), name)


def regroup(
    batches: Iterable[pa.RecordBatch], *, rows: int, size: int | None = None
) -> Iterator[pa.Table]:
    """The same rows in tables of `rows` (the last may have fewer), or of about `size` bytes."""
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            step = min(rows - held_rows, batch.num_rows - start)
            if size is not None:
                step = min(step, max(1, _rows_within(batch, start, size - held_bytes)))
            piece = batch.slice(start, step)
            held.append(piece)
            held_rows += step
            held_bytes += piece.nbytes
            start += step
            if held_rows == rows or (size is not None and held_bytes >= size):
                yield pa.Table.from_batches(held)
                held, held_rows, held_bytes = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _rows_within(batch: pa.RecordBatch, start: int, size: int) -> int:
    """How many rows from `start` on fit into `size` bytes, judged row by row."""
    if batch.slice(start).nbytes <= size:
        return int(batch.num_rows) - start
    total = 0
    for place in range(start, batch.num_rows):
        total += batch.slice(place, 1).nbytes
        if total > size:
            return place - start
    return int(batch.num_rows) - start
