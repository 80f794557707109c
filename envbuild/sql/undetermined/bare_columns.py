"""Grouped queries whose bare columns are pinned: the least and the greatest value of each group.

`SELECT name, count(*) … GROUP BY city` shows the name of whichever row SQLite met. With every such
bare column wrapped in MIN and then in MAX, the two results are equal exactly where the column has
one value a group. The text is spliced, not rendered anew: nothing else of it changes.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlglot import exp

from envbuild.sql.connect import quote_name
from envbuild.sql.names import fold_name
from envbuild.sql.trees.parse import parse_statement

_OTHER_AGGREGATES = frozenset(
    ("total", "string_agg", "json_group_array", "json_group_object", "median", "percentile")
)
"""Aggregates of SQLite that the parser may not know."""


def pin_bare_columns(sql: str, column_names: frozenset[str]) -> tuple[str, str] | None:
    """The query with its bare columns under MIN, and under MAX; None where it has none.

    `column_names` are the database's, folded: a double-quoted word outside them is a string.
    None too where the parser cannot read the query, and for a group query with a single min() or
    max(): there SQLite takes bare columns from that row. `*` is left as it is.
    """
    tree = parse_statement(sql)
    if tree is None:
        return None
    spans = sorted(
        {
            span
            for select in tree.find_all(exp.Select)
            for column in _bare_columns(select, column_names)
            if (span := _span(sql, column))
        },
        reverse=True,
    )
    if not spans:
        return None
    return _wrapped(sql, spans, "MIN"), _wrapped(sql, spans, "MAX")


class Span(NamedTuple):
    """Where a bare column stands in the text."""

    start: int
    end: int
    alias: str
    """` AS "name"` where the column is a result column that others may know by its name."""


def _bare_columns(select: exp.Select, column_names: frozenset[str]) -> Iterator[exp.Column]:
    group = select.args.get("group")
    having, order = select.args.get("having"), select.args.get("order")
    outside = [part for part in (having, order) if part is not None]
    aggregates = [a for e in [*select.expressions, *outside] for a in _aggregates(e)]
    if group is None and not aggregates:
        return
    if sum(_is_extreme(a) for a in aggregates) == 1:
        return
    keys = _Keys.of(group.expressions if group else ())
    aliases = {fold_name(e.alias) for e in select.expressions if e.alias}
    sources = set(_sources(select))
    for position, projection in enumerate(select.expressions, start=1):
        if not keys.name(projection, position):
            yield from _columns(projection, column_names, sources, keys, frozenset())
    for part in outside:
        yield from _columns(part, column_names, sources, keys, frozenset(aliases))


def _columns(
    node: exp.Expr,
    column_names: frozenset[str],
    sources: set[str],
    keys: "_Keys",
    aliases: frozenset[str],
) -> Iterator[exp.Column]:
    """Columns below `node` outside aggregates, inner queries and group keys."""
    if isinstance(node, exp.Column):
        known = fold_name(node.name) in column_names
        own = (
            fold_name(node.table) in sources if node.table else fold_name(node.name) not in aliases
        )
        if known and own and not keys.hold(node):
            yield node
    elif not (isinstance(node, exp.Query) or _is_aggregate(node) or keys.hold(node)):
        for child in node.iter_expressions():
            yield from _columns(child, column_names, sources, keys, aliases)


class _Keys(NamedTuple):
    """The expressions of a GROUP BY, as text; rendering is dear, so columns stand apart."""

    columns: frozenset[str]
    others: frozenset[str]

    @classmethod
    def of(cls, expressions: Iterable[exp.Expr]) -> "_Keys":
        columns = [e for e in expressions if isinstance(e, exp.Column)]
        others = [e for e in expressions if not isinstance(e, exp.Column)]
        return cls(frozenset(map(_text, columns)), frozenset(map(_text, others)))

    def hold(self, node: exp.Expr) -> bool:
        """Whether the node is one of them, word by word."""
        known = self.columns if isinstance(node, exp.Column) else self.others
        return bool(known) and _text(node) in known

    def name(self, projection: exp.Expr, position: int) -> bool:
        """Whether they name a result column: by alias, position or text."""
        alias = fold_name(projection.alias or "")
        return (
            alias in self.columns or str(position) in self.others or self.hold(projection.unalias())
        )


def _aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    if _is_aggregate(node):
        yield node
    elif not isinstance(node, exp.Query):
        for child in node.iter_expressions():
            yield from _aggregates(child)


def _is_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Filter):
        return True
    if isinstance(node.parent, exp.Window) and node.arg_key == "this":
        return False  # a window function: its arguments are evaluated after grouping
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _OTHER_AGGREGATES
    scalar = isinstance(node, exp.Max | exp.Min) and node.expressions
    return isinstance(node, exp.AggFunc) and not scalar


def _is_extreme(node: exp.Expr) -> bool:
    inner = node.this if isinstance(node, exp.Filter) else node
    return isinstance(inner, exp.Max | exp.Min)


def _sources(select: exp.Select) -> Iterator[str]:
    clauses = [select.args.get("from_") or select.args.get("from"), *select.args.get("joins", ())]
    for clause in clauses:
        if clause is not None and clause.this is not None:
            yield fold_name(clause.this.alias_or_name)


def _text(node: exp.Expr) -> str:
    if isinstance(node, exp.Column):  # nearly all, and rendering is dear
        return fold_name(".".join(part.name for part in node.parts))
    return fold_name(node.sql(dialect="sqlite"))


def _span(sql: str, column: exp.Column) -> Span | None:
    """Where the column stands in the text; None where the parser does not say so exactly."""
    places = [(part.meta.get("start", -1), part.meta.get("end", -1)) for part in column.parts]
    if not places or min(min(place) for place in places) < 0:
        return None
    start, end = places[0][0], places[-1][1] + 1
    last = sql[places[-1][0] : end]
    if column.name not in (last, last[1:-1]):
        return None
    named = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
    return Span(start, end, f" AS {quote_name(column.name)}" if named else "")


def _wrapped(sql: str, spans: list[Span], function: str) -> str:
    for start, end, alias in spans:
        sql = f"{sql[:start]}{function}({sql[start:end]}){alias}{sql[end:]}"
    return sql
