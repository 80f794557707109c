"""Builds a manifest: parts fanned out, resumed and joined; the index file last (CONTRACT 6)."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.fanout import run_shards, shard_of
from envbuild.errors import CorpusFolderError, UsageError
from envbuild.io.files import only_writer, write_bytes, writing
from envbuild.io.parquet import write_batches
from envbuild.manifest.buckets import NAMES_OF_TWO_EDGES
from envbuild.manifest.layout import (
    FORMAT,
    GOLD_FILE,
    GOLD_SCHEMA,
    LOCK_FILE,
    MANIFEST_FILE,
    PARTS_FOLDER,
    REJECT_SCHEMA,
    REJECTS_FILE,
    ROW_SCHEMA,
    ROWS_FILE,
    VARIANT_SCHEMA,
    VARIANTS_FILE,
)
from envbuild.manifest.partition import (
    Part,
    VariantMaker,
    iter_batches,
    partition_questions,
    plan_parts,
    remove_questions,
)
from envbuild.manifest.rows import ManifestCounts, make_part
from envbuild.manifest.settings import (
    BEGUN_FILE,
    ManifestSettings,
    check_names,
    check_same,
    check_styles,
    configuration_of,
    read_begun,
    read_index,
    remove_other,
)
from envbuild.sql.connect import VERSIONS


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What a build came to."""

    out: Path
    counts: ManifestCounts
    """Of the finished parts."""
    parts: int
    parts_done: int
    """Fewer than `parts` where other shards are still to be built."""

    @property
    def complete(self) -> bool:
        """True where the manifest is there, False where more shards are wanted."""
        return self.parts == self.parts_done


def build_manifest(
    corpora: list[CorpusFolder],
    out: Path,
    *,
    settings: ManifestSettings,
    workers: int | None = None,
    engine: str = "local",
    shard: tuple[int, int] | None = None,
    watch: Callable[[int, int], None] | None = None,
    maker: VariantMaker | None = None,
    replace: bool = False,
) -> Built:
    """Writes the question pool of these corpora into `out`; the same bytes for any workers.

    A finished part is never made twice: an interrupted build goes on, and a complete one is only
    read. `shard` (index, count) makes only that share of the parts; a run without it then joins
    them. `watch(done, parts)` hears of progress; `maker` makes the hidden variants that the
    settings ask for. Raises ConfigurationError, naming what differs, where `out` was begun with
    other settings or inputs, unless `replace` says that it then goes; CorpusFolderError where there
    is no question.
    """
    settings.check()
    if settings.variants and maker is None:
        raise UsageError("a manifest with hidden variants needs a function that makes them")
    check_names(corpora)
    check_styles(settings, corpora)
    if replace and shard is not None:
        raise UsageError("--replace goes without --shard: other shards may be building there")
    configuration = configuration_of(settings, corpora)
    if not replace and (out / MANIFEST_FILE).is_file():
        return _read_complete(out, configuration)
    folder = out / PARTS_FOLDER
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # shards build side by side; two whole runs would remove each other's parts
    with only_writer(folder, file=LOCK_FILE, of=out, shared=shard is not None):
        if replace:
            remove_other(out, configuration)
            if (out / MANIFEST_FILE).is_file():
                return _read_complete(out, configuration)
        _begin(folder, configuration)
        parts = plan_parts(corpora, settings, folder=folder, out=out, maker=maker)
        if not parts:
            names = ", ".join(corpus.name for corpus in corpora)
            raise CorpusFolderError(f"no questions in {names}: nothing to put into a manifest")
        wanted = [
            part for part in parts if not part.file("done").exists() and _is_ours(part, shard)
        ]
        for corpus in corpora:
            own = [part for part in wanted if part.corpus == corpus.name]
            with writing(folder):
                partition_questions(corpus, own, settings.limit)
        before = sum(part.file("done").exists() for part in parts)
        if len(wanted) <= 1:  # done in this process: starting another would only cost time
            workers = 1
        results = run_shards(make_part, wanted, workers=workers, engine=engine)
        for done, number in enumerate(results, start=1):
            remove_questions(parts[number])
            if watch:
                watch(before + done, len(parts))
        finished = [_read_counts(part) for part in parts if part.file("done").exists()]
        built = Built(out=out, counts=add_up(finished), parts=len(parts), parts_done=len(finished))
        if built.complete and shard is None:
            write_manifest(out, parts)
            edges = {c.name: list(settings.cutting(c)[0].values) for c in corpora}
            _write_index(out, configuration, built, edges)
            shutil.rmtree(folder)
        return built


def _is_ours(part: Part, shard: tuple[int, int] | None) -> bool:
    return shard is None or shard_of(f"{part.corpus}/{part.number}", shard[1]) == shard[0]


def _begin(folder: Path, configuration: dict[str, Any]) -> None:
    """Writes down what the parts are made with, or compares it with what they were made with."""
    if (before := read_begun(folder)) is not None:
        check_same(before, configuration, f"{folder.parent} was begun with")
    else:
        write_bytes(folder / BEGUN_FILE, msgspec.json.encode(configuration))


def _read_counts(part: Part) -> ManifestCounts:
    return msgspec.json.decode(part.file("done").read_bytes(), type=ManifestCounts)


def _read_complete(out: Path, configuration: dict[str, Any]) -> Built:
    index = read_index(out)
    check_same(index["configuration"], configuration, f"{out} holds a manifest made with")
    shutil.rmtree(out / PARTS_FOLDER, ignore_errors=True)
    counts = msgspec.convert(index["counts"], ManifestCounts, strict=False)
    return Built(out=out, counts=counts, parts=index["parts"], parts_done=index["parts"])


def _write_index(
    out: Path, configuration: dict[str, Any], built: Built, edges: dict[str, list[int]]
) -> None:
    """`edges`: corpus -> the lengths at which its buckets begin, wherever they came from."""
    index = {
        "format": FORMAT,
        "configuration": configuration,
        "edges": edges,
        "counts": built.counts,
        "parts": built.parts,
        "versions": VERSIONS,
    }
    encoded = msgspec.json.format(msgspec.json.encode(index), indent=2)
    write_bytes(out / MANIFEST_FILE, encoded + b"\n")


GROUP_OF_ROWS = 32 * 1024
"""A row names up to 128 tables: twice as many rows a group would take twice the memory."""
GOLD_GROUP_ROWS = 4096
VARIANT_GROUP_ROWS = 32
GOLD_GROUP_BYTES = 16 * 1024 * 1024
"""A row group of gold results, so that reading one of them reads little besides."""


def write_manifest(out: Path, parts: list[Part]) -> None:
    """Writes manifest.parquet, gold.parquet and rejects.parquet from the parts' own files."""

    def join(
        file: str, ending: str, schema: pa.Schema, *, rows: int, size: int | None = None
    ) -> None:
        batches = (batch for part in parts for batch in iter_batches(part.file(ending)))
        write_batches(out / file, regroup(batches, rows=rows, size=size), schema)

    join(ROWS_FILE, "rows", ROW_SCHEMA, rows=GROUP_OF_ROWS)
    join(GOLD_FILE, "golds", GOLD_SCHEMA, rows=GOLD_GROUP_ROWS, size=GOLD_GROUP_BYTES)
    join(REJECTS_FILE, "rejects", REJECT_SCHEMA, rows=GROUP_OF_ROWS)
    if any(part.settings.variants for part in parts):
        rows, size = VARIANT_GROUP_ROWS, GOLD_GROUP_BYTES
        join(VARIANTS_FILE, "variants", VARIANT_SCHEMA, rows=rows, size=size)
    else:  # an earlier manifest's, left by a kill
        (out / VARIANTS_FILE).unlink(missing_ok=True)


def add_up(counts: Sequence[ManifestCounts]) -> ManifestCounts:
    """The parts' counts taken together."""

    def added(field: str) -> Counter[Any]:
        total: Counter[Any] = Counter()
        for part in counts:
            total.update(getattr(part, field))
        return Counter(dict(sorted(total.items())))

    buckets = added("buckets")
    return ManifestCounts(
        offered=sum(part.offered for part in counts),
        rows=sum(part.rows for part in counts),
        golds=sum(part.golds for part in counts),
        rejects=added("rejects"),
        buckets={name: buckets[name] for name in sorted(buckets, key=_bucket_order)},
        sizes=added("sizes"),
        variants=added("variants"),
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
