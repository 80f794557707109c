"""Rows per table over whole corpora: the first thing preflight shows."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from operator import gt, lt
from pathlib import Path

import msgspec
import numpy as np

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.errors import ConfigurationError, SchemaError
from envbuild.io.packs import packed_file
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


def measure_corpus(
    folder: CorpusFolder,
    thresholds: Thresholds,
    *,
    on_counted: Callable[[int], None] = lambda databases: None,
) -> MeasuredCorpus:
    """One folder with its rows per table; `on_counted` hears of each database.

    The counts are the catalogue's where a database is as large as it says, no younger, and no log
    lies beside it; else its own.
    """
    written = (folder.root / INDEX_FILE).stat().st_mtime_ns
    catalogued: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for table in folder.tables():
        catalogued[table.db_id][table.table] = table.rows
    databases = []
    for row in folder.databases():
        path, unreadable = folder.database_path(row.db_id), ""
        counts: dict[str, int] | None = catalogued[row.db_id]
        try:
            if packed_file(path) is None and (
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
        on_counted(1)
    counts_known = [each.counts.values() for each in databases if each.counts is not None]
    statistics = row_statistics(counts_known, thresholds)
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
    ordered = np.sort([rows for tables in databases for rows in tables])
    tables = max(1, len(ordered))
    p10, middle, p90 = np.quantile(ordered, (0.1, 0.5, 0.9)) if len(ordered) else (0.0, 0.0, 0.0)
    ends = np.searchsorted(ordered, (*BIN_EDGES[1:], np.inf))
    statistics = RowStatistics(
        databases=len(databases),
        tables=len(ordered),
        rows=int(ordered.sum()),
        median=float(middle),
        p10=float(p10),
        p90=float(p90),
        mean=float(ordered.sum() / tables),
        share_empty=int(ends[0]) / tables,
        share_at_most_2=int(ends[2]) / tables,
        histogram=tuple(np.diff(ends, prepend=0).tolist()),
    )
    crossed = list(_crossed(statistics, thresholds))
    severities = {severity for severity, _ in crossed}
    return msgspec.structs.replace(
        statistics,
        verdict=next((worst for worst in Severity if worst in severities), None),
        reasons=tuple(reason for _, reason in crossed),
    )


def _crossed(s: RowStatistics, t: Thresholds) -> Iterator[tuple[Severity, str]]:
    """Each threshold crossed, with the sentence that says so."""
    if not s.tables:
        yield Severity.ERROR, "there are no tables"
        return
    few, empty, thin = (
        "median rows per table {:g} is below {:g}",
        "{:.1%} of tables are empty, more than {:.0%}",
        "{:.1%} of tables have at most 2 rows, more than {:.0%}",
    )
    for crosses, sentence, value, error, warning in (
        (lt, few, s.median, t.median_error, t.median_warning),
        (gt, empty, s.share_empty, t.share_empty_error, t.share_empty_warning),
        (gt, thin, s.share_at_most_2, t.share_at_most_2_error, t.share_at_most_2_warning),
    ):
        if crosses(value, error):
            yield Severity.ERROR, sentence.format(value, error)
        elif crosses(value, warning):
            yield Severity.WARNING, sentence.format(value, warning)
