"""Operators that put another column, or another table, where one stands."""

from collections.abc import Iterator
from functools import partial

from sqlglot import exp

from envbuild.records.corpus import Table
from envbuild.sql.mutants.edits import Edit, dropped, swap, without
from envbuild.sql.mutants.places import clause_of, column_swaps, name_of
from envbuild.sql.mutants.proofs import group_term_is_idle
from envbuild.sql.mutants.tree import GoldTree, Source


def col_select(tree: GoldTree) -> Iterator[Edit]:
    """Another column in the output."""
    yield from _swaps_in(tree, "expressions")


def col_where(tree: GoldTree) -> Iterator[Edit]:
    """Another column in WHERE or HAVING."""
    yield from _swaps_in(tree, "where")
    yield from _swaps_in(tree, "having")


def col_order(tree: GoldTree) -> Iterator[Edit]:
    """Another column, or output position, in ORDER BY."""
    yield from _swaps_in(tree, "order")
    for ordered in tree.each(exp.Ordered):
        position, query = ordered.this, ordered.find_ancestor(exp.Query)
        if not (isinstance(position, exp.Literal) and position.is_int and query):
            continue
        for number in range(1, len(query.selects) + 1):
            if str(number) != position.this:
                yield swap(position, partial(exp.Literal.number, number))


def col_window(tree: GoldTree) -> Iterator[Edit]:
    """Another column inside OVER (…)."""
    yield from _swaps_in(tree, "window")


def group_col(tree: GoldTree) -> Iterator[Edit]:
    """Another column in GROUP BY: of the same class, or one that the output shows."""
    for column in tree.each(exp.Column):
        group = column.parent
        if not isinstance(group, exp.Group):
            if clause_of(column) == "group":
                yield from column_swaps(tree, column)
        elif not group_term_is_idle(tree, group, column):
            yield from column_swaps(tree, column)
    for group in tree.each(exp.Group):
        select = group.parent
        shown = [
            value
            for value in (select.expressions if isinstance(select, exp.Select) else ())
            if isinstance(value, exp.Column) and not value.is_star
        ]
        for term in group.expressions:
            for value in shown:
                if isinstance(term, exp.Column) and value.name.lower() != term.name.lower():
                    yield swap(term, value.copy)


def group_drop(tree: GoldTree) -> Iterator[Edit]:
    """One term of GROUP BY gone; a GROUP BY of one term gone."""
    for group in tree.each(exp.Group):
        if len(group.expressions) > 1:
            for term in group.expressions:
                if not group_term_is_idle(tree, group, term):
                    yield without(term)
        elif group.parent is not None and group.expressions:
            yield dropped(group.parent, "group")


def join_key(tree: GoldTree) -> Iterator[Edit]:
    """Another column in a join's condition."""
    yield from _swaps_in(tree, "joins")


def table_swap(tree: GoldTree) -> Iterator[Edit]:
    """Another table that has every column asked of this one; its neighbours along keys first."""
    for select in tree.each(exp.Select):
        sources = tree.sources(select)
        taken = {source.table.name for source in sources if source.table}
        for source in sources:
            if source.table is None or not isinstance(source.node, exp.Table):
                continue
            asked = _asked_of(tree, select, source)
            if asked is None:
                continue
            fitting = [
                table
                for table in tree.schema.tables
                if table.name not in taken and asked <= {one.name.lower() for one in table.columns}
            ]
            near = _neighbours(tree, source.table)
            # where nothing names a column every table fits: only those a key away are near misses
            chosen = [t for t in fitting if t.name in near] or (fitting if asked else fitting[:2])
            for table in chosen:
                yield swap(source.node, partial(_renamed_table, source, table))


def _swaps_in(tree: GoldTree, clause: str) -> Iterator[Edit]:
    for column in tree.each(exp.Column):
        if not column.is_star and clause_of(column) == clause:
            yield from column_swaps(tree, column, elsewhere=clause != "joins")


def _asked_of(tree: GoldTree, select: exp.Select, source: Source) -> set[str] | None:
    """Names of the columns read from a source, lower case; None where `*` asks for all."""
    asked: set[str] = set()
    for column in tree.each(exp.Column):
        if column.is_star:
            return None
        found = tree.resolve(column)
        if found and found[0] is source:
            asked.add(column.name.lower())
    if any(isinstance(value, exp.Star) for value in select.expressions):
        return None
    return asked


def _neighbours(tree: GoldTree, table: Table) -> set[str]:
    near = set()
    for key in tree.schema.foreign_keys:
        if key.child == table.name:
            near.add(key.parent)
        elif key.parent == table.name:
            near.add(key.child)
    return near


def _renamed_table(source: Source, table: Table) -> exp.Expr:
    node = source.node
    # the old alias or name stays, so that `t.column` still finds it
    alias = exp.TableAlias(this=name_of(source.alias))
    return exp.Table(this=name_of(table.name), alias=alias, joins=node.args.get("joins"))
