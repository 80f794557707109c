"""Samples of the same questions: a corpus's as its manifest would have them, each checked on a
real view of it, and a manifest's over views of other sizes (the distractor ladder)."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.engine.fanout import run_shards
from envbuild.errors import ConfigurationError
from envbuild.io.files import atomic_path
from envbuild.io.parquet import write_records
from envbuild.manifest.build import PartInput, add_up, plan_parts, read_parts, write_index
from envbuild.manifest.read import (
    GOLD_FILE,
    MANIFEST_FILE,
    REJECT_SCHEMA,
    REJECTS_FILE,
    ROW_SCHEMA,
    ROWS_FILE,
    VARIANTS_FILE,
    Manifest,
    open_manifest,
    read_index,
)
from envbuild.manifest.rows import RowBuilder
from envbuild.manifest.settings import ManifestSettings, check_corpora
from envbuild.records.corpus import Reject
from envbuild.records.manifest import ManifestRow
from envbuild.schema.graph import SchemaGraph
from envbuild.schema.read import read_schema_of
from envbuild.schema.sampler import sample_schema


class ShownSample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample in full."""

    row_id: str
    question: str
    tables: tuple[str, ...]
    """In shown order."""
    gold_tables: tuple[str, ...]
    distractors: tuple[str, ...]
    target_size: int
    seed: int
    foreign_keys: tuple[str, ...]
    """`child.col -> parent.col`, those among the sample's tables."""


class SampleCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What sampling one corpus came to."""

    corpus: str
    questions: int
    """Phrasings counted one by one, each with a sample of its own."""
    samples: int
    sizes: dict[int, int]
    """Tables of a sample -> samples."""
    gold_sizes: dict[int, int]
    """Gold tables of a sample -> samples."""
    whole: int
    """Samples that hold every table of their database."""
    changed: tuple[tuple[str, str], ...] = ()
    """(row id, what differs) where a gold query no longer gives its result."""
    refused: dict[str, int] = {}
    """Reason -> questions that cannot be sampled at all."""


class SampleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every corpus's counts, and the first samples."""

    corpora: tuple[SampleCounts, ...]
    shown: tuple[ShownSample, ...]

    @property
    def num_changed(self) -> int:
        """Samples on which a gold query no longer gives its result."""
        return sum(len(corpus.changed) for corpus in self.corpora)


class SampledPart(NamedTuple):
    """One part's counts, and its first samples in full."""

    counts: SampleCounts
    shown: list[ShownSample]


def sample_corpora(
    corpora: list[CorpusFolder],
    *,
    settings: ManifestSettings,
    show: int = 1,
    workers: int | None = None,
    engine: str = "local",
    watch: Callable[[int, int], None] | None = None,
) -> SampleReport:
    """Draws every question's sample and runs its gold query on a view of just those tables.

    The samples are those of a manifest built with the same settings. Nothing is written. Raises
    CorpusFolderError without any question.
    """
    settings.check()
    check_corpora(corpora, settings)
    parts = plan_parts(corpora, settings, folder=Path(), out=Path())
    shards = ((given, show) for given in read_parts(parts))
    found: list[SampledPart] = []
    for sampled in run_shards(
        sample_part,
        shards,
        workers=1 if len(parts) == 1 else workers,
        engine=engine,
        shared_file=corpora[0].root / INDEX_FILE,
    ):
        found.append(sampled)
        if watch:
            watch(len(found), len(parts))
    by_corpus = groupby((part.counts for part in found), key=lambda counts: counts.corpus)
    return SampleReport(
        corpora=tuple(add_up(list(counts)) for _, counts in by_corpus),
        shown=tuple([shown for part in found for shown in part.shown][:show]),
    )


def sample_part(shard: tuple[PartInput, int]) -> SampledPart:
    """The counts of one part, and its first samples in full."""
    (part, databases), show = shard
    shown: list[ShownSample] = []
    changed: list[tuple[str, str]] = []
    refused: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    gold_sizes: Counter[int] = Counter()
    whole = 0
    for asked in databases:
        with RowBuilder(part.source, asked) as builder:
            for row_id, outcome in builder.outcomes(check_view=True):
                if not isinstance(outcome, Reject):
                    sizes[len(outcome.tables)] += 1
                    gold_sizes[len(outcome.gold_tables)] += 1
                    whole += len(outcome.tables) == len(builder.schema.tables)
                    if len(shown) < show:
                        shown.append(_shown(outcome, builder))
                elif outcome.reason == "view_differs":
                    changed.append((row_id, outcome.detail))
                else:
                    refused[outcome.reason] += 1
    counts = SampleCounts(
        corpus=part.source.corpus,
        questions=sizes.total() + len(changed) + refused.total(),
        samples=sizes.total(),
        sizes=sizes,
        gold_sizes=gold_sizes,
        whole=whole,
        changed=tuple(changed),
        refused=refused,
    )
    return SampledPart(counts, shown)


def _shown(row: ManifestRow, builder: RowBuilder) -> ShownSample:
    inside = set(row.tables)
    keys = (key for key in builder.schema.foreign_keys if {key.child, key.parent} <= inside)
    return ShownSample(
        row_id=row.row_id,
        question=row.question,
        tables=row.tables,
        gold_tables=row.gold_tables,
        distractors=row.distractors,
        target_size=row.target_size,
        seed=row.seed,
        foreign_keys=tuple(key.render() for key in keys),
    )


# The distractor ladder. Gold results are not computed again: building the manifest has proved
# that a gold reads nothing but its gold tables, and every view here holds them.


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
        before = read_index(out)
        if before.get("configuration") != configuration:
            raise ConfigurationError(f"{out} holds another manifest: choose another --out")
        return int(before["counts"]["rows"])
    count = write_records(out / ROWS_FILE, _resampled(manifest, out, size), ROW_SCHEMA)
    for file in (GOLD_FILE, VARIANTS_FILE):
        if (manifest.root / file).is_file():
            with atomic_path(out / file) as temporary:
                shutil.copyfile(manifest.root / file, temporary)
    write_records(out / REJECTS_FILE, (), REJECT_SCHEMA)
    counts = {"offered": count, "rows": count, "rejects": {}}
    made_with = manifest.index["format"]
    write_index(
        out,
        configuration,
        counts,
        edges=manifest.edges,
        licences=manifest.licences,
        format=made_with,
    )
    return count


def same_views(folder: Path, other: Path) -> int:
    """How many rows of two resampled manifests show the same tables, in whatever order."""
    tables = {row.row_id: frozenset(row.tables) for row in open_manifest(other).rows}
    return sum(tables[row.row_id] == frozenset(row.tables) for row in open_manifest(folder).rows)


def _resampled(manifest: Manifest, out: Path, size: Size) -> Iterator[ManifestRow]:
    """The manifest's rows in their order, each with a view of this size."""
    for _, rows in groupby(manifest.rows, key=lambda row: row.sqlite_file):
        first, *others = rows
        path = manifest.database_path(first)
        schema = read_schema_of(path)
        graph = SchemaGraph(schema)
        for row in (first, *others):
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
