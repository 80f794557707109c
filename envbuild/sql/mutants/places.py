"""Where in a query a node stands, and which columns could stand there instead."""

from collections.abc import Iterator

import apsw
from sqlglot import exp

from envbuild.sql.mutants.edits import Edit, swap
from envbuild.sql.mutants.tree import GoldTree, Source, SourceColumn

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
