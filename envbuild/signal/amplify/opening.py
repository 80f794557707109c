"""A database's tables read into memory: rows, declared keys, and how new rows are inserted."""

from collections.abc import Iterator
from typing import Any

from envbuild.records.execution import Value
from envbuild.records.schema import Schema, Table
from envbuild.signal.amplify.kinds import affinity_of
from envbuild.signal.amplify.probe import BUILT_IN_COLLATIONS
from envbuild.signal.amplify.tables import Key, TableRows, Workspace
from envbuild.sql.connect import Connection, iter_rows, quote_name

MOST_ROWS_READ = 5000
"""Rows of a table that are looked at; a larger table is sampled evenly by rowid."""


def open_workspace(connection: Connection, schema: Schema) -> Workspace:
    """Every table of the schema, with the connection that new rows go into."""
    tables = {table.name.lower(): _open_table(connection, table) for table in schema.tables}
    return Workspace(connection, schema, tables)


def _open_table(connection: Connection, table: Table) -> TableRows:
    columns = [column for column in table.columns if not column.generated]
    names = [column.name for column in columns]
    rows = TableRows(table=table, names=names, at={name.lower(): i for i, name in enumerate(names)})
    listed = ", ".join(quote_name(name) for name in names)
    target = quote_name(table.name)
    rows.insert_sql = f"INSERT INTO {target} ({listed}) VALUES ({', '.join('?' * len(names))})"
    for name in names:
        collation = str(connection.column_metadata("main", table.name, name)[1]).upper()
        rows.collations.append(collation if collation in BUILT_IN_COLLATIONS else "BINARY")
    keys, indexed = _unique_keys(connection, table, rows.at)
    key = table.primary_key
    if len(key) == 1 and key[0].lower() in rows.at:
        declared = next(column.type for column in columns if column.name == key[0])
        if affinity_of(declared) in ("integer", "numeric"):
            rows.counter = rows.at[key[0].lower()]
        if declared.upper() == "INTEGER" and not indexed and not table.without_rowid:
            # INTEGER PRIMARY KEY DESC has an index of its own and is no rowid
            rows.serial = rows.counter
    rows.keys = [Key(positions) for positions in keys]
    ((rows.total,),) = iter_rows(connection, f"SELECT count(*) FROM {target}")
    where = ""
    if rows.total > MOST_ROWS_READ and not table.without_rowid:
        where = f" WHERE rowid % {rows.total // MOST_ROWS_READ + 1} = 0"
    rows.load(_sampled(connection, names, f"FROM {target}{where} LIMIT {MOST_ROWS_READ}"))
    if rows.counter is not None and rows.total > rows.original:
        sql = f"SELECT max({quote_name(names[rows.counter])}) FROM {target}"
        ((largest,),) = iter_rows(connection, sql)
        if isinstance(largest, int):
            rows.next_serial = max(rows.next_serial, largest + 1)
    return rows


def _sampled(connection: Connection, names: list[str], source: str) -> list[list[Value]]:
    """The rows; a text that is not UTF-8 counts as unknown (None), so it is never drawn again."""
    listed = [quote_name(name) for name in names]
    plain = f"SELECT {', '.join(listed)} {source}"
    try:
        return [list(row) for row in iter_rows(connection, plain)]
    except UnicodeDecodeError:
        return list(_decoded_rows(connection, listed, source))


def _decoded_rows(connection: Connection, listed: list[str], source: str) -> Iterator[list[Value]]:
    cells = ", ".join(
        f"CASE typeof({c}) WHEN 'text' THEN CAST({c} AS BLOB) ELSE {c} END, typeof({c}) = 'text'"
        for c in listed
    )
    for row in iter_rows(connection, f"SELECT {cells} {source}"):
        yield [_decoded(*pair) for pair in zip(row[::2], row[1::2], strict=True)]


def _decoded(cell: Any, was_text: int) -> Value:
    if not was_text:
        return cell  # type: ignore[no-any-return]  # SQLite's own value
    try:
        return str(cell, "utf-8")
    except UnicodeDecodeError:
        return None


def _unique_keys(
    connection: Connection, table: Table, at: dict[str, int]
) -> tuple[list[tuple[int, ...]], bool]:
    """Declared keys as positions, and whether the primary key has an index of its own.

    Partial and expression indexes are left to SQLite.
    """
    found = iter_rows(
        connection,
        "SELECT l.seq, l.origin, i.name FROM pragma_index_list(?) AS l, pragma_index_info(l.name)"
        ' AS i WHERE l."unique" AND NOT l.partial ORDER BY l.seq, i.seqno',
        (table.name,),
    )
    keys: dict[int, list[int]] = {}
    indexed = False
    for index, origin, column in found:
        indexed = indexed or origin == "pk"
        keys.setdefault(index, []).append(at.get((column or "").lower(), -1))
    if table.primary_key and all(name.lower() in at for name in table.primary_key):
        keys[-1] = [at[name.lower()] for name in table.primary_key]
    return sorted({tuple(key) for key in keys.values() if -1 not in key}), indexed
