"""A schema's names as queries are traced through them: tables, views, columns, foreign keys."""

from collections import defaultdict, deque
from typing import NamedTuple

from sqlglot import exp

from envbuild.records.corpus import Schema
from envbuild.sql.names import fold_name
from envbuild.sql.trees.parse import parse_statement

_ROWID = frozenset(("rowid", "oid", "_rowid_"))


class DeclaredView(NamedTuple):
    """A view of the database's own."""

    query: exp.Expr
    names: list[str]
    """Folded names that it gives its columns; empty where they keep the query's."""


class SchemaColumns:
    """The schema's tables, views, columns and foreign keys by folded name."""

    def __init__(self, schema: Schema) -> None:
        self.columns: dict[str, list[str]] = {}
        self.integer_keys: dict[str, str] = {}
        for table in schema.tables:
            name = fold_name(table.name)
            self.columns[name] = [fold_name(column.name) for column in table.columns]
            if len(key := table.primary_key) == 1 and not table.without_rowid:
                self.integer_keys[name] = fold_name(key[0])
        self.foreign_keys: defaultdict[tuple[str, str], list[set[tuple[str, str]]]]
        self.foreign_keys = defaultdict(list)
        """(child, parent) -> the column pairs of each key between them."""
        for edge in schema.foreign_keys:
            sides = (map(fold_name, edge.child_columns), map(fold_name, edge.parent_columns))
            between = (fold_name(edge.child), fold_name(edge.parent))
            self.foreign_keys[between].append(set(zip(*sides, strict=True)))
        self.view_sql = dict(zip(map(fold_name, schema.views), schema.view_sql, strict=False))
        self._views: dict[str, DeclaredView | None] | None = None

    def column(self, table: str, name: str) -> str | None:
        """The table's column of this name (`rowid` is its single primary key), or None."""
        if name in self.columns.get(table, ()):
            return name
        return self.integer_keys.get(table) if name in _ROWID else None

    def view(self, name: str) -> DeclaredView | None:
        """The view of this folded name; None where there is none, or none to read."""
        return self.read_views().get(name)

    def read_views(self) -> dict[str, DeclaredView | None]:
        """All views, read at once: deep inside another's tracing there may be no stack for it."""
        if self._views is None:
            self._views = {name: _read_view(sql) for name, sql in self.view_sql.items() if sql}
        return self._views


_KEPT = 8
_kept: deque[tuple[Schema, SchemaColumns]] = deque(maxlen=_KEPT)


def schema_columns(schema: Schema) -> SchemaColumns:
    """The names of this very record, kept for the next queries over it."""
    for known, columns in tuple(_kept):
        if known is schema:
            return columns
    columns = SchemaColumns(schema)
    _kept.append((schema, columns))
    return columns


def _read_view(sql: str) -> DeclaredView | None:
    tree = parse_statement(sql)
    if not isinstance(tree, exp.Create) or not isinstance(tree.expression, exp.Query):
        return None
    declared = tree.this
    names = declared.expressions if isinstance(declared, exp.Schema) else []
    return DeclaredView(tree.expression, [fold_name(name.name) for name in names])
