"""The same questions over other views: one manifest more for each rung of the distractor ladder.

Gold results are not computed again: building the manifest has proved that a gold reads nothing
but its gold tables, and every view here holds them.
"""

import os
import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from envbuild.errors import ConfigurationError
from envbuild.io.files import atomic_path, write_bytes
from envbuild.io.parquet import write_records
from envbuild.manifest.layout import (
    GOLD_FILE,
    MANIFEST_FILE,
    REJECT_SCHEMA,
    REJECTS_FILE,
    ROW_SCHEMA,
    ROWS_FILE,
    VARIANTS_FILE,
)
from envbuild.manifest.read import Manifest, open_manifest
from envbuild.records.manifest import ManifestRow
from envbuild.schema.graph import SchemaGraph
from envbuild.schema.read import read_schema_of
from envbuild.schema.sampler import sample_schema
from envbuild.sql.connect import VERSIONS


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """One size of view."""

    name: str
    extra: int | None
    """Tables besides the gold ones; None: every table of the database."""


LADDER = (
    Size(name="gold", extra=0),
    Size(name="plus32", extra=32),
    Size(name="full", extra=None),
)
"""The gold tables alone, 32 distractors more, the whole schema."""


def resample_manifest(manifest: Manifest, out: Path, size: Size) -> int:
    """Writes a manifest of the same rows over views of another size; returns how many rows.

    A complete one is left as it is. Raises ConfigurationError where `out` holds another manifest.
    """
    configuration = {
        "resampled": size.name,
        "extra": size.extra,
        "of": manifest.index.get("configuration"),
    }
    if (out / MANIFEST_FILE).is_file():
        before = msgspec.json.decode((out / MANIFEST_FILE).read_bytes())
        if before.get("configuration") != configuration:
            raise ConfigurationError(f"{out} holds another manifest: choose another --out")
        return int(before["counts"]["rows"])
    count = write_records(out / ROWS_FILE, _rows(manifest, out, size), ROW_SCHEMA)
    with atomic_path(out / GOLD_FILE) as temporary:
        shutil.copyfile(manifest.root / GOLD_FILE, temporary)
    if (manifest.root / VARIANTS_FILE).is_file():
        with atomic_path(out / VARIANTS_FILE) as temporary:
            shutil.copyfile(manifest.root / VARIANTS_FILE, temporary)
    write_records(out / REJECTS_FILE, (), REJECT_SCHEMA)
    index = {
        "format": manifest.index["format"],
        "configuration": configuration,
        "edges": manifest.edges,
        "counts": {"offered": count, "rows": count, "rejects": {}},
        "parts": 1,
        "versions": VERSIONS,
    }
    write_bytes(out / MANIFEST_FILE, msgspec.json.format(msgspec.json.encode(index)) + b"\n")
    return count


def same_views(folder: Path, other: Path) -> int:
    """How many rows of two resampled manifests show the same tables, in whatever order."""
    tables = {row.row_id: frozenset(row.tables) for row in open_manifest(other).rows}
    return sum(tables[row.row_id] == frozenset(row.tables) for row in open_manifest(folder).rows)


def _rows(manifest: Manifest, out: Path, size: Size) -> Iterator[ManifestRow]:
    """The manifest's rows in their order, each with a view of this size."""
    for _, rows in groupby(manifest.rows, key=lambda row: row.sqlite_file):
        schema = graph = None
        for row in rows:
            path = manifest.database_path(row)
            if schema is None or graph is None:
                schema = read_schema_of(path)
                graph = SchemaGraph(schema)
            sample = sample_schema(
                schema,
                row.gold_tables,
                target=row.target_size,
                seed=row.seed,
                extra=size.extra,
                full=size.extra is None,
                graph=graph,
            )
            yield msgspec.structs.replace(
                row,
                tables=sample.tables,
                distractors=sample.distractors,
                target_size=len(sample.tables),
                sqlite_file=os.path.relpath(path, out),
            )
