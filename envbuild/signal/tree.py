"""A gold query as a tree that knows its tables: scopes, column kinds, places, and edits that are
undone."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import apsw
from sqlglot import exp

from envbuild.errors import GoldError
from envbuild.query.names import QueryNames, Source, SourceColumn
from envbuild.query.parse import parse_statement, render
from envbuild.records.corpus import Column, Schema

# Whether SQL compiles on a schema, asked of an empty database with that schema.


def compiler_for(schema: Schema) -> Callable[[str], bool]:
    """Whether SQLite prepares a statement on this schema; keep it for the next statements.

    Double quotes name identifiers only, as a mutant means them.
    """
    connection = apsw.Connection(":memory:")
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 1)
    # an application's own collation: nothing is ever compared here
    connection.collation_needed(lambda c, name: c.create_collation(name, lambda *_: 0))
    for statement in (*(table.sql for table in schema.tables), *schema.view_sql):
        # a virtual table's module, a view over it: its queries do not compile
        with contextlib.suppress(apsw.Error):
            connection.execute(statement)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)

    def compiles(sql: str) -> bool:
        try:
            connection.execute(f"EXPLAIN {sql}", can_cache=False).close()
        except (apsw.Error, RecursionError, UnicodeEncodeError):
            return False
        return True

    return compiles


# A gold query as a tree that knows its tables, and the type classes of its columns.


class GoldTree(QueryNames):
    """A parsed gold query over one schema.

    Raises GoldError (`unparsed_gold`) where sqlglot does not read it.
    """

    def __init__(self, sql: str, schema: Schema) -> None:
        root = parse_statement(sql.strip().rstrip(";"))
        if not isinstance(root, exp.Query):
            detail = "not a SELECT" if root is not None else "sqlglot cannot read it, or not soon"
            raise GoldError("unparsed_gold", detail)
        super().__init__(root, schema)
        self._kinds: dict[SourceColumn, str] = {}

    def column_kind(self, column: SourceColumn) -> str:
        """The type class of a source's column."""
        if column not in self._kinds:
            declared, values = column.declared, column.values
            self._kinds[column] = type_class(declared) if declared else self.kind(values[0])
        return self._kinds[column]

    def kind(self, value: exp.Expr) -> str:
        """The type class of an expression: number, text, date or other."""
        if isinstance(value, exp.Alias | exp.Paren | exp.Max | exp.Min | exp.Distinct):
            inner = value.expressions[0] if isinstance(value, exp.Distinct) else value.this
            return self.kind(inner)
        if isinstance(value, exp.Column):
            found = self.resolve(value)
            return self.column_kind(found[1]) if found else "other"
        if isinstance(value, exp.Literal):
            return "text" if value.is_string else "number"
        if isinstance(value, exp.AggFunc | exp.Binary | exp.Neg | exp.Round | exp.Abs | exp.Window):
            return "text" if isinstance(value, exp.GroupConcat | exp.DPipe) else "number"
        if isinstance(value, exp.Cast):
            return "text" if value.to.is_type(*exp.DataType.TEXT_TYPES) else "number"
        return "other"


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


# One change to a gold's tree, made, rendered and undone: no tree is copied for a mutant.


class Edit(NamedTuple):
    """Set argument `key` of `owner` to what `make` builds; an `owner` of None replaces the root."""

    owner: exp.Expr | None
    key: str
    make: Callable[[], Any]
    """Children that it takes from the tree are copied, so that undoing is exact."""

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
    own = list(_like(tree, source, old, column))
    for new in own:
        yield swap(column, partial(_reference, column, new.name, column.table))
    if own or not elsewhere:
        return
    for other in tree.sources(select):
        if other is not source:
            for new in _like(tree, other, old, column):
                yield swap(column, partial(_reference, column, new.name, other.alias))


def _like(
    tree: GoldTree, source: Source, old: SourceColumn, place: exp.Column
) -> Iterator[SourceColumn]:
    parent = place.parent
    rows = isinstance(parent, exp.Count)
    counted = rows or (isinstance(parent, exp.Distinct) and isinstance(parent.parent, exp.Count))
    for column in (source.columns or {}).values():
        if column.name.lower() == old.name.lower():
            continue
        if rows and column.not_null and old.not_null:
            continue  # both count every row
        if counted or tree.column_kind(column) == tree.column_kind(old):
            yield column


def _reference(old: exp.Column, name: str, qualifier: str) -> exp.Expr:
    column = exp.Column(this=name_of(name), table=name_of(qualifier) if qualifier else None)
    parent = old.parent
    if isinstance(parent, exp.Select) and old.arg_key == "expressions" and is_nested(parent):
        # the query around it still asks for the old name
        return exp.Alias(this=column, alias=name_of(old.name))
    return column
