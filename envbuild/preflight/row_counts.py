"""Rows per table over whole corpora: the first thing preflight shows."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.engine.fanout import shard_of
from envbuild.errors import ConfigurationError, SchemaError
from envbuild.preflight.subjects import DatabaseInput
from envbuild.records.preflight import BIN_EDGES, RowStatistics, Severity, Thresholds
from envbuild.records.signal import SignalThresholds
from envbuild.sql.connect import has_log
from envbuild.sql.files.inspect import count_rows


class MeasuredCorpus(msgspec.Struct, frozen=True, kw_only=True):
    """One corpus with the rows of all its tables."""

    folder: CorpusFolder
    databases: tuple[DatabaseInput, ...]
    """Without their questions and rejects."""
    statistics: RowStatistics


def measure_corpora(
    folders: Sequence[CorpusFolder], thresholds: Thresholds
) -> list[MeasuredCorpus]:
    """The folders with their rows per table, in the order given."""
    return [measure_corpus(folder, thresholds) for folder in folders]


def measure_corpus(
    folder: CorpusFolder, thresholds: Thresholds, *, shard: tuple[int, int] | None = None
) -> MeasuredCorpus:
    """One folder with its rows per table.

    `shard` (index, count) leaves the databases of other shards out. The counts are the catalogue's
    where a database is as large as it says, no younger, and no log lies beside it; else its own.
    """
    written = (folder.root / INDEX_FILE).stat().st_mtime_ns
    catalogued: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for table in folder.tables():
        catalogued[table.db_id][table.table] = table.rows
    databases = []
    for row in folder.databases():
        if shard is not None and shard_of(row.db_id, shard[1]) != shard[0]:
            continue
        path, unreadable = folder.database_path(row.db_id), ""
        counts: dict[str, int] | None = catalogued[row.db_id]
        try:
            if (
                not path.is_file()
                or path.stat().st_size != row.bytes
                or path.stat().st_mtime_ns > written
                or has_log(str(path.absolute()))
            ):
                counts = count_rows(path)
        except SchemaError as e:
            counts, unreadable = None, e.detail
        databases.append(
            DatabaseInput(
                corpus=folder.name, row=row, path=path, counts=counts, unreadable=unreadable
            )
        )
    counted = [database.counts.values() for database in databases if database.counts is not None]
    statistics = row_statistics(counted, thresholds)
    return MeasuredCorpus(folder=folder, databases=tuple(databases), statistics=statistics)


def read_thresholds(path: Path | None) -> Thresholds:
    """The thresholds of a TOML file, the built-in ones where it names none (or there is no file).

    Raises ConfigurationError, naming the keys that would be valid.
    """
    if path is None:
        return Thresholds()
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Thresholds)
    except OSError as e:
        raise ConfigurationError(f"cannot read {path}: {e.strerror}") from e
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        own = ", ".join(name for name in Thresholds.__struct_fields__ if name != "signal")
        signal = ", ".join(SignalThresholds.__struct_fields__)
        raise ConfigurationError(
            f"{path}: {e}; thresholds are {own}, and in the table [signal] {signal}"
        ) from e


# Statistics over the counts, and whether they are enough.


def row_statistics(counts: Iterable[Iterable[int]], thresholds: Thresholds) -> RowStatistics:
    """Statistics over the row counts of each database's tables, judged by the thresholds."""
    databases = [list(tables) for tables in counts]
    ordered = sorted(rows for tables in databases for rows in tables)
    tables, rows = len(ordered), sum(ordered)
    histogram = [0] * len(BIN_EDGES)
    for count in ordered:
        histogram[bisect_right(BIN_EDGES, count) - 1] += 1
    statistics = RowStatistics(
        databases=len(databases),
        tables=tables,
        rows=rows,
        median=quantile(ordered, 0.5),
        p10=quantile(ordered, 0.1),
        p90=quantile(ordered, 0.9),
        mean=rows / tables if tables else 0.0,
        share_empty=bisect_right(ordered, 0) / tables if tables else 0.0,
        share_at_most_2=bisect_right(ordered, 2) / tables if tables else 0.0,
        histogram=tuple(histogram),
    )
    crossed = list(_crossed(statistics, thresholds))
    severities = {severity for severity, _ in crossed}
    return msgspec.structs.replace(
        statistics,
        verdict=next((worst for worst in Severity if worst in severities), None),
        reasons=tuple(reason for _, reason in crossed),
    )


def quantile(ordered: Sequence[int], share: float) -> float:
    """The quantile of sorted values, linear between neighbours; 0 where there are none."""
    if not ordered:
        return 0.0
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _crossed(s: RowStatistics, t: Thresholds) -> Iterator[tuple[Severity, str]]:
    """Each threshold crossed, with the sentence that says so."""
    if not s.tables:
        yield Severity.ERROR, "there are no tables"
        return
    if s.median < max(t.median_error, t.median_warning):
        is_error = s.median < t.median_error
        limit = t.median_error if is_error else t.median_warning
        reason = f"median rows per table {s.median:g} is below {limit:g}"
        yield Severity.ERROR if is_error else Severity.WARNING, reason
    few = "have at most 2 rows"
    for label, share, error, warning in (
        ("are empty", s.share_empty, t.share_empty_error, t.share_empty_warning),
        (few, s.share_at_most_2, t.share_at_most_2_error, t.share_at_most_2_warning),
    ):
        if share > warning:
            limit = error if share > error else warning
            severity = Severity.ERROR if share > error else Severity.WARNING
            yield severity, f"{share:.1%} of tables {label}, more than {limit:.0%}"
