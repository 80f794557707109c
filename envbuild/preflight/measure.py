"""Rows per table of whole corpora: the first thing preflight shows, before any check runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.fanout import shard_of
from envbuild.errors import SchemaError
from envbuild.preflight.row_count_cache import RowCountCache
from envbuild.preflight.row_statistics import row_statistics
from envbuild.records.corpus import DatabaseRow
from envbuild.records.preflight import RowStatistics, Thresholds
from envbuild.sql.files.row_counts import count_rows


class CountedDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """One database and the rows of its tables."""

    row: DatabaseRow
    path: Path
    counts: dict[str, int] | None
    """Rows by table; None where the file is no readable database."""
    unreadable: str = ""
    """Why it is not."""


class MeasuredCorpus(msgspec.Struct, frozen=True, kw_only=True):
    """One corpus with the rows of all its tables."""

    folder: CorpusFolder
    databases: tuple[CountedDatabase, ...]
    statistics: RowStatistics


def measure_corpora(
    folders: Sequence[CorpusFolder],
    thresholds: Thresholds,
    *,
    shard: tuple[int, int] | None = None,
    cached: bool = True,
) -> list[MeasuredCorpus]:
    """The folders with their rows per table, in the order given.

    `shard` (index, count) leaves the databases of other shards out. Counts are kept for the next
    run under (path, size, time of change), so that large cold files are read once.
    """
    return [measure_corpus(folder, thresholds, shard=shard, cached=cached) for folder in folders]


def measure_corpus(
    folder: CorpusFolder,
    thresholds: Thresholds,
    *,
    shard: tuple[int, int] | None = None,
    cached: bool = True,
) -> MeasuredCorpus:
    """One folder with its rows per table."""
    rows = [
        row
        for row in folder.databases()
        if shard is None or shard_of(row.db_id, shard[1]) == shard[0]
    ]
    databases = tuple(count_databases(folder, rows, cached=cached))
    counts = [database.counts.values() for database in databases if database.counts is not None]
    return MeasuredCorpus(
        folder=folder, databases=databases, statistics=row_statistics(counts, thresholds)
    )


def count_databases(
    folder: CorpusFolder, rows: Iterable[DatabaseRow], *, cached: bool
) -> list[CountedDatabase]:
    """Each database with its row counts, in the order given."""
    cache = RowCountCache.load(folder.root) if cached else RowCountCache(folder.root)
    found = []
    for row in rows:
        path = folder.database_path(row.db_id)
        counts, unreadable = cache.get(path), ""
        if counts is None:
            try:
                counts = count_rows(path)
                cache.put(path, counts)
            except SchemaError as e:
                unreadable = e.detail
        found.append(CountedDatabase(row=row, path=path, counts=counts, unreadable=unreadable))
    if cached:
        cache.save()
    return found
