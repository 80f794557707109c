"""A database cut down to some of its tables, as the bytes of a SQLite file.

Only these tables exist in it: their rows with their rowids, their indexes and statistics, and the
views that read nothing else. Triggers are left out, since nothing is ever written. Foreign keys to
other tables are left out of the DDL; everything else in it stays as written.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from envbuild.errors import CorpusError
from envbuild.sql.connect import quote_name, read_only_uri
from envbuild.sql.files.references import drop_references
from envbuild.sql.files.view_rows import Entry, copy_rows, read_shapes
from envbuild.sql.files.view_tables import create_tables, in_cut
from envbuild.sql.forks import renew_in_children
from envbuild.sql.names import fold_name
from envbuild.sql.text.from_names import oversized_views

_SMALL = 4 * 1024 * 1024
_OBJECTS = """
SELECT type, name, tbl_name, ifnull(CAST(sql AS TEXT), '') FROM main.sqlite_schema
WHERE type <> 'trigger' AND (type = 'view' OR name = 'sqlite_stat1'
OR tbl_name COLLATE NOCASE IN ({names})) ORDER BY rowid"""
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI


def build_view_image(path: Path, tables: Sequence[str]) -> bytes:
    """A SQLite image of the database at `path` in which only `tables` exist, in that order.

    Names match as SQLite matches them. Raises CorpusError (`no_table`, `view_not_built`) for a name
    the database lacks and for what SQLite does not copy.
    """
    with closing(ViewBuilder(path)) as builder:
        return builder.image(tables)


class ViewBuilder:
    """Builds view after view of one database, whose schema SQLite then parses only once.

    Safe to share among threads, and after a fork. The source is the connection's main database,
    read only, since its own views and triggers may name `main`; each view is a database attached
    as `cut` while it is made.
    """

    def __init__(self, path: Path) -> None:
        """Raises CorpusError (`view_not_built`) where `path` is no database."""
        self.path = Path(path)
        self.renew_locks()
        self._open()
        renew_in_children(self)

    def image(self, tables: Sequence[str]) -> bytes:
        """The view as bytes; see `build_view_image`."""
        with self._lock, self._cut(":memory:") as connection:
            # Small tables fill small pages better, and an image is copied at every open.
            connection.execute(f"PRAGMA cut.page_size = {self._page_size}")
            self._source.fill(connection, tables)
            return connection.serialize("cut")

    def write(self, tables: Sequence[str], out: Path) -> None:
        """The view as a new file at `out`, without ever holding it in memory.

        Raises as `image` does and then leaves a torn file: write to a temporary name.
        """
        with self._lock, self._cut(str(out)) as connection:
            connection.execute("PRAGMA cut.journal_mode = OFF; PRAGMA cut.synchronous = OFF")
            self._source.fill(connection, tables)

    def renew_locks(self) -> None:
        """For a forked child: another thread of the parent may have been building."""
        self._lock = threading.Lock()

    def close(self) -> None:
        """Lets the source go; a second call does nothing."""
        with self._lock:
            if self._pid == os.getpid():
                self._connection.close()

    @contextmanager
    def _cut(self, target: str) -> Iterator[apsw.Connection]:
        if self._pid != os.getpid():
            _left_to_the_parent.append(self._connection)
            self._open()
        connection = self._connection
        try:
            connection.execute("ATTACH ? AS cut", (target,))
            try:
                yield connection
            finally:
                connection.execute("DETACH cut")
        except (apsw.Error, UnicodeDecodeError) as e:
            raise CorpusError("view_not_built", str(e)) from e

    def _open(self) -> None:
        self._pid = os.getpid()
        try:
            self._page_size = 1024 if self.path.stat().st_size <= _SMALL else 4096
            self._connection = apsw.Connection(read_only_uri(self.path), flags=_FLAGS)
        except (apsw.Error, OSError) as e:
            raise CorpusError("view_not_built", str(e)) from e
        try:
            self._source = _Source()
            # Switches off what would act on rows being copied, and reads the schema.
            self._connection.execute("PRAGMA ignore_check_constraints = ON")
        except apsw.Error as e:
            self._connection.close()
            raise CorpusError("view_not_built", str(e)) from e


_left_to_the_parent: list[apsw.Connection] = []
"""Connections inherited by a fork: closing them here could wait for a lock held over there."""


class _Source:
    """The source's schema entries as they stand there, each read when a view first wants it."""

    def __init__(self) -> None:
        self.tables: dict[str, Entry] = {}
        """Folded name -> table."""
        self.indexes: dict[str, list[Entry]] = {}
        """Folded table name -> its indexes."""
        self.views: dict[str, Entry] = {}

    def fill(self, connection: apsw.Connection, tables: Sequence[str]) -> None:
        """Puts these tables, and what goes with them, into the attached `cut`."""
        names = [name for name in dict.fromkeys(map(fold_name, tables)) if name[:7] != "sqlite_"]
        self._learn(connection, names)
        for name in names:  # SQLite's internal tables make themselves
            if name not in self.tables:
                raise CorpusError("no_table", f"the database has no table {name!r}", table=name)
        chosen = [self.tables[name] for name in names]
        shapes = read_shapes(connection, chosen)
        with connection:
            create_tables(connection, self._entries(names))
            # Indexes came before the rows: SQLite then copies both as they are, without sorting.
            copy_rows(connection, chosen, shapes)
            if "sqlite_stat1" in self.tables:
                _copy_statistics(connection, [table.name for table in chosen])
            if self.views:
                _copy_views(connection, list(self.views.values()))

    def _entries(self, names: list[str]) -> Iterator[Entry]:
        """The tables, then their indexes, less those that constraints make themselves."""
        kept = frozenset(names)
        for name in names:
            kind, declared, table, sql = self.tables[name]
            yield Entry(kind, declared, table, drop_references(sql, kept))
        for name in names:
            yield from (index for index in self.indexes.get(name, ()) if index.sql)

    def _learn(self, connection: apsw.Connection, names: list[str]) -> None:
        """Reads the entries of tables that no view has had before; most are in none."""
        unknown = [name for name in names if name not in self.tables]
        if not unknown:
            return
        sql = _OBJECTS.format(names=", ".join("?" * len(unknown)))
        for kind, name, table, text in connection.execute(sql, unknown, can_cache=False):
            entry = Entry(kind, name, table, text)
            if kind == "table":
                self.tables[fold_name(name)] = entry
            elif kind == "index":
                self.indexes.setdefault(fold_name(table), []).append(entry)
            else:
                self.views[name] = entry


def _copy_statistics(connection: apsw.Connection, tables: list[str]) -> None:
    """ANALYZE's figures, so that the planner chooses as it does on the whole database."""
    marks = ", ".join("?" for _ in tables)
    connection.execute("ANALYZE cut.sqlite_schema")
    connection.execute(
        "INSERT INTO cut.sqlite_stat1 (tbl, idx, stat) "
        f"SELECT tbl, idx, stat FROM main.sqlite_stat1 WHERE tbl IN ({marks})",
        tables,
    )


def _copy_views(connection: apsw.Connection, views: list[Entry]) -> None:
    """The views that compile over what is here; others, and views over them, leave no trace.

    Those that stand for too many reads to be compiled are others.
    """
    oversized = oversized_views({view.name: view.sql for view in views})
    kept = [view for view in views if fold_name(view.name) not in oversized]
    remaining = [quote_name(view.name) for view in kept if _is_made(connection, view)]
    while remaining:
        broken = [name for name in remaining if not _compiles(connection, name)]
        if not broken:
            return
        connection.execute("PRAGMA cut.secure_delete = ON")  # their text names hidden tables
        for name in broken:
            connection.execute(f"DROP VIEW cut.{name}")
        remaining = [name for name in remaining if name not in broken]


def _is_made(connection: apsw.Connection, view: Entry) -> bool:
    """False for a view that names `main`, which an attached database does not take."""
    try:
        connection.execute(in_cut(view.sql))
    except apsw.SQLError:
        return False
    return True


def _compiles(connection: apsw.Connection, view: str) -> bool:
    try:
        connection.execute(f"EXPLAIN SELECT * FROM cut.{view}")
    except apsw.SQLError:
        return False
    return True
