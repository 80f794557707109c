"""A database cut down to some of its tables, as the bytes of a SQLite file.

Only these tables exist in it: their rows with their rowids, their indexes and statistics, and
the views that read nothing else. Triggers are left out, since nothing is ever written. Foreign
keys to other tables are left out of the DDL; everything else in it stays as written.
"""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from envbuild.errors import CorpusError
from envbuild.io.packs import local_file
from envbuild.sql.connect import iter_rows, quote_name, read_only_uri
from envbuild.sql.files.create import row_id_name
from envbuild.sql.files.ddl import drop_references
from envbuild.sql.forks import leave_to_the_parent, renew_in_children
from envbuild.sql.from_names import oversized_views
from envbuild.sql.names import fold_name

_SMALL = 4 * 1024 * 1024
_OBJECTS = """
SELECT iif(type = 'table' AND rootpage = 0, 'virtual', type), name, tbl_name,
ifnull(CAST(sql AS TEXT), '') FROM main.sqlite_schema
WHERE type <> 'trigger' AND (type = 'view' OR name = 'sqlite_stat1'
OR tbl_name COLLATE NOCASE IN ({names})) ORDER BY rowid"""
_COLUMNS = "SELECT name, hidden FROM pragma_table_xinfo(?, 'main')"
_WITHOUT_ROWID = "SELECT wr FROM pragma_table_list(?) WHERE schema = 'main'"
_CREATE = re.compile(
    r"create\s+(?:unique\s+index|index|virtual\s+table|table|view)\s+(?:if\s+not\s+exists\s+)?",
    re.IGNORECASE,
)
_TABLES_A_QUERY = 100
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
        self._lock = threading.Lock()
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
        self._is_inherited = True
        leave_to_the_parent(self._connection)

    def close(self) -> None:
        """Lets the source go; a second call does nothing."""
        with self._lock:
            if not self._is_inherited:
                self._connection.close()

    @contextmanager
    def _cut(self, target: str) -> Iterator[apsw.Connection]:
        if self._is_inherited:
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
        self._is_inherited = False
        self._source = _Source()
        try:
            self._page_size = 1024 if local_file(self.path).stat().st_size <= _SMALL else 4096
            self._connection = apsw.Connection(read_only_uri(self.path), flags=_FLAGS)
            # Switches off what would act on rows being copied, and reads the schema.
            self._connection.execute("PRAGMA ignore_check_constraints = ON")
        except (apsw.Error, OSError) as e:
            raise CorpusError("view_not_built", str(e)) from e


class _Table(NamedTuple):
    """One table of the source."""

    name: str
    sql: str
    rowid: str
    """A name for the rowid that no column takes; empty where there is none."""
    is_virtual: bool


class _Source:
    """The source's schema entries as they stand there, each read when a view first wants it."""

    def __init__(self) -> None:
        self.tables: dict[str, _Table] = {}
        """Folded name -> table."""
        self.indexes: dict[str, list[str]] = {}
        """Folded table name -> the DDL of its indexes, less those that constraints make."""
        self.views: dict[str, str] = {}
        """Name -> DDL."""

    def fill(self, connection: apsw.Connection, tables: Sequence[str]) -> None:
        """Puts these tables, and what goes with them, into the attached `cut`."""
        # SQLite's internal tables make themselves
        names = [name for name in dict.fromkeys(map(fold_name, tables)) if name[:7] != "sqlite_"]
        self._learn(connection, [name for name in names if name not in self.tables])
        for name in names:
            if name not in self.tables:
                raise CorpusError("no_table", f"the database has no table {name!r}", table=name)
        chosen = [self.tables[name] for name in names]
        kept = frozenset(names)
        with connection:
            for table in chosen:
                _create(connection, drop_references(table.sql, kept))
            # Indexes come before the rows: SQLite then copies both as they are, without sorting.
            for name in names:
                for index in self.indexes.get(name, ()):
                    _create(connection, index)
            _copy_rows(connection, chosen)
            if "sqlite_stat1" in self.tables:
                _copy_statistics(connection, chosen)
            if self.views:
                _copy_views(connection, self.views)

    def _learn(self, connection: apsw.Connection, names: list[str]) -> None:
        """Reads the entries of tables that no view has had before; most are in none."""
        if not names:
            return
        objects = _OBJECTS.format(names=", ".join("?" * len(names)))
        for kind, name, table, sql in list(iter_rows(connection, objects, tuple(names))):
            if kind in ("table", "virtual"):
                rowid = _rowid(connection, name, kind, sql)
                self.tables[fold_name(name)] = _Table(name, sql, rowid, kind == "virtual")
            elif kind == "view":
                self.views[name] = sql
            elif sql:
                self.indexes.setdefault(fold_name(table), []).append(sql)


def _rowid(connection: apsw.Connection, table: str, kind: str, sql: str) -> str:
    """A name for the table's rowid; SQLite is asked only where the text leaves a doubt."""
    if kind == "table" and "rowid" not in sql.lower():
        return "_rowid_"
    ((without_rowid,),) = iter_rows(connection, _WITHOUT_ROWID, (table,))
    columns = [name for name, _ in iter_rows(connection, _COLUMNS, (table,))]
    return "" if without_rowid else row_id_name(columns) or ""


def _create(connection: apsw.Connection, sql: str) -> None:
    """Runs a CREATE statement in the attached view; SQLite leaves `cut.` out of what it stores."""
    here = _CREATE.sub(lambda match: f"CREATE {match[0].split(None, 1)[1]}cut.", sql, count=1)
    connection.execute(here, can_cache=False)


def _copy_rows(connection: apsw.Connection, tables: list[_Table]) -> None:
    """Copies the tables' rows with their rowids.

    SQLite's bulk transfer (`SELECT *` between like tables) may number rows anew, 1, 2, 3, …: it is
    tried first, and where it may have done so the table is copied column by column.
    NOT INDEXED, since an index read in place of the table would give its own order to the numbers.
    """
    by_column = [table for table in tables if table.is_virtual]
    numbered: list[tuple[_Table, int]] = []  # their rows are 1, 2, 3, … in the copy
    for table in tables:
        if not table.is_virtual:
            name = quote_name(table.name)
            copy = f"INSERT INTO cut.{name} SELECT * FROM main.{name} NOT INDEXED"
            try:
                connection.execute(copy, can_cache=False)
            except apsw.SQLError:  # some columns are generated, and those take no value
                by_column.append(table)
                continue
            count = connection.changes()
            if table.rowid and count and connection.last_insert_rowid() == count:
                numbered.append((table, count))
    for table in (*by_column, *_renumbered(connection, numbered)):
        name = quote_name(table.name)
        columns = [c for c, hidden in iter_rows(connection, _COLUMNS, (table.name,)) if not hidden]
        stored = [table.rowid] if table.rowid else []
        listed = ", ".join((*stored, *map(quote_name, columns)))
        if table not in by_column:
            connection.execute(f"DELETE FROM cut.{name}")
        connection.execute(f"INSERT INTO cut.{name} ({listed}) SELECT {listed} FROM main.{name}")


def _renumbered(
    connection: apsw.Connection, tables: Sequence[tuple[_Table, int]]
) -> Iterator[_Table]:
    """Of these tables, each with its count of rows, those whose rowids are not 1 to the count."""
    for start in range(0, len(tables), _TABLES_A_QUERY):
        some = tables[start : start + _TABLES_A_QUERY]
        ends = (
            f"(SELECT min({table.rowid}) FROM main.{quote_name(table.name)}) = 1 AND "
            f"(SELECT max({table.rowid}) FROM main.{quote_name(table.name)}) = {count}"
            for table, count in some
        )
        (unchanged,) = iter_rows(connection, f"SELECT {', '.join(ends)}")
        yield from (table for (table, _), kept in zip(some, unchanged, strict=True) if not kept)


def _copy_statistics(connection: apsw.Connection, tables: list[_Table]) -> None:
    """ANALYZE's figures, so that the planner chooses as it does on the whole database."""
    marks = ", ".join("?" for _ in tables)
    connection.execute("ANALYZE cut.sqlite_schema")
    connection.execute(
        "INSERT INTO cut.sqlite_stat1 (tbl, idx, stat) "
        f"SELECT tbl, idx, stat FROM main.sqlite_stat1 WHERE tbl IN ({marks})",
        [table.name for table in tables],
    )


def _copy_views(connection: apsw.Connection, views: dict[str, str]) -> None:
    """The views that compile over what is here; others, and views over them, leave no trace.

    Those that stand for too many reads to be compiled are others.
    """
    oversized = oversized_views(views)
    remaining = []
    for view, sql in views.items():
        if fold_name(view) not in oversized:
            try:
                _create(connection, sql)
            except apsw.SQLError:  # it names `main`, which an attached database does not take
                continue
            remaining.append(quote_name(view))
    while broken := [view for view in remaining if not _compiles(connection, view)]:
        connection.execute("PRAGMA cut.secure_delete = ON")  # their text names hidden tables
        for name in broken:
            connection.execute(f"DROP VIEW cut.{name}")
        remaining = [name for name in remaining if name not in broken]


def _compiles(connection: apsw.Connection, view: str) -> bool:
    try:
        connection.execute(f"EXPLAIN SELECT * FROM cut.{view}")
    except apsw.SQLError:
        return False
    return True
