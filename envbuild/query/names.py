"""What the columns of a query stand for: each traced to a base table's column, where it is one."""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import exp

from envbuild.query.parse import parse_statement
from envbuild.records.corpus import Schema
from envbuild.sql.names import fold_name

# A schema's names as queries are traced through them: tables, views, columns, foreign keys.


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


# What a SELECT's columns stand for: each traced to a base table's column, where it is one.
#
# Works on the query text and the schema record alone (no database), for questions about a query's
# structure such as `sql.trees.joins`. Gold tables are another matter: SQLite itself knows those.


class Key(NamedTuple):
    """One use of a base table: by which source of the FROM clause, where inside it."""

    source: int
    """Number of the source within its FROM clause."""
    path: tuple[int, ...]
    """Position of the table inside a derived source; empty for a table named directly."""
    table: str


class Origin(NamedTuple):
    """The base column that a column reference stands for."""

    instance: Key
    column: str


Outputs = dict[str, Origin | None]
"""A source's columns by folded name; None where a column is no plain base column."""


class Tracing:
    """One statement's tracing: the schema's names, and the derived queries traced so far."""

    def __init__(self, columns: SchemaColumns) -> None:
        self.columns = columns
        self.traced: dict[int, Outputs] = {}
        """Columns by query node: a CTE may be used many times."""


class Source(NamedTuple):
    """One entry of a FROM clause."""

    number: int
    alias: str
    outputs: Outputs
    table: str = ""
    """Folded base table name; empty for a derived source."""


class Scope:
    """One SELECT's FROM clause: its sources, and the equalities that its clauses state."""

    def __init__(self, select: exp.Select, tracing: Tracing) -> None:
        self.select = select
        self.tracing = tracing
        self.sources: list[Source] = []
        self.joins: list[tuple[exp.Join, int]] = []
        """Each JOIN with the number of its first source."""

    @classmethod
    def of(cls, select: exp.Select, tracing: Tracing) -> "Scope":
        """The scope of this SELECT, its derived tables and CTEs resolved."""
        scope = cls(select, tracing)
        if (clause := select.args.get("from_")) is not None:
            scope._add(clause.this)
            scope._add_joins(select)
        return scope

    def equalities(self) -> Iterator[tuple[Origin, Origin]]:
        """Pairs of base columns of different sources that the query sets equal."""
        for join, first in self.joins:
            if (condition := join.args.get("on")) is not None:
                yield from self._conditions(condition)
            if join.args.get("using"):
                for name in join.args["using"]:
                    yield from self._shared(fold_name(name.name), first)
            elif join.args.get("method") == "NATURAL":
                for name in self.sources[first].outputs:
                    yield from self._shared(name, first)
        if (where := self.select.args.get("where")) is not None:
            yield from self._conditions(where.this)

    def outputs(self) -> Outputs:
        """The SELECT's own result columns, by folded name."""
        found: Outputs = {}
        for column in self.select.expressions:
            if column.is_star:
                only = fold_name(column.table) if isinstance(column, exp.Column) else ""
                for source in self.sources:
                    if only in ("", source.alias):
                        found |= {n: o for n, o in source.outputs.items() if n not in found}
            elif name := fold_name(column.alias_or_name):
                found[name] = self._origin(column.unalias())
        return found

    def _add(self, node: exp.Expr) -> None:
        """One FROM entry: a table, a derived table, or a parenthesised join."""
        while (
            isinstance(node, exp.Subquery)
            and not node.alias
            and isinstance(node.this, exp.Table | exp.Subquery)
        ):
            self._add_joins(node)
            node = node.this
        number, alias = len(self.sources), fold_name(node.alias_or_name)
        if isinstance(node, exp.Table):
            if isinstance(node.this, exp.Func):
                return  # a table-valued function: rows of one row, nothing to join along
            self.sources.append(self._table(node, number, alias))
            self._add_joins(node)
        elif isinstance(node, exp.Subquery):
            outputs = _nested(_query_outputs(node.this, self.tracing), number)
            self.sources.append(Source(number, alias, outputs))
            self._add_joins(node)
        else:
            self.sources.append(Source(number, alias, {}))

    def _add_joins(self, holder: exp.Expr) -> None:
        for join in holder.args.get("joins") or ():
            first = len(self.sources)
            self._add(join.this)
            if len(self.sources) > first:
                self.joins.append((join, first))

    def _table(self, node: exp.Table, number: int, alias: str) -> Source:
        name = fold_name(node.name)
        if not node.db and (cte := _cte_of(node, name)) is not None:
            outputs = _renamed(_query_outputs(cte.this, self.tracing), _given_names(cte))
            return Source(number, alias, _nested(outputs, number))
        if (view := self.tracing.columns.view(name)) is not None:
            outputs = _renamed(_query_outputs(view.query, self.tracing), view.names)
            return Source(number, alias, _nested(outputs, number))
        key = Key(number, (), name)
        known = self.tracing.columns.columns.get(name, ())
        return Source(number, alias, {column: Origin(key, column) for column in known}, name)

    def _conditions(self, condition: exp.Expr) -> Iterator[tuple[Origin, Origin]]:
        """The equalities among conditions that must all hold."""
        waiting = [condition]
        while waiting:
            node = waiting.pop().unnest()
            if isinstance(node, exp.And):
                waiting += (node.this, node.expression)
            elif isinstance(node, exp.EQ | exp.NullSafeEQ | exp.Is):
                left, right = node.this.unnest(), node.expression.unnest()
                if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
                    pairs = list(zip(left.expressions, right.expressions, strict=False))
                else:
                    pairs = [(left, right)]
                for one, other in pairs:
                    a, b = self._origin(one), self._origin(other)
                    if a and b and a.instance.source != b.instance.source:
                        yield a, b

    def _shared(self, name: str, first: int) -> Iterator[tuple[Origin, Origin]]:
        """USING (name): the joined source's column equals that of every earlier source."""
        joined = self.sources[first].outputs.get(name)
        for source in self.sources[:first]:
            earlier = source.outputs.get(name)
            if joined and earlier:
                yield joined, earlier

    def _origin(self, node: exp.Expr) -> Origin | None:
        node = node.unnest()
        if not isinstance(node, exp.Column) or node.is_star:
            return None
        name, alias = fold_name(node.name), fold_name(node.table)
        for source in self.sources:
            if alias and alias != source.alias:
                continue
            if name in source.outputs:
                return source.outputs[name]
            if source.table and (column := self.tracing.columns.column(source.table, name)):
                return Origin(Key(source.number, (), source.table), column)
        return None


def _query_outputs(query: exp.Expr, tracing: Tracing) -> Outputs:
    """A derived query's columns; of a set operation only what both sides pass on alike."""
    query = query.unnest()
    if id(query) not in tracing.traced:
        tracing.traced[id(query)] = {}  # what a circle of CTEs finds, so that tracing ends
        tracing.traced[id(query)] = _trace(query, tracing)
    return tracing.traced[id(query)]


def _trace(query: exp.Expr, tracing: Tracing) -> Outputs:
    if isinstance(query, exp.Select):
        return Scope.of(query, tracing).outputs()
    if isinstance(query, exp.SetOperation):
        left = _query_outputs(query.this, tracing)
        right = list(_query_outputs(query.expression, tracing).values())
        return {
            name: origin if at < len(right) and origin and _same(origin, right[at]) else None
            for at, (name, origin) in enumerate(left.items())
        }
    return {}


def _same(a: Origin, b: Origin | None) -> bool:
    return b is not None and (a.instance.table, a.column) == (b.instance.table, b.column)


def _nested(outputs: Outputs, number: int) -> Outputs:
    """A derived query's columns as those of source `number` of the query around it."""
    return {
        name: origin
        and Origin(
            Key(number, (origin.instance.source, *origin.instance.path), origin.instance.table),
            origin.column,
        )
        for name, origin in outputs.items()
    }


def _renamed(outputs: Outputs, names: list[str]) -> Outputs:
    """The columns under these names, where any are given."""
    return dict(zip(names, outputs.values(), strict=False)) if names else outputs


def _given_names(cte: exp.CTE) -> list[str]:
    """The names of `WITH t(a, b)`, folded."""
    alias = cte.args.get("alias")
    return [fold_name(name.name) for name in (alias.args.get("columns") or ())] if alias else []


def _cte_of(node: exp.Expr, name: str) -> exp.CTE | None:
    """The CTE that this table name means: the innermost WITH around it that defines it.

    The CTEs of one WITH see each other; a recursive one's use of itself means no CTE here.
    """
    around = node.parent
    while around is not None:
        if isinstance(around, exp.CTE) and fold_name(around.alias) == name:
            return None
        if (clause := around.args.get("with_")) is not None:
            for cte in clause.expressions:
                if fold_name(cte.alias) == name:
                    return cte  # type: ignore[no-any-return]  # sqlglot's expressions are Any
        around = around.parent
    return None
