"""Rows per table over whole corpora, kept between runs: the first thing preflight shows."""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.fanout import shard_of
from envbuild.errors import ConfigurationError, OutputError, SchemaError
from envbuild.io.files import write_bytes
from envbuild.records.corpus import DatabaseRow
from envbuild.records.preflight import BIN_EDGES, RowStatistics, Severity, Thresholds
from envbuild.records.signal import SignalThresholds
from envbuild.sql.connect import has_log
from envbuild.sql.files.inspect import count_rows

# Thresholds from a TOML file.


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


# Row counts kept between runs, so that large cold files are read once.
#
# They live in the user's cache folder, since a corpus may be read-only and its bytes must not
# depend on who looked at it. An entry holds only for the same path, size and time of change.


SMALLEST_KEPT = 256 * 1024
"""Bytes; a smaller file is counted faster than an entry is looked up."""


class CountedFile(msgspec.Struct, frozen=True, array_like=True):
    """One file's counts and what they hold for."""

    size: int
    changed_ns: int
    counts: dict[str, int]


_ENTRIES = msgspec.msgpack.Decoder(type=dict[str, CountedFile])


class RowCountCache:
    """Row counts of the files below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._entries: dict[str, CountedFile] = {}
        self._changed = False

    @classmethod
    def load(cls, root: Path) -> "RowCountCache":
        """What an earlier run kept; nothing where it kept none or the file is damaged."""
        cache = cls(root)
        try:
            cache._entries = _ENTRIES.decode(cache._file.read_bytes())
        except (OSError, msgspec.MsgspecError):
            cache._entries = {}
        return cache

    def get(self, path: Path) -> dict[str, int] | None:
        """The counts of this very file; None where they are not known."""
        entry = self._entries.get(str(path)) if self._entries else None
        if entry is None:
            return None
        status = path.stat()
        same = (entry.size, entry.changed_ns) == (status.st_size, status.st_mtime_ns)
        return dict(entry.counts) if same and not has_log(str(path.absolute())) else None

    def put(self, path: Path, counts: dict[str, int]) -> None:
        """Keeps the counts of a file large enough to be worth it."""
        status = path.stat()
        if status.st_size >= SMALLEST_KEPT and not has_log(str(path.absolute())):
            self._entries[str(path)] = CountedFile(status.st_size, status.st_mtime_ns, counts)
            self._changed = True

    def save(self) -> None:
        """Writes what is new; a cache folder that cannot be written costs only time."""
        if not self._changed:
            return
        try:
            write_bytes(self._file, msgspec.msgpack.encode(self._entries))
        except OutputError:
            return

    @property
    def _file(self) -> Path:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        name = hashlib.sha256(str(self._root).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        return Path(home) / "envbuild" / "row-counts" / f"{name}.msgpack"


# Rows per table over a corpus, and whether they are enough (the first thing preflight says).


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
    return _judged(statistics, thresholds)


def quantile(ordered: Sequence[int], share: float) -> float:
    """The quantile of sorted values, linear between neighbours; 0 where there are none."""
    if not ordered:
        return 0.0
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _judged(statistics: RowStatistics, thresholds: Thresholds) -> RowStatistics:
    crossed = list(_crossed(statistics, thresholds))
    worst = Severity.ERROR if any(s is Severity.ERROR for s, _ in crossed) else None
    return msgspec.structs.replace(
        statistics,
        verdict=worst or (Severity.WARNING if crossed else None),
        reasons=tuple(reason for _, reason in crossed),
    )


def _crossed(s: RowStatistics, t: Thresholds) -> Iterable[tuple[Severity, str]]:
    """Each threshold crossed, with the sentence that says so."""
    if not s.tables:
        yield Severity.ERROR, "there are no tables"
        return
    for limit, severity in ((t.median_error, Severity.ERROR), (t.median_warning, Severity.WARNING)):
        if s.median < limit:
            yield severity, f"median rows per table {s.median:g} is below {limit:g}"
            break
    shares = (
        ("are empty", s.share_empty, t.share_empty_error, t.share_empty_warning),
        (
            "have at most 2 rows",
            s.share_at_most_2,
            t.share_at_most_2_error,
            t.share_at_most_2_warning,
        ),
    )
    for label, share, error, warning in shares:
        if share > warning:
            limit = error if share > error else warning
            severity = Severity.ERROR if share > error else Severity.WARNING
            yield severity, f"{share:.1%} of tables {label}, more than {limit:.0%}"


# Rows per table of whole corpora: the first thing preflight shows, before any check runs.


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
