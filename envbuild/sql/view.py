"""A database cut down to some of its tables, as the bytes of a SQLite file.

Only these tables exist in it: their rows with their rowids, their indexes and statistics, and the
views that read nothing else. Triggers are left out, since nothing is ever written. Foreign keys to
other tables are left out of the DDL; everything else in it stays as written.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from envbuild.errors import CorpusError
from envbuild.sql.connect import quote_name, read_only_uri
from envbuild.sql.names import fold_name
from envbuild.sql.references import drop_references

_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_ENCODINGS = {2: "UTF-16le", 3: "UTF-16be"}
_SMALL = 4 * 1024 * 1024
_OBJECTS = """
SELECT type, name, tbl_name, sql FROM src.sqlite_schema
WHERE sql IS NOT NULL AND type <> 'trigger'
  AND (type = 'view' OR lower(tbl_name) IN (SELECT value FROM json_each(?)))
ORDER BY rowid"""
_STATISTICS = "SELECT count(*) FROM src.sqlite_schema WHERE name = 'sqlite_stat1'"
_COLUMNS = "SELECT name, type, hidden, pk FROM pragma_table_xinfo(?)"
_KIND = "SELECT type, wr FROM pragma_table_list(?) WHERE schema = 'main'"
_TABLES_A_QUERY = 100


class Object(NamedTuple):
    """One entry of sqlite_schema."""

    kind: str
    name: str
    table: str
    sql: str


class Shape(NamedTuple):
    """What the copying of a table's rows depends on; its DDL text decides it."""

    columns: tuple[str, ...]
    """The stored columns, quoted."""
    rowid: str
    """A name for the rowid that no column takes; empty where a column is it or none is there."""
    generated: bool
    """Some columns are not stored, or the table is virtual."""


def build_view_image(path: Path, tables: Sequence[str]) -> bytes:
    """A SQLite image of the database at `path` in which only `tables` exist, in that order.

    Names match as SQLite matches them. Raises CorpusError (`no_table`, `view_not_built`) for a name
    the database lacks and for what SQLite does not copy.
    """
    connection = apsw.Connection(":memory:", flags=_FLAGS)
    try:
        _build(connection, path, tables)
        return connection.serialize("main")
    finally:
        connection.close()


def build_view_file(path: Path, tables: Sequence[str], out: Path) -> None:
    """The same as a new file at `out`, without ever holding it in memory.

    Raises as `build_view_image` does and then leaves a torn file: write to a temporary name.
    """
    connection = apsw.Connection(str(out), flags=_FLAGS)
    try:
        connection.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        _build(connection, path, tables)
    finally:
        connection.close()


def _build(connection: apsw.Connection, path: Path, tables: Sequence[str]) -> None:
    try:
        _attach(connection, path)
        names = list(dict.fromkeys(fold_name(table) for table in tables))
        asked = (msgspec.json.encode(names).decode(),)
        objects = [Object(*row) for row in connection.execute(_OBJECTS, asked)]
        chosen = _choose(objects, names)
        with connection:
            _copy(connection, objects, chosen)
    except apsw.Error as e:
        raise CorpusError("view_not_built", str(e)) from e


_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI


def _attach(connection: apsw.Connection, path: Path) -> None:
    """Attaches the source and switches off what would act on rows being copied.

    A small database gets small pages: its tables fill them better, and an image is copied whole.
    """
    small = path.stat().st_size <= _SMALL
    pages = "PRAGMA page_size = 1024; " if small else ""
    uri = (read_only_uri(path),)
    try:
        connection.execute(f"{pages}PRAGMA ignore_check_constraints = ON; ATTACH ? AS src", uri)
    except apsw.SQLError:  # of another text encoding, which must be set before anything else
        connection.execute(f"PRAGMA encoding = '{_encoding_of(path)}'; ATTACH ? AS src", uri)


def _encoding_of(path: Path) -> str:
    with path.open("rb") as stream:
        return _ENCODINGS.get(int.from_bytes(stream.read(60)[56:]), "UTF-8")


def _choose(objects: Iterable[Object], names: list[str]) -> list[Object]:
    """The tables' own entries in the order asked for; SQLite's internal tables make themselves."""
    found = {fold_name(o.name): o for o in objects if o.kind == "table"}
    for name in names:
        if name not in found and not name.startswith("sqlite_"):
            raise CorpusError("no_table", f"the database has no table {name!r}", table=name)
    return [found[name] for name in names if not name.startswith("sqlite_")]


def _copy(connection: apsw.Connection, objects: list[Object], chosen: list[Object]) -> None:
    kept = {fold_name(o.name) for o in chosen}
    # Indexes come before the rows: SQLite then copies both as they are, without sorting.
    ddl = [drop_references(o.sql, kept) for o in chosen]
    ddl += [o.sql for o in objects if o.kind == "index" and fold_name(o.table) in kept]
    connection.execute(";\n".join((*ddl, "")))
    _copy_rows(connection, chosen)
    _copy_statistics(connection, [o.name for o in chosen])
    _copy_views(connection, [o for o in objects if o.kind == "view"])


def _copy_rows(connection: apsw.Connection, tables: list[Object]) -> None:
    """Copies the tables' rows with their rowids.

    SQLite's bulk transfer (`SELECT *` between like tables) may number rows anew, 1, 2, 3, …: it is
    tried first, and where it changed the first or last number the table is copied column by column.
    """
    unsure = []
    for table in tables:
        name, shape = quote_name(table.name), _shape(connection, table)
        if shape.generated:
            _copy_columns(connection, name, shape)
            continue
        connection.execute(f"INSERT INTO main.{name} SELECT * FROM src.{name}")
        if shape.rowid:
            unsure.append((name, shape))
    for name, shape in _renumbered(connection, unsure):
        connection.execute(f"DELETE FROM main.{name}")
        _copy_columns(connection, name, shape)


def _copy_columns(connection: apsw.Connection, name: str, shape: Shape) -> None:
    """Copies rows by naming every column that is stored, and the rowid."""
    listed = ", ".join(([shape.rowid] if shape.rowid else []) + list(shape.columns))
    connection.execute(f"INSERT INTO main.{name} ({listed}) SELECT {listed} FROM src.{name}")


def _renumbered(
    connection: apsw.Connection, tables: list[tuple[str, Shape]]
) -> Iterator[tuple[str, Shape]]:
    """The tables whose lowest or highest rowid differs from the source's.

    As many different numbers within the same two ends 1 and n are the same numbers.
    """
    for start in range(0, len(tables), _TABLES_A_QUERY):
        some = tables[start : start + _TABLES_A_QUERY]
        ((*same,),) = connection.execute("SELECT " + ", ".join(_same_ends(*t) for t in some))
        yield from (table for table, unchanged in zip(some, same, strict=True) if not unchanged)


def _same_ends(name: str, shape: Shape) -> str:
    return " AND ".join(
        f"(SELECT {end}({shape.rowid}) FROM src.{name})"
        f" IS (SELECT {end}({shape.rowid}) FROM main.{name})"
        for end in ("min", "max")
    )


def _shape(connection: apsw.Connection, table: Object) -> Shape:
    """The shape of a table that exists in both databases; read once for a DDL text."""
    if table.sql not in _SHAPES:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        _SHAPES[table.sql] = _read_shape(connection, table.name)
    return _SHAPES[table.sql]


_SHAPES: dict[str, Shape] = {}
_MOST_SHAPES = 8192


def _read_shape(connection: apsw.Connection, name: str) -> Shape:
    columns = list(connection.execute(_COLUMNS, (name,)))
    ((kind, without_rowid),) = connection.execute(_KIND, (name,))
    keys = [declared for _, declared, _, key in columns if key]
    is_alias = [key.upper() for key in keys] == ["INTEGER"] and kind == "table"
    taken = {fold_name(column) for column, *_ in columns}
    free = [rowid for rowid in _ROWID_NAMES if rowid not in taken]
    return Shape(
        columns=tuple(quote_name(column) for column, _, hidden, _ in columns if not hidden),
        rowid="" if without_rowid or is_alias or not free else free[0],
        generated=kind == "virtual" or any(hidden for _, _, hidden, _ in columns),
    )


def _copy_statistics(connection: apsw.Connection, tables: list[str]) -> None:
    """ANALYZE's figures, so that the planner chooses as it does on the whole database."""
    ((kept,),) = connection.execute(_STATISTICS)
    if not kept:
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
