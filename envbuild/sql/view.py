"""A database cut down to some of its tables, as the bytes of a SQLite file.

Only these tables exist in it: their rows with their rowids, their indexes and statistics, and the
views that read nothing else. Triggers are left out, since nothing is ever written. Foreign keys to
other tables are left out of the DDL; everything else in it stays as written.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from envbuild.errors import CorpusError
from envbuild.sql.connect import quote_name, read_only_uri
from envbuild.sql.names import fold_name
from envbuild.sql.references import drop_references

_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_ENCODINGS = {1: "UTF-8", 2: "UTF-16le", 3: "UTF-16be"}
_OBJECTS = """
SELECT type, name, tbl_name, sql FROM src.sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"""
_SHAPE = "SELECT name, hidden FROM pragma_table_xinfo(?)"
_GENERATED = (2, 3)
"""`hidden` of a virtual and of a stored generated column."""


class Object(NamedTuple):
    """One entry of sqlite_schema."""

    kind: str
    name: str
    table: str
    sql: str


def build_view_image(path: Path, tables: Sequence[str]) -> bytes:
    """A SQLite image of the database at `path` in which only `tables` exist, in that order.

    Names match as SQLite matches them. Raises CorpusError (`no_table`, `view_not_built`) for a name
    the database lacks and for what SQLite does not copy.
    """
    connection = apsw.Connection(":memory:", flags=_FLAGS)
    try:
        _configure(connection, path)
        objects = [Object(*row) for row in connection.execute(_OBJECTS)]
        chosen = _choose(objects, tables)
        with connection:
            _copy(connection, objects, chosen)
        return connection.serialize("main")
    except apsw.Error as e:
        raise CorpusError("view_not_built", str(e)) from e
    finally:
        connection.close()


_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI


def _configure(connection: apsw.Connection, path: Path) -> None:
    """Takes over the source's text encoding; switches off what would act on rows being copied."""
    with Path(path).open("rb") as stream:
        header = stream.read(60)
    encoding = _ENCODINGS.get(int.from_bytes(header[56:60]), "UTF-8")
    connection.execute(
        f"PRAGMA encoding='{encoding}'; PRAGMA ignore_check_constraints=ON; ATTACH ? AS src",
        (read_only_uri(path),),
    )


def _choose(objects: Iterable[Object], tables: Sequence[str]) -> list[Object]:
    """The tables' own entries in the order asked for; SQLite's internal tables make themselves."""
    found = {fold_name(o.name): o for o in objects if o.kind == "table"}
    chosen = []
    for name in dict.fromkeys(fold_name(table) for table in tables):
        if name not in found:
            raise CorpusError("no_table", f"the database has no table {name!r}", table=name)
        if not name.startswith("sqlite_"):
            chosen.append(found[name])
    return chosen


def _copy(connection: apsw.Connection, objects: list[Object], chosen: list[Object]) -> None:
    kept = {fold_name(o.name) for o in chosen}
    # Indexes come before the rows: SQLite then copies both as they are, without sorting.
    ddl = [drop_references(o.sql, kept) for o in chosen]
    ddl += [o.sql for o in objects if o.kind == "index" and fold_name(o.table) in kept]
    connection.execute(";\n".join((*ddl, "")))
    for table in chosen:
        _copy_rows(connection, table)
    _copy_statistics(connection, objects, [o.name for o in chosen])
    _copy_views(connection, [o for o in objects if o.kind == "view"])


def _copy_rows(connection: apsw.Connection, table: Object) -> None:
    """Copies a table's rows with their rowids.

    SQLite's bulk transfer (`SELECT *` between like tables) may number rows anew, so it serves only
    where they are numbered 1, 2, 3, … already or have no number of their own.
    """
    name = quote_name(table.name)
    rowid = _rowid_name(connection, table)
    if not rowid or _is_dense(connection, name, rowid):
        try:
            connection.execute(f"INSERT INTO main.{name} SELECT * FROM src.{name}")
        except apsw.SQLError:
            pass  # generated or hidden columns: name the others
        else:
            return
    shape = connection.execute(_SHAPE, (table.name,))
    columns = [quote_name(column) for column, hidden in shape if not hidden]
    listed = ", ".join(([rowid] if rowid else []) + columns)
    connection.execute(f"INSERT INTO main.{name} ({listed}) SELECT {listed} FROM src.{name}")


def _rowid_name(connection: apsw.Connection, table: Object) -> str:
    """A name for the rowid that no column takes; empty where a column is it or there is none."""
    text = table.sql.lower()
    free = [name for name in _ROWID_NAMES if name not in text]
    if not free:
        shape = connection.execute(_SHAPE, (table.name,))
        taken = {fold_name(column) for column, _ in shape}
        free = [name for name in _ROWID_NAMES if name not in taken]
    if not free:
        return ""
    try:
        _, _, _, is_key, _ = connection.column_metadata("main", table.name, free[0])
    except apsw.SQLError:
        return ""  # WITHOUT ROWID
    return "" if is_key else free[0]


def _is_dense(connection: apsw.Connection, name: str, rowid: str) -> bool:
    """True where the rowids are 1, 2, …, count."""
    query = f"SELECT count(*), min({rowid}), max({rowid}) FROM src.{name}"
    ((count, lowest, highest),) = connection.execute(query)
    return not count or (lowest == 1 and highest == count)


def _copy_statistics(connection: apsw.Connection, objects: list[Object], tables: list[str]) -> None:
    """ANALYZE's figures, so that the planner chooses as it does on the whole database."""
    if not any(o.name == "sqlite_stat1" for o in objects):
        return
    marks = ", ".join("?" for _ in tables)
    connection.execute("ANALYZE main.sqlite_schema")
    connection.execute(
        f"INSERT INTO main.sqlite_stat1 SELECT * FROM src.sqlite_stat1 WHERE tbl IN ({marks})",
        tables,
    )


def _copy_views(connection: apsw.Connection, views: list[Object]) -> None:
    """The views that compile over what is here; views over dropped views go too."""
    for view in views:
        connection.execute(view.sql)
    remaining = [quote_name(view.name) for view in views]
    while remaining:
        broken = [name for name in remaining if not _compiles(connection, name)]
        if not broken:
            return
        for name in broken:
            connection.execute(f"DROP VIEW main.{name}")
        remaining = [name for name in remaining if name not in broken]


def _compiles(connection: apsw.Connection, view: str) -> bool:
    try:
        connection.execute(f"EXPLAIN SELECT * FROM main.{view}")
    except apsw.SQLError:
        return False
    return True
