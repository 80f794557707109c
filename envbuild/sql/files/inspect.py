"""What a SQLite file holds: row counts, broken keys, undecodable text; files made elsewhere."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from pathlib import Path

import apsw
import msgspec

from envbuild.errors import CorpusError, SchemaError
from envbuild.records.corpus import render_key
from envbuild.sql.connect import Connection, iter_rows, open_private, open_read_only, quote_name
from envbuild.sql.names import fold_name

_MODE_BYTES = 18
"""Offset of the header's write and read versions: 1 rollback journal, 2 WAL."""
_HEADER = b"SQLite format 3\0"


@contextmanager
def open_ready(path: Path) -> Iterator[Connection]:
    """A read-only connection; CorpusError `not_a_database` for what SQLite cannot read."""
    try:
        with closing(open_read_only(path)) as connection:
            yield connection
    except apsw.Error as e:
        raise CorpusError("not_a_database", str(e)) from None


def fold_in_log(path: Path) -> None:
    """Brings what lies in the log beside a copy into the copy itself."""
    try:
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.Error as e:
        raise CorpusError("not_a_database", str(e)) from None


def put_out_of_wal_mode(path: Path) -> None:
    """Marks a copy without a log as a rollback-journal database: reading it writes nothing."""
    with path.open("r+b") as stream:
        header = stream.read(_MODE_BYTES + 2)
        if header.startswith(_HEADER) and header[_MODE_BYTES:] == b"\x02\x02":
            stream.seek(_MODE_BYTES)
            stream.write(b"\x01\x01")


_TABLES = r"""SELECT name, rootpage FROM sqlite_schema
WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"""
# Virtual tables have no root page; only where there is one can shadow tables exist.
_ORDINARY_TABLES = r"""SELECT name FROM pragma_table_list
WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'"""


def count_rows(path: Path) -> dict[str, int]:
    """Rows of every ordinary table, in declared order; views, virtual and shadow tables left out.

    Raises SchemaError (`unreadable_database`) where the file is no readable database.
    """
    try:
        with closing(open_read_only(path)) as connection:
            return count_table_rows(connection)
    except apsw.Error as e:
        raise SchemaError("unreadable_database", str(e)) from e


def count_table_rows(connection: apsw.Connection) -> dict[str, int]:
    """The same on an open connection; a table that SQLite cannot read here is left out."""
    counts: dict[str, int] = {}
    for name in ordinary_tables(connection):
        count = f"SELECT COUNT(*) FROM main.{quote_name(name)}"
        for statement in (count, f"{count} NOT INDEXED"):  # an index's collation may not be here
            with suppress(apsw.SQLError):
                ((counts[name],),) = iter_rows(connection, statement)
                break
    return counts


def unreadable_tables(connection: apsw.Connection) -> dict[str, str]:
    """Table -> what SQLite says it lacks to read it: a module, a collation, a function."""
    said = {}
    for name, _ in list(iter_rows(connection, _TABLES)):
        nothing = f"SELECT * FROM main.{quote_name(name)} NOT INDEXED LIMIT 0"
        try:
            list(iter_rows(connection, nothing))
        except apsw.SQLError as e:
            said[name] = str(e)
    return said


def ordinary_tables(connection: apsw.Connection) -> list[str]:
    """Names of the tables that hold rows of their own, in declared order."""
    found = list(iter_rows(connection, _TABLES))
    if all(root_page for _, root_page in found):
        return [name for name, _ in found]
    ordinary = {name for (name,) in iter_rows(connection, _ORDINARY_TABLES)}
    return [name for name, _ in found if name in ordinary]


class UndecodableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column with text that is not UTF-8: Python, and every trainer, refuses such cells."""

    table: str
    column: str
    cells: int
    example: str
    """The first such cell's bytes, hexadecimal, at most 32 of them."""


def find_undecodable(
    connection: apsw.Connection, tables: Iterable[str] | None = None
) -> list[UndecodableColumn]:
    """The columns with undecodable text, in declared order; none in a UTF-16 database.

    `tables` are the ones to look at (those that hold rows); every ordinary table where it is None.
    SQLite itself converts UTF-16, so what arrives always decodes.
    """
    ((encoding,),) = iter_rows(connection, "PRAGMA encoding")
    if encoding != "UTF-8":
        return []
    found = []
    for table in ordinary_tables(connection) if tables is None else tables:
        names = "SELECT name FROM pragma_table_xinfo(?, 'main')"
        columns = [column for (column,) in iter_rows(connection, names, (table,))]
        if not _decodes(connection, table, columns):  # else no column has any
            for column in columns:
                with suppress(apsw.SQLError):  # it is computed by a function that is not here
                    bad = _bad_cells(connection, table, column)
                    found += [bad] if bad.cells else []
    return found


def _decodes(connection: apsw.Connection, table: str, columns: list[str]) -> bool:
    texts = (
        f"CASE typeof({name}) WHEN 'text' THEN {name} END" for name in map(quote_name, columns)
    )
    # an index may have a collation that is not here
    query = f"SELECT {', '.join(texts)} FROM main.{quote_name(table)} NOT INDEXED"
    try:
        for _ in iter_rows(connection, query):
            pass
    except (UnicodeDecodeError, apsw.SQLError):
        return False
    return True


def _bad_cells(connection: apsw.Connection, table: str, column: str) -> UndecodableColumn:
    name = quote_name(column)
    cells, example = 0, ""
    texts = f"FROM main.{quote_name(table)} NOT INDEXED WHERE typeof({name}) = 'text'"
    for (raw,) in iter_rows(connection, f"SELECT CAST({name} AS BLOB) {texts}"):
        try:
            raw.decode()
        except UnicodeDecodeError:
            cells += 1
            example = example or raw[:32].hex()
    return UndecodableColumn(table=table, column=column, cells=cells, example=example)


class KeyState(StrEnum):
    """What became of checking one key."""

    CHECKED = "checked"
    MISSING_PARENT = "missing_parent"
    """The parent table does not exist, so every key value dangles."""
    MISMATCH = "mismatch"
    """The parent columns do not exist, are not unique, or cannot be compared here (a collation is
    missing); SQLite cannot check such a key."""


class KeyCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One declared foreign key and the rows that break it."""

    child: str
    child_columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    """As declared; empty where the key means the parent's primary key."""
    state: KeyState
    orphans: int = 0
    """Rows with a complete key value that no parent row has; 0 for a mismatch."""
    example: str = ""
    """One such key value."""

    def render(self) -> str:
        """`child.col -> parent.col`."""
        return render_key(self.child, self.child_columns, self.parent, self.parent_columns)


def check_foreign_keys(connection: apsw.Connection) -> list[KeyCheck]:
    """Every declared key of the database, in (child, key) order. Reads rows, writes nothing.

    Each by itself: `PRAGMA foreign_key_check` stops at the first key that it cannot check.
    """
    named = "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view')"
    kinds = {fold_name(name): kind for name, kind in iter_rows(connection, named)}
    rows = iter_rows(
        connection,
        r"""SELECT m.name, k.id, k."table", k."from", k."to"
        FROM sqlite_schema AS m, pragma_foreign_key_list(m.name, 'main') AS k
        WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\'
        ORDER BY m.name, k.id DESC, k.seq""",
    )
    keys: dict[tuple[str, int, str], list[tuple[str, str | None]]] = defaultdict(list)
    for child, key, parent, source, target in rows:
        keys[child, key, parent].append((source, target))
    return [
        _check(connection, child, parent, pairs, kinds.get(fold_name(parent), ""))
        for (child, _, parent), pairs in keys.items()
    ]


def orphans_by_table(connection: apsw.Connection) -> dict[str, int]:
    """Child table -> its rows that break a key, counted once a key; tables without any left out.

    One pragma where SQLite can check every key, else key by key. Reads rows, writes nothing.
    """
    orphans: dict[str, int] = defaultdict(int)
    try:
        for child, *_ in iter_rows(connection, "PRAGMA main.foreign_key_check"):
            orphans[child] += 1
    except apsw.SQLError:  # a key that does not match its parent stops the pragma
        orphans.clear()
        for check in check_foreign_keys(connection):
            if check.orphans:
                orphans[check.child] += check.orphans
    return dict(orphans)


def _check(
    connection: apsw.Connection,
    child: str,
    parent: str,
    pairs: list[tuple[str, str | None]],
    parent_kind: str,
) -> KeyCheck:
    sources = tuple(source for source, _ in pairs)
    targets = tuple(target for _, target in pairs if target is not None)
    state, orphans, example = KeyState.MISMATCH, 0, ""
    condition = " AND ".join(f"c.{quote_name(name)} IS NOT NULL" for name in sources)
    with suppress(apsw.SQLError):  # a module, a collation or a function that is not here
        resolved = _unique_target(connection, parent, targets, len(sources))
        if not parent_kind:
            orphans, example = _orphans(connection, child, sources, condition)
            state = KeyState.MISSING_PARENT
        elif parent_kind == "table" and resolved:
            # The `+` takes the child's own affinity away: the parent's decides, as it does for a
            # key, and the parent's index can be used.
            equal = " AND ".join(
                f"p.{quote_name(target)} = +c.{quote_name(source)}"
                for source, target in zip(sources, resolved, strict=True)
            )
            condition += (
                f" AND NOT EXISTS (SELECT 1 FROM main.{quote_name(parent)} p WHERE {equal})"
            )
            orphans, example = _orphans(connection, child, sources, condition)
            state = KeyState.CHECKED
    return KeyCheck(
        child=child,
        child_columns=sources,
        parent=parent,
        parent_columns=targets,
        state=state,
        orphans=orphans,
        example=example,
    )


def _orphans(
    connection: apsw.Connection, child: str, columns: tuple[str, ...], condition: str
) -> tuple[int, str]:
    """How many rows of the child fulfil the condition, and the first one's key value."""
    shown = " || ', ' || ".join(f"quote(c.{quote_name(name)})" for name in columns)
    # The first in storage order; a bare column under min() would be dearer and no better.
    source = f"FROM main.{quote_name(child)} c WHERE {condition}"
    ((orphans,),) = iter_rows(connection, f"SELECT count(*) {source}")
    if not orphans:
        return 0, ""
    ((found,),) = iter_rows(connection, f"SELECT CAST({shown} AS BLOB) {source} LIMIT 1")
    return orphans, found.decode("utf-8", "replace")[:200]


def _unique_target(
    connection: apsw.Connection, parent: str, targets: tuple[str, ...], width: int
) -> tuple[str, ...]:
    """The parent columns a key of `width` columns resolves to; empty where it is a mismatch.

    SQLite itself says so, of such a key to an empty copy of the parent.
    """
    if not targets:
        columns = "SELECT name FROM pragma_table_xinfo(?, 'main') WHERE pk ORDER BY pk"
        targets = tuple(name for (name,) in iter_rows(connection, columns, (parent,)))
    ddl = """SELECT sql FROM sqlite_schema WHERE tbl_name = ? COLLATE NOCASE
        AND type IN ('table', 'index') AND sql IS NOT NULL ORDER BY type DESC"""
    child = quote_name(f"{parent} child")
    sources = ", ".join(f"c{number}" for number in range(width))
    named = f"({', '.join(map(quote_name, targets))})"
    with closing(open_private()) as copy:
        for (sql,) in iter_rows(connection, ddl, (parent,)):
            with suppress(apsw.SQLError):  # an index whose collation is not here is of no use
                copy.execute(sql)
        try:
            key = f"FOREIGN KEY ({sources}) REFERENCES {quote_name(parent)} {named}"
            copy.execute(f"CREATE TABLE {child} ({sources}, {key})")
            copy.execute(f"PRAGMA foreign_key_check({child})").fetchall()
        except apsw.SQLError:
            return ()
    return targets
