"""A database cut down to some of its tables, as the bytes of a SQLite file."""

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import apsw

from envbuild.errors import CorpusError
from envbuild.sql.connect import quote_name, read_only_uri
from envbuild.sql.files.ddl import drop_references
from envbuild.sql.forks import renew_in_children
from envbuild.sql.from_names import oversized_views
from envbuild.sql.names import fold_name

# Copying tables' rows from the main database to the attached `cut`, rowids included.


_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_COLUMNS = "SELECT name, type, hidden, pk FROM pragma_table_xinfo(?, 'main')"
_KIND = "SELECT type, wr FROM pragma_table_list(?) WHERE schema = 'main'"
_TABLES_A_QUERY = 100


class Entry(NamedTuple):
    """One entry of sqlite_schema."""

    kind: str
    name: str
    table: str
    """The table it belongs to; its own name for a table."""
    sql: str
    """Empty for an index that a constraint makes."""


class Shape(NamedTuple):
    """How a table's rows can be copied."""

    rowid: str
    """A name for the rowid that no column takes; empty where a column is it or none is there."""
    by_column: bool = False
    """Some columns are not stored, or the table is virtual: `SELECT *` will not do."""


def read_shapes(connection: apsw.Connection, tables: Sequence[Entry]) -> dict[str, Shape]:
    """Name -> shape of each of these tables of the main database."""
    return {table.name: _shape_of(table.sql) or _read_shape(connection, table) for table in tables}


def copy_rows(
    connection: apsw.Connection, tables: Sequence[Entry], shapes: Mapping[str, Shape]
) -> None:
    """Copies the tables' rows with their rowids.

    SQLite's bulk transfer (`SELECT *` between like tables) may number rows anew, 1, 2, 3, …: it is
    tried first, and where it changed the first or last number the table is copied column by column.
    NOT INDEXED, since an index read in place of the table would give its own order to the numbers.
    """
    plain = {name: shape for name, shape in shapes.items() if not shape.by_column}
    copies = (
        f"INSERT INTO cut.{name} SELECT * FROM main.{name} NOT INDEXED"
        for name in map(quote_name, plain)
    )
    connection.execute(";".join(copies), can_cache=False)
    again = _renumbered(connection, {name: shape.rowid for name, shape in plain.items()})
    for table in tables:
        if table.name in again:
            connection.execute(f"DELETE FROM cut.{quote_name(table.name)}")
        if table.name in again or table.name not in plain:
            _copy_columns(connection, table, _read_shape(connection, table).rowid)


def _copy_columns(connection: apsw.Connection, table: Entry, rowid: str) -> None:
    """Copies rows by naming every column that is stored, and the rowid."""
    name = quote_name(table.name)
    stored = [quote_name(c) for c, _, hidden, _ in _columns(connection, table) if not hidden]
    listed = ", ".join(([rowid] if rowid else []) + stored)
    connection.execute(f"INSERT INTO cut.{name} ({listed}) SELECT {listed} FROM main.{name}")


def _renumbered(connection: apsw.Connection, rowids: dict[str, str]) -> set[str]:
    """The tables whose lowest or highest rowid differs from the source's; `rowids`: their names.

    As many different numbers within the same two ends 1 and n are the same numbers.
    """
    found: set[str] = set()
    names = [name for name, rowid in rowids.items() if rowid]
    for start in range(0, len(names), _TABLES_A_QUERY):
        some = names[start : start + _TABLES_A_QUERY]
        same = ", ".join(_same_ends(quote_name(name), rowids[name]) for name in some)
        ((*unchanged,),) = connection.execute(f"SELECT {same}", can_cache=False)
        found |= {name for name, kept in zip(some, unchanged, strict=True) if not kept}
    return found


def _same_ends(name: str, rowid: str) -> str:
    return " AND ".join(
        f"(SELECT {end}({rowid}) FROM main.{name}) IS (SELECT {end}({rowid}) FROM cut.{name})"
        for end in ("min", "max")
    )


@lru_cache(maxsize=8192)
def _shape_of(sql: str) -> Shape | None:
    """The shape that a CREATE TABLE's text leaves no doubt about; None where SQLite must say.

    Asking SQLite costs as much as the copying of a small table.
    """
    text = sql.lower()
    if "rowid" in text or "--" in text or "/*" in text:
        return None
    if "'" in text or '"' in text or "`" in text or "[" in text:
        text = _QUOTED.sub("_", text)
        if "'" in text or '"' in text or "`" in text or "[" in text:
            return None  # a quote without an end
    if "generated" in text or "virtual" in text or _COMPUTED.search(text):
        return None
    is_alias = "primary" in text and _ALIAS.search(text)
    return Shape(rowid="" if is_alias else "rowid")


_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\[[^\]]*\]""")
_COMPUTED = re.compile(r"as\s*\(")
_ALIAS = re.compile(r"\binteger\s+primary\s+key\b(?!\s+desc)", re.ASCII)
"""ASCII: a no-break space is part of a name for SQLite."""


def _read_shape(connection: apsw.Connection, table: Entry) -> Shape:
    """The shape of a table as SQLite sees it."""
    columns = _columns(connection, table)
    ((kind, without_rowid),) = connection.execute(_KIND, (table.name,))
    keys = [declared for _, declared, _, key in columns if key]
    is_alias = [key.upper() for key in keys] == ["INTEGER"] and kind == "table"
    taken = {fold_name(column) for column, *_ in columns}
    free = [rowid for rowid in _ROWID_NAMES if rowid not in taken]
    return Shape(
        rowid="" if without_rowid or is_alias or not free else free[0],
        by_column=kind == "virtual" or any(hidden for _, _, hidden, _ in columns),
    )


def _columns(connection: apsw.Connection, table: Entry) -> list[tuple[str, str, int, int]]:
    """(name, declared type, hidden, place in the primary key) of each."""
    return list(connection.execute(_COLUMNS, (table.name,)))


# A view's tables and indexes, still without rows, in the attached `cut`.


_CREATE = re.compile(
    r"create\s+(?:unique\s+index|index|virtual\s+table|table|view)\s+(?:if\s+not\s+exists\s+)?",
    re.IGNORECASE,
)


def create_tables(connection: apsw.Connection, entries: Iterable[Entry]) -> None:
    """Runs the entries' DDL; indexes that constraints make come with their tables."""
    for entry in entries:
        connection.execute(in_cut(entry.sql), can_cache=False)


def in_cut(sql: str) -> str:
    """A CREATE statement for the attached view; SQLite leaves `cut.` out of what it stores."""
    return _CREATE.sub(lambda match: f"CREATE {match[0].split(None, 1)[1]}cut.", sql, count=1)


# A database cut down to some of its tables, as the bytes of a SQLite file.
#
# Only these tables exist in it: their rows with their rowids, their indexes and statistics, and
# the views that read nothing else. Triggers are left out, since nothing is ever written. Foreign
# keys to other tables are left out of the DDL; everything else in it stays as written.


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
