"""What the names in a query stand for: its FROM sources, and columns traced to base tables.

Works on sqlglot's scopes and the schema record alone, without a database. Gold tables are another
matter: SQLite itself knows those.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.scope import Scope, traverse_scope

from envbuild.query.parse import parse_statement
from envbuild.records.corpus import Column, Schema, Table
from envbuild.sql.names import fold_name

ROWID_NAMES = frozenset(("rowid", "oid", "_rowid_"))
E = TypeVar("E", bound=exp.Expr)


@dataclass(frozen=True, slots=True, eq=False)
class SourceColumn:
    """A column that a FROM source offers."""

    name: str
    declared: Column | None = None
    """The base table's own column; None where a query gives it."""
    values: tuple[exp.Expr, ...] = ()
    """What a query gives it: one expression for each side of a set operation."""
    unique: bool = False
    """The base table's single primary key."""

    @property
    def not_null(self) -> bool:
        """No data that keeps its keys has NULL here, though SQLite lets it into some keys."""
        column = self.declared
        return column is not None and (column.not_null or bool(column.primary_key))


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One FROM source of a SELECT: a base table, a view, a CTE or a derived table."""

    alias: str
    node: exp.Expr
    """The table, or the query inside a derived table's parentheses."""
    columns: dict[str, SourceColumn] | None
    """By folded name; None where they cannot be known (a recursive CTE, a table function)."""
    table: Table | None = None
    """The base table it is."""

    @property
    def table_name(self) -> str:
        """The base table's declared name; empty for another source."""
        return self.table.name if self.table else ""


class BaseColumn(NamedTuple):
    """A base table's column, and through which FROM sources a query reaches it."""

    path: tuple[Source, ...]
    """From the outermost source to the base table itself."""
    name: str
    """The column's declared name."""


class QueryNames:
    """One query over one schema: the sources of its SELECTs, and what its columns mean.

    It resolves as much as the schema tells and no more. In `root`, double-quoted words that name
    nothing become the strings for which SQLite takes them.
    """

    def __init__(self, root: exp.Expr, schema: Schema) -> None:
        self.root, self.schema = root, schema
        self.tables = {fold_name(table.name): table for table in schema.tables}
        self._view_sql = dict(zip(map(fold_name, schema.views), schema.view_sql, strict=False))
        self._scopes: dict[int, Scope] = {}
        self._sources: dict[int, list[Source]] = {}
        self._outputs: dict[int, list[SourceColumn] | None] = {}
        self._bases: dict[int, BaseColumn | None] = {}
        self._views: dict[str, Scope | None] = {}
        self.nodes = tuple(root.walk(bfs=False))
        """Depth first, without those of views."""
        self._add_scopes(root)
        self._settle_quoted_strings()

    def each(self, *kinds: type[E]) -> Iterator[E]:
        """Every node of these kinds, depth first."""
        for node in self.nodes:
            if isinstance(node, kinds):
                yield node

    def sources(self, select: exp.Expr) -> list[Source]:
        """The FROM sources of a SELECT, in order."""
        if id(select) not in self._sources:
            scope = self._scopes.get(id(select))
            named = scope.references if scope else []
            self._sources[id(select)] = [self._source(*one) for one in named]
        return self._sources[id(select)]

    def outputs(self, query: exp.Expr) -> list[SourceColumn] | None:
        """What a query offers to the query around it; None where it cannot be known."""
        query = query.unnest()
        if id(query) not in self._outputs:
            self._outputs[id(query)] = None  # what a view that asks for itself finds
            if isinstance(query, exp.SetOperation):
                self._outputs[id(query)] = self._set_outputs(query)
            elif isinstance(query, exp.Select):
                self._outputs[id(query)] = self._select_outputs(query)
        return self._outputs[id(query)]

    def resolve(self, column: exp.Column) -> tuple[Source, SourceColumn] | None:
        """The source and column that a column reference means; None where it cannot be told."""
        name, qualifier = fold_name(column.name), fold_name(column.table)
        select: exp.Expr | None = column.find_ancestor(exp.Select, exp.SetOperation)
        while isinstance(select, exp.Select):
            for source in self.sources(select):
                fits = not qualifier or fold_name(source.alias) == qualifier
                if fits and (found := _column_of(source, name)) is not None:
                    return source, found
            select = select.find_ancestor(exp.Select)
        return None

    def base_column(self, node: exp.Expr) -> BaseColumn | None:
        """The base table's column that an expression passes on unchanged; None where none."""
        node = node.unnest()
        if not isinstance(node, exp.Column) or node.is_star:
            return None
        if id(node) not in self._bases:
            self._bases[id(node)] = None  # what a recursive CTE's column that asks for itself finds
            found = self.resolve(node)
            self._bases[id(node)] = self.base_behind(found[0], node.name) if found else None
        return self._bases[id(node)]

    def base_behind(self, source: Source, name: str) -> BaseColumn | None:
        """The base table's column behind one of a source's, the same from both sides of a UNION."""
        column = _column_of(source, fold_name(name))
        if column is None or column.declared is not None:
            return BaseColumn((source,), column.name) if column else None
        bases = [self.base_column(value) for value in column.values]
        found = {(base.path[-1].table_name, base.name) if base else None for base in bases}
        if len(found) != 1 or bases[0] is None:
            return None
        return BaseColumn((source, *bases[0].path), bases[0].name)

    def shared_columns(self, join: exp.Join) -> Iterator[tuple[Source, Source, str]]:
        """What USING or NATURAL sets equal: an earlier source, the joined one, a folded name."""
        using = [fold_name(name.name) for name in join.args.get("using") or ()]
        if not using and join.method != "NATURAL":
            return
        sources = self.sources(join.find_ancestor(exp.Select) or join)
        for at, joined in enumerate(sources):
            if joined.node.find_ancestor(exp.Join, exp.Select) is join:
                for name in using or joined.columns or ():
                    for earlier in sources[:at]:
                        if name in (joined.columns or ()) and name in (earlier.columns or ()):
                            yield earlier, joined, name
                return

    def query_of(self, table: exp.Table) -> Scope | None:
        """The scope of the CTE or view that a table name means; None for any other table.

        A recursive CTE's use of itself means its first SELECT.
        """
        name = fold_name(table.name)
        scope = self._scopes.get(id(table.find_ancestor(exp.Select)))
        if scope is not None and not table.db:
            for cte, inner in scope.cte_sources.items():
                if fold_name(cte) == name and isinstance(inner, Scope):
                    return inner
        return None if name in self.tables else self._view(name)

    def is_recursive(self, scope: Scope) -> bool:
        """True for what `query_of` gives for a recursive CTE's use of itself."""
        return self._scopes.get(id(scope.expression)) is not scope

    def _add_scopes(self, query: exp.Expr) -> Scope | None:
        try:
            scopes = traverse_scope(query)
        except OptimizeError:
            return None
        self._scopes.update((id(scope.expression), scope) for scope in scopes)
        return scopes[-1] if scopes else None

    def _view(self, name: str) -> Scope | None:
        if name not in self._views:
            self._views[name] = None
            tree = parse_statement(self._view_sql.get(name, ""))
            if isinstance(tree, exp.Create) and isinstance(tree.expression, exp.Query):
                scope = self._add_scopes(tree.expression)
                if scope is not None and isinstance(tree.this, exp.Schema):
                    scope.outer_columns = [column.name for column in tree.this.expressions]
                self._views[name] = scope
        return self._views[name]

    def _source(self, alias: str, node: exp.Expr) -> Source:
        if isinstance(node, exp.Table):
            inner = self.query_of(node)
            table = self.tables.get(fold_name(node.name)) if inner is None else None
            if table is not None:
                key = [one for one in table.columns if one.primary_key]
                columns = {
                    fold_name(one.name): SourceColumn(one.name, one, (), key == [one])
                    for one in table.columns
                }
                return Source(alias, node, columns, table)
        else:
            inner = self._scopes.get(id(node))
        offered = self.outputs(inner.expression) if inner is not None else None
        if inner is None or offered is None:
            return Source(alias, node, None)
        names = inner.outer_columns
        renamed = [replace(one, name=name) for one, name in zip(offered, names, strict=False)]
        return Source(alias, node, _by_name(renamed + offered[len(renamed) :]))

    def _select_outputs(self, select: exp.Select) -> list[SourceColumn] | None:
        columns: list[SourceColumn] = []
        joins = select.args.get("joins") or ()
        shared = {(later, name) for j in joins for _, later, name in self.shared_columns(j)}
        for value in select.expressions:
            if not (isinstance(value, exp.Star | exp.Column) and value.is_star):
                columns.append(SourceColumn(value.output_name, values=(value.unalias(),)))
                continue
            qualifier = fold_name(value.table) if isinstance(value, exp.Column) else ""
            for source in self.sources(select):
                if qualifier and fold_name(source.alias) != qualifier:
                    continue
                if source.columns is None:
                    return None
                for name, column in source.columns.items():
                    if not qualifier and (source, name) in shared:
                        continue  # `*` shows it once
                    reference = exp.column(column.name, table=source.alias or None, quoted=True)
                    reference.parent = select  # where `resolve` begins
                    columns.append(SourceColumn(column.name, values=(reference,)))
        return columns

    def _set_outputs(self, query: exp.SetOperation) -> list[SourceColumn] | None:
        left, right = self.outputs(query.this), self.outputs(query.expression) or []
        if left is None:
            return None
        missing = SourceColumn("", values=(exp.Null(),))
        sides = itertools.zip_longest(left, right[: len(left)], fillvalue=missing)
        return [replace(one, values=one.values + other.values) for one, other in sides]

    def _settle_quoted_strings(self) -> None:
        """Turns `"text"` that names nothing into the string SQLite takes it for."""
        strings = [
            column
            for column in self.each(exp.Column)
            if column.this.args.get("quoted") and not column.table and not self._is_name(column)
        ]
        for column in strings:
            column.replace(exp.Literal.string(column.name))
        if strings:
            self.nodes = tuple(self.root.walk(bfs=False))
            self._sources.clear()  # they may hold what is no column
            self._outputs.clear()

    def _is_name(self, column: exp.Column) -> bool:
        name = fold_name(column.name)
        if name in ROWID_NAMES or self.resolve(column):
            return True
        query: exp.Expr | None = column.find_ancestor(exp.Select, exp.SetOperation)
        while query is not None:
            outputs = self.outputs(query) or ()  # an output's alias, in ORDER BY and elsewhere
            if any(fold_name(one.name) == name for one in outputs):
                return True
            if any(source.columns is None for source in self.sources(query)):
                return True
            query = query.find_ancestor(exp.Select, exp.SetOperation)
        return False


def _by_name(columns: list[SourceColumn]) -> dict[str, SourceColumn]:
    """The columns that have a name; the first of a name wins, as in SQLite."""
    named: dict[str, SourceColumn] = {}
    for column in columns:
        if column.name:
            named.setdefault(fold_name(column.name), column)
    return named


def _column_of(source: Source, name: str) -> SourceColumn | None:
    """The source's column of this folded name; `rowid` is its single primary key."""
    if source.columns is None or name in source.columns:
        return source.columns[name] if source.columns else None
    if name in ROWID_NAMES and source.table and not source.table.without_rowid:
        key = source.table.primary_key
        return source.columns[fold_name(key[0])] if len(key) == 1 else None
    return None
