"""A database's schema, read from SQLite's own pragma functions: no DDL is parsed."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from envbuild.errors import SourceError
from envbuild.records.corpus import Column, ForeignKey, MissingParent, Schema, Table
from envbuild.sql.connect import Connection, SQLiteError, iter_rows, open_read_only
from envbuild.sql.names import declared_spelling, fold_name

_KINDS = "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main'"
_COLUMNS = r"""
SELECT s.name, s.sql, c.name, c.type, c."notnull", c.dflt_value, c.pk, c.hidden
FROM sqlite_schema AS s CROSS JOIN pragma_table_xinfo(s.name) AS c
WHERE s.type = 'table' AND s.rootpage AND s.name NOT LIKE 'sqlite\_%' ESCAPE '\'
ORDER BY s.rowid, c.cid"""
# no root page: a virtual table, whose columns only its module knows, and it may be missing""
_KEYS = r"""
SELECT s.name, k.id, k."table", k."from", k."to"
FROM sqlite_schema AS s CROSS JOIN pragma_foreign_key_list(s.name) AS k
WHERE s.type = 'table' ORDER BY s.rowid, k.id, k.seq"""
_KEY_COUNTS = """
SELECT s.name, count(DISTINCT k.id)
FROM sqlite_schema AS s CROSS JOIN pragma_foreign_key_list(s.name) AS k
WHERE s.type = 'table' GROUP BY s.name"""
_VIEWS = "SELECT name, sql FROM sqlite_schema WHERE type = 'view' ORDER BY rowid"
_GENERATED = (2, 3)
"""`hidden` of a virtual and of a stored generated column."""


def read_schema(connection: Connection) -> Schema:
    """Every ordinary table in declared order, the edges among them, and what does not resolve.

    Virtual tables, their shadow tables and SQLite's own are left out. Raises apsw.Error where the
    file is no database.
    """
    ordinary = _ordinary(connection)
    tables = tuple(_tables(connection, ordinary))
    views = list(iter_rows(connection, _VIEWS))
    edges, missing = _edges(connection, {fold_name(t.name): t for t in tables}, ordinary)
    return Schema(
        tables=tables,
        foreign_keys=tuple(sorted(edges)),
        missing_parents=tuple(sorted(missing)),
        views=tuple(name for name, _ in views),
        view_sql=tuple(sql for _, sql in views),
    )


def read_schema_of(database: Path) -> Schema:
    """The schema of the SQLite file at this path. Raises SourceError where it cannot be read."""
    try:
        with closing(open_read_only(database)) as connection:
            return read_schema(connection)
    except SQLiteError as e:
        raise SourceError(f"cannot read the database {database}: {e}") from e


def read_tables(connection: Connection) -> tuple[Table, ...]:
    """The tables of `read_schema` without the edges among them, for half its cost."""
    return tuple(_tables(connection, _ordinary(connection)))


def count_declared_keys(connection: Connection) -> dict[str, int]:
    """Table -> how many foreign keys it declares, resolved or not; tables without any left out."""
    counts: dict[str, int] = dict(iter_rows(connection, _KEY_COUNTS))
    return counts


def _ordinary(connection: Connection) -> dict[str, tuple[bool, bool]]:
    return {
        name: (bool(without_rowid), bool(strict))
        for name, kind, without_rowid, strict in iter_rows(connection, _KINDS)
        if kind == "table"
    }


def _tables(connection: Connection, ordinary: dict[str, tuple[bool, bool]]) -> Iterator[Table]:
    columns: dict[str, list[Column]] = defaultdict(list)
    ddl: dict[str, str] = {}
    for name, sql, column, kind, not_null, default, key, hidden in iter_rows(connection, _COLUMNS):
        if name not in ordinary:
            continue
        ddl[name] = sql
        columns[name].append(
            Column(
                name=column,
                type=kind,
                not_null=bool(not_null),
                primary_key=key,
                generated=hidden in _GENERATED,
                default=default,
            )
        )
    for name, sql in ddl.items():
        without_rowid, strict = ordinary[name]
        yield Table(
            name=name,
            columns=tuple(columns[name]),
            sql=sql,
            without_rowid=without_rowid,
            strict=strict,
        )


def _edges(
    connection: Connection, tables: dict[str, Table], ordinary: dict[str, tuple[bool, bool]]
) -> tuple[set[ForeignKey], set[MissingParent]]:
    declared: dict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
    for child, key, parent, source, target in iter_rows(connection, _KEYS):
        if child in ordinary:
            declared[child, key].append((parent, source, target))
    edges, missing = set(), set()
    spellings: dict[str, dict[str, str]] = {}
    for (child, _), pairs in declared.items():
        named = pairs[0][0]
        sources = tuple(source for _, source, _ in pairs)
        parent = _find_table(named, tables)
        targets = None
        if parent:
            if parent.name not in spellings:
                spellings[parent.name] = declared_spelling(c.name for c in parent.columns)
            named_targets = [target for _, _, target in pairs]
            targets = _targets(parent, named_targets, spellings[parent.name])
        if parent is None or targets is None:
            missing.add(MissingParent(child=child, child_columns=sources, parent=named))
        else:
            edges.add(
                ForeignKey(
                    child=child,
                    child_columns=sources,
                    parent=parent.name,
                    parent_columns=targets,
                )
            )
    return edges, missing


def _find_table(name: str, tables: dict[str, Table]) -> Table | None:
    """The table a REFERENCES clause means; `"public.companies"` also finds `companies`."""
    folded = fold_name(name)
    return tables.get(folded) or tables.get(folded.rpartition(".")[2])


def _targets(
    parent: Table, named: list[str | None], spelling: dict[str, str]
) -> tuple[str, ...] | None:
    """The parent's columns in declared spelling; its primary key where none is named."""
    if named[0] is None:
        key = parent.primary_key
        return key if len(key) == len(named) else None
    found = [spelling.get(fold_name(name or "")) for name in named]
    return None if None in found else tuple(name for name in found if name is not None)
