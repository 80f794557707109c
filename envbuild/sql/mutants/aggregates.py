"""Operators on aggregates, DISTINCT, arithmetic, casts and windows."""

from collections.abc import Iterator
from functools import partial

from sqlglot import exp

from envbuild.sql.mutants.edits import Edit, dropped, same_sides, swap
from envbuild.sql.mutants.places import name_of, select_of
from envbuild.sql.mutants.proofs import (
    count_ignores_duplicates,
    distinct_is_idle,
    is_never_null,
)
from envbuild.sql.mutants.tree import GoldTree, Source, SourceColumn

_OTHER_AGGREGATES: dict[type[exp.Expr], tuple[type[exp.Expr], ...]] = {
    exp.Max: (exp.Min,),
    exp.Min: (exp.Max,),
    exp.Sum: (exp.Avg, exp.Count),
    exp.Avg: (exp.Sum, exp.Max),
}
_OTHER_ARITHMETIC: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.Add: exp.Sub,
    exp.Sub: exp.Add,
    exp.Mul: exp.Div,
    exp.Div: exp.Mul,
}
_OTHER_RANKS: dict[type[exp.Expr], tuple[type[exp.Expr], ...]] = {
    exp.RowNumber: (exp.DenseRank, exp.Rank),
    exp.Rank: (exp.DenseRank, exp.RowNumber),
    exp.DenseRank: (exp.Rank, exp.RowNumber),
}


def agg(tree: GoldTree) -> Iterator[Edit]:
    """Another aggregate: MAX and MIN, SUM, AVG and COUNT.

    Rows counted become a sum of what they hold: the largest sum for the most rows is a slip that
    published systems make.
    """
    keys = _key_columns(tree)
    for count in tree.each(exp.Count):
        if isinstance(count.this, exp.Star):
            for source, column in _columns_near(tree, count):
                named = (source.table.name if source.table else "", column.name)
                if column.kind == "number" and named not in keys:
                    yield swap(count, partial(_sum_of, source, column))
    for node in tree.each(*_OTHER_AGGREGATES):
        if node.expressions:
            continue  # the scalar MAX(a, b)
        for kind in _OTHER_AGGREGATES[type(node)]:
            yield swap(node, partial(_same_argument, node, kind))


def count_col(tree: GoldTree) -> Iterator[Edit]:
    """COUNT(*) and COUNT(column) exchanged, where the column may be NULL."""
    for node in tree.each(exp.Count):
        if isinstance(node.this, exp.Star):
            for source, column in _columns_near(tree, node):
                if not is_never_null(tree, source, column):
                    yield swap(node, partial(_count_of, source, column, distinct=False))
        elif isinstance(node.this, exp.Column):
            found = tree.resolve(node.this)
            if found and not is_never_null(tree, *found):
                yield swap(node, _count_rows)


def count_distinct(tree: GoldTree) -> Iterator[Edit]:
    """COUNT and COUNT(DISTINCT …) exchanged, where values may repeat."""
    for node in tree.each(exp.Count, exp.Sum, exp.Avg):
        inner = node.this
        if isinstance(inner, exp.Distinct):
            if len(inner.expressions) == 1 and not count_ignores_duplicates(
                tree, inner.expressions[0]
            ):
                yield swap(inner, inner.expressions[0].copy)
        elif isinstance(inner, exp.Star):
            for source, column in _columns_near(tree, node):
                if not (column.unique and _is_alone(tree, source)):
                    yield swap(node, partial(_count_of, source, column, distinct=True))
        elif isinstance(node, exp.Count) and not count_ignores_duplicates(tree, inner):
            yield swap(inner, partial(_distinct_of, inner))


def distinct(tree: GoldTree) -> Iterator[Edit]:
    """DISTINCT dropped or added, where rows may repeat."""
    for select in tree.each(exp.Select):
        if distinct_is_idle(tree, select):
            continue
        if select.args.get("distinct"):
            yield dropped(select, "distinct")
        else:
            yield Edit(select, "distinct", exp.Distinct)


def arith(tree: GoldTree) -> Iterator[Edit]:
    """+ and -, * and / exchanged; the sides of - and / exchanged."""
    for node in tree.each(*_OTHER_ARITHMETIC):
        yield swap(node, partial(same_sides, node, _OTHER_ARITHMETIC[type(node)]))
        if isinstance(node, exp.Sub | exp.Div) and not isinstance(node.parent, exp.Binary):
            yield swap(node, partial(_sides_exchanged, node))


def cast_drop(tree: GoldTree) -> Iterator[Edit]:
    """A CAST gone, and with it the division of reals."""
    for node in tree.each(exp.Cast):
        yield swap(node, partial(_bracketed, node.this))


def window(tree: GoldTree) -> Iterator[Edit]:
    """PARTITION BY gone; ROW_NUMBER, RANK and DENSE_RANK exchanged."""
    for node in tree.each(exp.Window):
        if node.args.get("partition_by"):
            yield dropped(node, "partition_by")
        for kind in _OTHER_RANKS.get(type(node.this), ()):
            yield Edit(node, "this", kind)


def _same_argument(node: exp.Expr, kind: type[exp.Expr]) -> exp.Expr:
    return kind(this=node.this.copy())


def _count_rows() -> exp.Expr:
    return exp.Count(this=exp.Star())


def _count_of(source: Source, column: SourceColumn, *, distinct: bool) -> exp.Expr:
    counted: exp.Expr = exp.Column(this=name_of(column.name), table=name_of(source.alias))
    return exp.Count(this=exp.Distinct(expressions=[counted]) if distinct else counted)


def _sum_of(source: Source, column: SourceColumn) -> exp.Expr:
    return exp.Sum(this=exp.Column(this=name_of(column.name), table=name_of(source.alias)))


def _key_columns(tree: GoldTree) -> set[tuple[str, str]]:
    """(table, column) of primary and foreign keys: nobody adds them up."""
    keys = {(t.name, column) for t in tree.schema.tables for column in t.primary_key}
    for edge in tree.schema.foreign_keys:
        keys |= {(edge.child, column) for column in edge.child_columns}
    return keys


def _distinct_of(inner: exp.Expr) -> exp.Expr:
    return exp.Distinct(expressions=[inner.copy()])


def _sides_exchanged(node: exp.Expr) -> exp.Expr:
    return type(node)(
        this=_bracketed(node.expression), expression=_bracketed(node.this), **_division_flags(node)
    )


def _division_flags(node: exp.Expr) -> dict[str, object]:
    return {key: node.args[key] for key in ("typed", "safe") if key in node.args}


def _bracketed(node: exp.Expr) -> exp.Expr:
    inner = node.copy()
    return exp.Paren(this=inner) if isinstance(node, exp.Binary) else inner


def _is_alone(tree: GoldTree, source: Source) -> bool:
    select = select_of(source.node)
    return select is not None and len(tree.sources(select)) == 1


def _columns_near(tree: GoldTree, node: exp.Expr) -> Iterator[tuple[Source, SourceColumn]]:
    """Columns of the base tables that a COUNT(*) counts rows of."""
    select = select_of(node)
    for source in tree.sources(select) if select else ():
        if source.table is not None:
            for column in (source.columns or {}).values():
                yield source, column
