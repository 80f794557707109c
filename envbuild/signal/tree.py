"""A gold query as a tree that knows its tables: scopes, column kinds, places, and edits that are
undone."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import apsw
from sqlglot import exp

from envbuild.errors import GoldError
from envbuild.query.parse import parse_statement
from envbuild.records.corpus import Column, Schema, Table

# Whether SQL compiles on a schema, asked of an empty database with that schema.


class Compiler:
    """An empty in-memory database; double quotes name identifiers only, as a mutant means them."""

    def __init__(self, statements: Iterable[str]) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 1)
        # an application's own collation: nothing is ever compared here
        self._connection.collation_needed(lambda c, name: c.create_collation(name, lambda *_: 0))
        for statement in statements:
            try:
                self._connection.execute(statement)
            except apsw.Error:
                continue  # a virtual table's module, a view over it: its queries do not compile
        self._connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)

    @classmethod
    def of_schema(cls, schema: Schema) -> "Compiler":
        """The compiler for a schema's tables and views."""
        return cls([table.sql for table in schema.tables] + list(schema.view_sql))

    def compiles(self, sql: str) -> bool:
        """True where SQLite prepares the statement on this schema."""
        try:
            for _ in self._connection.execute(f"EXPLAIN {sql}", can_cache=False):
                break
        except (apsw.Error, RecursionError, UnicodeEncodeError):
            return False
        return True


# A gold query as a tree that knows its tables: scopes, column kinds, and SQLite's quoted strings.
#
# It resolves as much as mutating needs and no more: a column it cannot place is left alone.


E = TypeVar("E", bound=exp.Expr)
ROWID_NAMES = frozenset(("rowid", "oid", "_rowid_"))


class SourceColumn:
    """A column that a FROM source offers.

    Key columns count as NOT NULL: SQLite lets NULL into some, but no data that keeps its keys does.
    """

    __slots__ = ("kind", "name", "not_null", "unique")

    def __init__(
        self, name: str, kind: str, *, not_null: bool = False, unique: bool = False
    ) -> None:
        self.name, self.kind, self.not_null, self.unique = name, kind, not_null, unique


class Source:
    """One FROM source of a SELECT: a base table, a CTE or a derived table."""

    __slots__ = ("alias", "columns", "node", "table")

    def __init__(
        self,
        alias: str,
        columns: dict[str, SourceColumn] | None,
        node: exp.Expr,
        table: Table | None = None,
    ) -> None:
        self.alias, self.columns, self.node, self.table = alias, columns, node, table
        # columns is None where they cannot be known (a recursive CTE, a table function)


class GoldTree:
    """A parsed gold query over one schema.

    Raises GoldError (`unparsed_gold`) where sqlglot does not read it.
    """

    def __init__(self, sql: str, schema: Schema) -> None:
        self.schema = schema
        self.tables = {table.name.lower(): table for table in schema.tables}
        root = parse_statement(sql.strip().rstrip(";"))
        if not isinstance(root, exp.Query):
            detail = "not a SELECT" if root is not None else "sqlglot cannot read it, or not soon"
            raise GoldError("unparsed_gold", detail)
        self.root = root
        self._sources: dict[int, list[Source]] = {}
        self._outputs: dict[int, dict[str, SourceColumn] | None] = {}
        self.nodes: tuple[exp.Expr, ...] = tuple(self.root.walk(bfs=False))
        if self._settle_quoted_strings():
            self.nodes = tuple(self.root.walk(bfs=False))

    def each(self, *kinds: type[E]) -> Iterator[E]:
        """Every node of these kinds, depth first."""
        for node in self.nodes:
            if isinstance(node, kinds):
                yield node

    def sources(self, select: exp.Select) -> list[Source]:
        """The FROM sources of a SELECT, in order."""
        found = self._sources.get(id(select))
        if found is None:
            self._sources[id(select)] = found = [
                self._source(node) for node in source_nodes(select)
            ]
        return found

    def resolve(self, column: exp.Column) -> tuple[Source, SourceColumn] | None:
        """The source and column that a column reference means; None where it cannot be told."""
        name, qualifier = column.name.lower(), column.table.lower()
        select: exp.Expr | None = column.find_ancestor(exp.Select, exp.SetOperation)
        while isinstance(select, exp.Select):
            for source in self.sources(select):
                if qualifier and source.alias.lower() != qualifier:
                    continue
                if source.columns is not None and name in source.columns:
                    return source, source.columns[name]
            select = select.find_ancestor(exp.Select)
        return None

    def outputs(self, query: exp.Expr) -> dict[str, SourceColumn] | None:
        """What a query offers to the query around it; None where it cannot be known."""
        while isinstance(query, exp.Subquery | exp.SetOperation):
            query = query.this
        if not isinstance(query, exp.Select):
            return None
        if id(query) not in self._outputs:
            self._outputs[id(query)] = None  # a recursive CTE asks for itself
            self._outputs[id(query)] = self._select_outputs(query)
        return self._outputs[id(query)]

    def kind(self, value: exp.Expr) -> str:
        """The type class of an expression: number, text, date or other."""
        if isinstance(value, exp.Alias | exp.Paren | exp.Max | exp.Min | exp.Distinct):
            inner = value.expressions[0] if isinstance(value, exp.Distinct) else value.this
            return self.kind(inner)
        if isinstance(value, exp.Column):
            found = self.resolve(value)
            return found[1].kind if found else "other"
        if isinstance(value, exp.Literal):
            return "text" if value.is_string else "number"
        if isinstance(value, exp.AggFunc | exp.Binary | exp.Neg | exp.Round | exp.Abs | exp.Window):
            return "text" if isinstance(value, exp.GroupConcat | exp.DPipe) else "number"
        if isinstance(value, exp.Cast):
            return "text" if value.to.is_type(*exp.DataType.TEXT_TYPES) else "number"
        return "other"

    def _source(self, node: exp.Expr) -> Source:
        alias = node.alias_or_name
        if isinstance(node, exp.Table):
            if cte := _visible_cte(node):
                return Source(alias, _renamed(self.outputs(cte.this), cte), node)
            table = self.tables.get(node.name.lower())
            if table is None:
                return Source(alias, None, node)
            only_key = len(table.primary_key) == 1
            columns = {
                column.name.lower(): SourceColumn(
                    column.name,
                    type_class(column),
                    not_null=column.not_null or bool(column.primary_key),
                    unique=bool(column.primary_key) and only_key,
                )
                for column in table.columns
            }
            return Source(alias, columns, node, table)
        return Source(alias, _renamed(self.outputs(node), node), node)

    def _select_outputs(self, select: exp.Select) -> dict[str, SourceColumn] | None:
        columns: dict[str, SourceColumn] = {}
        for value in select.expressions:
            if value.is_star:
                qualifier = value.table.lower() if isinstance(value, exp.Column) else ""
                for source in self.sources(select):
                    if qualifier and source.alias.lower() != qualifier:
                        continue
                    if source.columns is None:
                        return None
                    columns |= {name: _plain(one) for name, one in source.columns.items()}
            elif value.output_name:
                name = value.output_name
                columns[name.lower()] = SourceColumn(name, self.kind(value))
        return columns

    def _settle_quoted_strings(self) -> bool:
        """Turns `"text"` that names nothing into the string SQLite takes it for."""
        quoted = [
            node
            for node in self.nodes
            if isinstance(node, exp.Column) and node.this.args.get("quoted") and not node.table
        ]
        strings = [node for node in quoted if not self._names_something(node)]
        for node in strings:
            node.replace(exp.Literal.string(node.name))
        return bool(strings)

    def _names_something(self, column: exp.Column) -> bool:
        name = column.name.lower()
        if name in ROWID_NAMES or self.resolve(column):
            return True
        query: exp.Expr | None = column.find_ancestor(exp.Select, exp.SetOperation)
        while query is not None:
            if name in (self.outputs(query) or {}):  # an output's alias, in ORDER BY and elsewhere
                return True
            if isinstance(query, exp.Select) and any(
                source.columns is None for source in self.sources(query)
            ):
                return True
            query = query.find_ancestor(exp.Select, exp.SetOperation)
        return False


def source_nodes(select: exp.Select) -> list[exp.Expr]:
    """The tables and derived tables in a SELECT's FROM, joins included, in order."""
    start = select.args.get("from_")
    nodes = [start.this] if start else []
    nodes += [join.this for join in select.args.get("joins") or ()]
    flat: list[exp.Expr] = []
    for node in nodes:
        while isinstance(node, exp.Paren) or (
            isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table)
        ):
            node = node.this
        flat.append(node)
        flat += [join.this for join in node.args.get("joins") or ()]
    return flat


def type_class(column: Column) -> str:
    """number, text, date or other: columns swap within a class only."""
    declared = column.type.upper()
    if "DATE" in declared or "TIME" in declared:
        return "date"
    if any(word in declared for word in ("CHAR", "CLOB", "TEXT", "STRING")):
        return "date" if column.name.lower().endswith(("date", "time", "_at", "_on")) else "text"
    if any(word in declared for word in ("INT", "REAL", "FLOA", "DOUB", "NUM", "DEC", "BOOL")):
        return "number"
    return "other"


def _visible_cte(table: exp.Table) -> exp.CTE | None:
    name = table.name.lower()
    node: exp.Expr | None = table.parent
    while node is not None:
        held = node.args.get("with_")
        for cte in held.expressions if held else ():
            if cte.alias.lower() == name:
                return cte  # type: ignore[no-any-return] # sqlglot leaves expressions untyped
        node = node.parent
    return None


def _renamed(
    columns: dict[str, SourceColumn] | None, node: exp.Expr
) -> dict[str, SourceColumn] | None:
    """The columns under the names of `AS t(a, b)`, where it has any."""
    alias = node.args.get("alias")
    names = [one.name for one in alias.columns] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return columns
    kinds = [one.kind for one in columns.values()] if columns else []
    kinds += ["other"] * (len(names) - len(kinds))
    return {
        name.lower(): SourceColumn(name, kind) for name, kind in zip(names, kinds, strict=False)
    }


def _plain(column: SourceColumn) -> SourceColumn:
    """The column as a derived table offers it: an outer join inside may have made it NULL."""
    return SourceColumn(column.name, column.kind)


# One change to a gold's tree, made, rendered and undone: no tree is copied for a mutant.


Make = Callable[[], Any]
"""Builds the new value; children it takes from the tree are copied, so that undoing is exact."""


class Edit:
    """Set argument `key` of `owner` to what `make` builds; an `owner` of None replaces the root."""

    __slots__ = ("key", "make", "owner")

    def __init__(self, owner: exp.Expr | None, key: str, make: Make) -> None:
        self.owner, self.key, self.make = owner, key, make

    def render(self, root: exp.Expr) -> str:
        """The SQL of `root` with this one change; `root` is as before afterwards."""
        if self.owner is None:
            return render(self.make())
        old = self.owner.args.get(self.key)
        self.owner.set(self.key, self.make())
        try:
            return render(root)
        finally:
            self.owner.set(self.key, old)


def render(root: exp.Expr) -> str:
    """The tree as SQLite text, without comments."""
    return root.sql(dialect="sqlite", comments=False, copy=False)


def swap(node: exp.Expr, make: Callable[[], exp.Expr]) -> Edit:
    """The edit that puts what `make` builds where `node` stands."""
    owner, key = node.parent, node.arg_key
    if owner is None or key is None:
        return Edit(None, "", make)
    if node.index is None:
        return Edit(owner, key, make)
    siblings = owner.args[key]
    return Edit(owner, key, lambda: [make() if one is node else one for one in siblings])


def without(node: exp.Expr) -> Edit:
    """The edit that takes `node` out of the list it stands in."""
    owner, key = node.parent, node.arg_key
    assert owner is not None and key is not None
    siblings = owner.args[key]
    return Edit(owner, key, lambda: [one for one in siblings if one is not node])


def dropped(owner: exp.Expr, key: str) -> Edit:
    """The edit that clears one argument."""
    return Edit(owner, key, lambda: None)


def same_sides(node: exp.Expr, kind: type[exp.Expr]) -> exp.Expr:
    """A two-sided expression of another kind over copies of `node`'s sides."""
    changed = kind(this=node.this.copy(), expression=node.expression.copy())
    if isinstance(changed, exp.Div):
        # SQLite's own division; without these sqlglot writes a CAST
        changed.set("typed", True)
        changed.set("safe", True)
    return changed


# Where in a query a node stands, and which columns could stand there instead.


COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_KEYWORDS = frozenset(word.lower() for word in apsw.keywords)


def clause_of(node: exp.Expr) -> str:
    """The clause of the nearest query: expressions, from_, joins, where, group, having, order,
    limit …; `window` inside OVER, "" outside any query."""
    child, parent = node, node.parent
    in_window = False
    while parent is not None and not isinstance(parent, exp.Query):
        if isinstance(parent, exp.Window) and child.arg_key != "this":
            in_window = True
        child, parent = parent, parent.parent
    if parent is None:
        return ""
    return "window" if in_window else child.arg_key or ""


def select_of(node: exp.Expr) -> exp.Select | None:
    """The SELECT a node belongs to."""
    found = node.find_ancestor(exp.Select, exp.SetOperation)
    return found if isinstance(found, exp.Select) else None


def is_join_condition(tree: GoldTree, node: exp.Expr) -> bool:
    """True for a comparison of columns of two sources, in ON or in WHERE."""
    if clause_of(node) == "joins":
        return True
    left, right = node.this, node.expression
    if not (isinstance(left, exp.Column) and isinstance(right, exp.Column)):
        return False
    one, other = tree.resolve(left), tree.resolve(right)
    return bool(one and other and one[0] is not other[0])


def is_nested(query: exp.Expr) -> bool:
    """True for a query inside another one: a CTE, a derived table, IN (…), a scalar subquery."""
    return query.find_ancestor(exp.Select, exp.CTE, exp.Subquery, exp.In, exp.Exists) is not None


def name_of(text: str) -> exp.Identifier:
    """An identifier, quoted where SQLite needs it."""
    plain = text.isidentifier() and text.isascii() and text.lower() not in _KEYWORDS
    return exp.to_identifier(text, quoted=not plain)


def column_swaps(tree: GoldTree, column: exp.Column, *, elsewhere: bool = True) -> Iterator[Edit]:
    """Edits that put another column of the same type class where this one stands.

    From the same source; from the SELECT's other sources where that one has none, if `elsewhere`.
    What is counted may be of any class.
    """
    found = tree.resolve(column)
    select = select_of(column)
    if found is None or select is None:
        return
    source, old = found
    own = list(_like(source, old, counted_by(column)))
    for new in own:
        yield swap(column, _put(column, new, column.table))
    if own or not elsewhere:
        return
    for other in tree.sources(select):
        if other is not source:
            for new in _like(other, old, counted_by(column)):
                yield swap(column, _put(column, new, other.alias))


def counted_by(column: exp.Column) -> str:
    """`distinct` inside COUNT(DISTINCT …), `rows` inside COUNT(…), else empty."""
    parent = column.parent
    if isinstance(parent, exp.Distinct) and isinstance(parent.parent, exp.Count):
        return "distinct"
    return "rows" if isinstance(parent, exp.Count) else ""


def _like(source: Source, old: SourceColumn, counted: str) -> Iterator[SourceColumn]:
    for column in (source.columns or {}).values():
        if column.name.lower() == old.name.lower():
            continue
        if counted == "rows" and column.not_null and old.not_null:
            continue  # both count every row
        if counted or column.kind == old.kind:
            yield column


def _put(old: exp.Column, new: SourceColumn, qualifier: str) -> "_NewColumn":
    return _NewColumn(old, new.name, qualifier)


class _NewColumn:
    """Builds the column reference when its mutant is chosen, keeping the output's name."""

    __slots__ = ("name", "old", "qualifier")

    def __init__(self, old: exp.Column, name: str, qualifier: str) -> None:
        self.old, self.name, self.qualifier = old, name, qualifier

    def __call__(self) -> exp.Expr:
        old = self.old
        column = exp.Column(
            this=name_of(self.name), table=name_of(self.qualifier) if self.qualifier else None
        )
        parent = old.parent
        if isinstance(parent, exp.Select) and old.arg_key == "expressions" and is_nested(parent):
            # the query around it still asks for the old name
            return exp.Alias(this=column, alias=name_of(old.name))
        return column
