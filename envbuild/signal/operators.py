"""The mutation operators of `signal@1`: wrong queries near a gold one (SIGNAL 1).

An operator lists the places where its change fits; an edit builds its text when it is drawn.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

from sqlglot import exp

from envbuild.query.names import Source, SourceColumn
from envbuild.records.corpus import Table
from envbuild.signal.proofs import (
    count_ignores_duplicates,
    distinct_is_idle,
    group_term_is_idle,
    is_alone,
    is_never_null,
    join_side_is_idle,
)
from envbuild.signal.tree import (
    COMPARISONS,
    Edit,
    GoldTree,
    clause_of,
    column_swaps,
    dropped,
    is_join_condition,
    is_nested,
    name_of,
    same_sides,
    select_of,
    swap,
    without,
)

Operator = Callable[[GoldTree], Iterator[Edit]]
Kinds = dict[type[exp.Expr], tuple[type[exp.Expr], ...]]
"""A kind of node -> the kinds that it turns into."""

# Conditions and the literals in them.


def _exchanged(*pairs: tuple[type[exp.Expr], type[exp.Expr]]) -> Kinds:
    return {one: (other,) for pair in pairs for one, other in (pair, pair[::-1])}


_CONNECTORS = _exchanged((exp.And, exp.Or))


def pred_drop(tree: GoldTree) -> Iterator[Edit]:
    """One part of an AND or OR gone; a WHERE of one condition gone."""
    for node in tree.each(exp.And, exp.Or):
        if clause_of(node) in ("where", "joins"):
            yield swap(node, node.this.copy)
            yield swap(node, node.expression.copy)
    for where in tree.each(exp.Where):
        condition = where.this
        if not isinstance(condition.unnest(), exp.Connector) and not _is_join(tree, condition):
            yield _clause_gone(where)


def negate(tree: GoldTree) -> Iterator[Edit]:
    """IN, LIKE, EXISTS, IS NULL and BETWEEN turned into their opposites, and back."""
    for node in tree.each(exp.In, exp.Like, exp.Glob, exp.Exists, exp.Is, exp.Between):
        if node.args.get("negate"):
            yield dropped(node, "negate")
        elif isinstance(node.parent, exp.Not):
            yield swap(node.parent, node.copy)
        elif isinstance(node, exp.Exists):
            yield _rebuilt(node, lambda it: exp.Not(this=it.copy()))
        else:
            yield _rebuilt(node, lambda it: exp.Not(this=exp.paren(it)))


def and_or(tree: GoldTree) -> Iterator[Edit]:
    """AND and OR exchanged, ON apart."""

    def exchanged(node: exp.Expr) -> exp.Expr:
        other = same_sides(node, *_CONNECTORS[type(node)])
        inside = isinstance(node.parent, exp.Connector | exp.Not)
        return exp.Paren(this=other) if inside else other

    for node in tree.each(*_CONNECTORS):
        if clause_of(node) != "joins" and not _is_join(tree, node.this, node.expression):
            yield _rebuilt(node, exchanged)


def between(tree: GoldTree) -> Iterator[Edit]:
    """BETWEEN with its bounds left out, or with one side open."""

    def bound(node: exp.Expr, kind: type[exp.Expr], key: str) -> exp.Expr:
        return kind(this=node.this.copy(), expression=node.args[key].copy())

    def exclusive(node: exp.Expr) -> exp.Expr:
        low, high = bound(node, exp.GT, "low"), bound(node, exp.LT, "high")
        return exp.Paren(this=exp.And(this=low, expression=high))

    for node in tree.each(exp.Between):
        if not isinstance(node.parent, exp.Not):
            yield _rebuilt(node, exclusive)
            yield swap(node, partial(bound, node, exp.GTE, "low"))
            yield swap(node, partial(bound, node, exp.LTE, "high"))


def lit_num(tree: GoldTree) -> Iterator[Edit]:
    """A number compared or counted with, one step up or down: 1, or 0.1 for decimals."""
    for node in tree.each(exp.Literal):
        if not node.is_string and _is_operand(node):
            for changed in _number_steps(node.this):
                yield swap(node, partial(exp.Literal.number, changed))


def lit_str(tree: GoldTree) -> Iterator[Edit]:
    """A compared text in another case, within LIKE %…%, or another text of the query."""
    within = (*COMPARISONS, exp.Between, exp.In, exp.Like)
    compared = [
        node
        for node in tree.each(exp.Literal)
        if node.is_string and isinstance(node.parent, within)
    ]
    texts = sorted({node.this for node in compared})
    for node in compared:
        parent, text = node.parent, node.this
        if isinstance(parent, exp.EQ) and node.arg_key == "expression":
            yield _rebuilt(parent, _contains)
        pattern = isinstance(parent, exp.Like)
        others = [other for other in texts if other != text and ("%" in other) == pattern]
        for changed in (*(_loosened(text) if pattern else _respelled(text)), *others):
            yield swap(node, partial(exp.Literal.string, changed))


def _rebuilt(node: exp.Expr, build: Callable[[Any], exp.Expr]) -> Edit:
    """The edit that puts `build(node)` where `node` stands."""
    return swap(node, partial(build, node))


def _turning(
    kinds: Kinds, *, fits: Callable[[GoldTree, exp.Expr], bool] = lambda tree, node: True
) -> Operator:
    """The operator that makes two-sided nodes ones of the other kinds, their sides kept."""

    def turned(tree: GoldTree) -> Iterator[Edit]:
        for node in tree.each(*kinds):
            for kind in kinds[type(node)] if fits(tree, node) else ():
                yield swap(node, partial(same_sides, node, kind))

    return turned


def _can_be_ordered(tree: GoldTree, equality: exp.Expr) -> bool:
    kinds = {tree.kind(equality.this), tree.kind(equality.expression)}
    return bool(kinds & {"number", "date"}) and not is_join_condition(tree, equality)


def _clause_gone(clause: exp.Expr) -> Edit:
    assert clause.parent is not None and clause.arg_key is not None
    return dropped(clause.parent, clause.arg_key)


def _is_join(tree: GoldTree, *conditions: exp.Expr) -> bool:
    bare = [condition.unnest() for condition in conditions]
    return any(isinstance(one, COMPARISONS) and is_join_condition(tree, one) for one in bare)


def _is_operand(node: exp.Expr) -> bool:
    """True for a literal that a comparison or arithmetic uses, and not a position or a format."""
    parent = node.parent
    while isinstance(parent, exp.Neg | exp.Paren):
        parent = parent.parent
    operation = (*COMPARISONS, exp.Between, exp.In, exp.Add, exp.Sub, exp.Mul)
    return clause_of(node) not in ("limit", "offset") and isinstance(parent, operation)


def _number_steps(text: str) -> list[str]:
    if text.isdigit() and len(text) <= 15:
        return [str(int(text) + 1), str(int(text) - 1)]
    whole, point, part = text.partition(".")
    if point and (whole + part).isdigit() and len(text) <= 15:
        value, step = Decimal(text), Decimal("0.1")
        return [f"{value + step:f}", f"{value - step:f}"]
    return []


def _respelled(text: str) -> list[str]:
    """The text in another case; a whole number or date as text, one step away."""
    if text.isdigit() and len(text) <= 15:
        return [step.zfill(len(text)) for step in _number_steps(text) if not step.startswith("-")]
    if len(text) == 10 and text[4] == text[7] == "-" and text[8:].isdigit():
        day = int(text[8:])
        return [text[:8] + f"{day % 28 + 1:02}", text[:8] + f"{(day - 2) % 28 + 1:02}"]
    cases = (text.lower(), text.upper(), text.capitalize())
    return [changed for changed in dict.fromkeys(cases) if changed != text][:2]


def _loosened(text: str) -> list[str]:
    """A LIKE pattern with a wildcard taken from or put at each end."""
    changed = [
        text.removeprefix("%") if text.startswith("%") else "%" + text,
        text.removesuffix("%") if text.endswith("%") else text + "%",
    ]
    return [one for one in changed if one.strip("%_")]


def _contains(equality: exp.Expr) -> exp.Expr:
    pattern = exp.Literal.string(f"%{equality.expression.this}%")
    return exp.Like(this=equality.this.copy(), expression=pattern)


# Aggregates, DISTINCT, arithmetic, casts and windows.

_OTHER_AGGREGATES: Kinds = {
    **_exchanged((exp.Max, exp.Min)),
    exp.Sum: (exp.Avg, exp.Count),
    exp.Avg: (exp.Sum, exp.Max),
}
_OTHER_ARITHMETIC = _exchanged((exp.Add, exp.Sub), (exp.Mul, exp.Div))
_OTHER_RANKS: Kinds = {
    exp.RowNumber: (exp.DenseRank, exp.Rank),
    exp.Rank: (exp.DenseRank, exp.RowNumber),
    exp.DenseRank: (exp.Rank, exp.RowNumber),
}


def agg(tree: GoldTree) -> Iterator[Edit]:
    """Another aggregate: MAX and MIN, SUM, AVG and COUNT.

    Rows counted become a sum of what they hold: the largest sum for the most rows is a slip that
    published systems make.
    """
    # nobody adds up the columns of primary and foreign keys
    keys = {(table.name, column) for table in tree.schema.tables for column in table.primary_key}
    keys |= {(edge.child, name) for edge in tree.schema.foreign_keys for name in edge.child_columns}
    for count in tree.each(exp.Count):
        for source, column in _columns_counted(tree, count):
            table = source.table.name if source.table else ""
            if tree.column_kind(column) == "number" and (table, column.name) not in keys:
                yield swap(count, partial(_aggregate, exp.Sum, source, column))
    for node in tree.each(*_OTHER_AGGREGATES):
        if not node.expressions:  # else the scalar MAX(a, b)
            for kind in _OTHER_AGGREGATES[type(node)]:
                yield swap(node, partial(_with_argument, kind, node.this))


def count_col(tree: GoldTree) -> Iterator[Edit]:
    """COUNT(*) and COUNT(column) exchanged, where the column may be NULL."""
    for node in tree.each(exp.Count):
        for source, column in _columns_counted(tree, node):
            if not is_never_null(source, column):
                yield swap(node, partial(_aggregate, exp.Count, source, column))
        found = tree.resolve(node.this) if isinstance(node.this, exp.Column) else None
        if found and not is_never_null(*found):
            yield swap(node, partial(exp.Count, this=exp.Star()))


def count_distinct(tree: GoldTree) -> Iterator[Edit]:
    """COUNT and COUNT(DISTINCT …) exchanged, where values may repeat."""
    for node in tree.each(exp.Count, exp.Sum, exp.Avg):
        inner = node.this
        if isinstance(inner, exp.Star):
            for source, column in _columns_counted(tree, node):
                if not (column.unique and is_alone(tree, source.node)):
                    yield swap(node, partial(_aggregate, exp.Count, source, column, distinct=True))
        elif isinstance(inner, exp.Distinct):
            values = inner.expressions
            if len(values) == 1 and not count_ignores_duplicates(tree, values[0]):
                yield swap(inner, values[0].copy)
        elif isinstance(node, exp.Count) and not count_ignores_duplicates(tree, inner):
            yield _rebuilt(inner, lambda it: exp.Distinct(expressions=[it.copy()]))


def distinct(tree: GoldTree) -> Iterator[Edit]:
    """DISTINCT dropped or added, where rows may repeat."""
    for select in tree.each(exp.Select):
        if not distinct_is_idle(tree, select):
            held = select.args.get("distinct")
            yield dropped(select, "distinct") if held else Edit(select, "distinct", exp.Distinct)


def arith(tree: GoldTree) -> Iterator[Edit]:
    """+ and -, * and / exchanged; the sides of - and / exchanged."""

    def sides_exchanged(node: exp.Expr) -> exp.Expr:
        flags = {key: node.args[key] for key in ("typed", "safe") if key in node.args}
        first, second = _bracketed(node.expression), _bracketed(node.this)
        return type(node)(this=first, expression=second, **flags)

    for node in tree.each(*_OTHER_ARITHMETIC):
        for kind in _OTHER_ARITHMETIC[type(node)]:
            yield swap(node, partial(same_sides, node, kind))
        if isinstance(node, exp.Sub | exp.Div) and not isinstance(node.parent, exp.Binary):
            yield _rebuilt(node, sides_exchanged)


def cast_drop(tree: GoldTree) -> Iterator[Edit]:
    """A CAST gone, and with it the division of reals."""
    return (swap(cast, partial(_bracketed, cast.this)) for cast in tree.each(exp.Cast))


def window(tree: GoldTree) -> Iterator[Edit]:
    """PARTITION BY gone; ROW_NUMBER, RANK and DENSE_RANK exchanged."""
    for node in tree.each(exp.Window):
        if node.args.get("partition_by"):
            yield dropped(node, "partition_by")
        for kind in _OTHER_RANKS.get(type(node.this), ()):
            yield Edit(node, "this", kind)


def _with_argument(kind: type[exp.Expr], argument: exp.Expr) -> exp.Expr:
    return kind(this=argument.copy())


def _aggregate(
    kind: type[exp.Expr], source: Source, column: SourceColumn, *, distinct: bool = False
) -> exp.Expr:
    of = exp.Column(this=name_of(column.name), table=name_of(source.alias))
    return kind(this=exp.Distinct(expressions=[of]) if distinct else of)


def _bracketed(node: exp.Expr) -> exp.Expr:
    return exp.paren(node) if isinstance(node, exp.Binary) else node.copy()


def _columns_counted(tree: GoldTree, count: exp.Expr) -> Iterator[tuple[Source, SourceColumn]]:
    """The columns of the base tables whose rows a COUNT(*) counts; none for another count."""
    select = select_of(count) if isinstance(count.this, exp.Star) else None
    for source in tree.sources(select) if select else ():
        if source.table is not None:
            for column in (source.columns or {}).values():
                yield source, column


# Another column, or another table, where one stands.


def col_order(tree: GoldTree) -> Iterator[Edit]:
    """Another column, or output position, in ORDER BY."""
    yield from _swapping("order")(tree)
    for ordered in tree.each(exp.Ordered):
        position, query = ordered.this, ordered.find_ancestor(exp.Query)
        if isinstance(position, exp.Literal) and position.is_int and query:
            for number in range(1, len(query.selects) + 1):
                if str(number) != position.this:
                    yield swap(position, partial(exp.Literal.number, number))


def group_col(tree: GoldTree) -> Iterator[Edit]:
    """Another column in GROUP BY: of the same class, or one that the output shows."""
    for column in tree.each(exp.Column):
        group = column.parent
        if isinstance(group, exp.Group):
            if not group_term_is_idle(tree, group, column):
                yield from column_swaps(tree, column)
        elif clause_of(column) == "group":
            yield from column_swaps(tree, column)
    for group in tree.each(exp.Group):
        values = group.parent.expressions if isinstance(group.parent, exp.Select) else ()
        shown = [one for one in values if isinstance(one, exp.Column) and not one.is_star]
        for term in group.expressions:
            for value in shown:
                if isinstance(term, exp.Column) and value.name.lower() != term.name.lower():
                    yield swap(term, value.copy)


def group_drop(tree: GoldTree) -> Iterator[Edit]:
    """One term of GROUP BY gone; a GROUP BY of one term gone."""
    for group in tree.each(exp.Group):
        if len(group.expressions) == 1:
            yield _clause_gone(group)
            continue
        for term in group.expressions:
            if not group_term_is_idle(tree, group, term):
                yield without(term)


def table_swap(tree: GoldTree) -> Iterator[Edit]:
    """Another table that has every column asked of this one; its neighbours along keys first."""
    for select in tree.each(exp.Select):
        sources = tree.sources(select)
        taken = {source.table.name for source in sources if source.table}
        for source in sources:
            asked = _asked_of(tree, select, source)
            if source.table is None or not isinstance(source.node, exp.Table) or asked is None:
                continue
            fitting = [
                table
                for table in tree.schema.tables
                if table.name not in taken and asked <= {one.name.lower() for one in table.columns}
            ]
            ends = [
                {key.child, key.parent}
                for key in tree.schema.foreign_keys
                if source.table.name in (key.child, key.parent)
            ]
            near = set().union(*ends)
            # where nothing names a column every table fits: only those a key away are near misses
            chosen = [t for t in fitting if t.name in near] or (fitting if asked else fitting[:2])
            for table in chosen:
                yield swap(source.node, partial(_renamed_table, source, table))


def _swapping(*clauses: str) -> Operator:
    """The operator that puts another column where one stands in these clauses."""

    def swapped(tree: GoldTree) -> Iterator[Edit]:
        for clause in clauses:
            for column in tree.each(exp.Column):
                if not column.is_star and clause_of(column) == clause:
                    yield from column_swaps(tree, column, elsewhere=clause != "joins")

    return swapped


def _asked_of(tree: GoldTree, select: exp.Select, source: Source) -> set[str] | None:
    """Names of the columns read from a source, lower case; None where `*` asks for all."""
    columns = list(tree.each(exp.Column))
    if any(isinstance(one, exp.Star) for one in select.expressions) or any(
        column.is_star for column in columns
    ):
        return None
    found = ((column, tree.resolve(column)) for column in columns)
    return {column.name.lower() for column, place in found if place and place[0] is source}


def _renamed_table(source: Source, table: Table) -> exp.Expr:
    # the old alias or name stays, so that `t.column` still finds it
    alias = exp.TableAlias(this=name_of(source.alias))
    return exp.Table(this=name_of(table.name), alias=alias, joins=source.node.args.get("joins"))


# Order, limits, joins and set operations.

_OTHER_SETS: Kinds = {
    exp.Union: (exp.Intersect, exp.Except),
    exp.Intersect: (exp.Union, exp.Except),
    exp.Except: (exp.Intersect, exp.Union),
}


def order_dir(tree: GoldTree) -> Iterator[Edit]:
    """ASC and DESC exchanged, where the order decides anything."""

    def turned(ordered: exp.Expr) -> exp.Expr:
        downwards = bool(ordered.args.get("desc"))
        # SQLite's own place for NULL in the new direction, so that no NULLS FIRST is written
        return exp.Ordered(this=ordered.this.copy(), desc=not downwards, nulls_first=downwards)

    for ordered in tree.each(exp.Ordered):
        if _order_counts(ordered.parent):
            yield _rebuilt(ordered, turned)


def order_drop(tree: GoldTree) -> Iterator[Edit]:
    """ORDER BY gone, or one of its terms, where the order decides anything."""
    for order in tree.each(exp.Order):
        if not order.expressions or not _order_counts(order):
            continue
        if not isinstance(order.parent, exp.Window):
            yield _clause_gone(order)
        if len(order.expressions) > 1:
            for term in order.expressions:
                yield without(term)


def limit(tree: GoldTree) -> Iterator[Edit]:
    """LIMIT one row longer, one shorter, or gone; OFFSET gone."""
    for node in tree.each(exp.Limit):
        number = node.expression
        if isinstance(number, exp.Literal) and number.is_int:
            rows = int(number.this)
            yield swap(number, partial(exp.Literal.number, rows + 1))
            if rows > 1:
                yield swap(number, partial(exp.Literal.number, rows - 1))
        if node.parent is not None and not node.parent.args.get("offset"):
            yield dropped(node.parent, "limit")
    for offset in tree.each(exp.Offset):
        yield _clause_gone(offset)


def join_side(tree: GoldTree) -> Iterator[Edit]:
    """INNER JOIN and LEFT JOIN exchanged, unless a condition or a key makes them one."""

    def exchanged(join: exp.Expr) -> exp.Expr:
        other = join.copy()
        other.set("side", None if join.args.get("side") else "LEFT")
        other.set("kind", None)
        return other

    for join in tree.each(exp.Join):
        select = join.parent
        conditioned = join.args.get("on") is not None or join.args.get("using")
        if not conditioned or not isinstance(select, exp.Select) or join.side not in ("", "LEFT"):
            continue
        if not join_side_is_idle(tree, select, join):
            yield _rebuilt(join, exchanged)


def set_op(tree: GoldTree) -> Iterator[Edit]:
    """UNION, UNION ALL, INTERSECT and EXCEPT exchanged."""

    def another(node: exp.Expr, kind: type[exp.Expr]) -> exp.Expr:
        return kind(**{**node.copy().args, "distinct": True})

    for node in tree.each(exp.SetOperation):
        if isinstance(node, exp.Union):
            yield Edit(node, "distinct", partial(bool, not node.args.get("distinct")))
        for kind in _OTHER_SETS[type(node)]:
            yield swap(node, partial(another, node, kind))


def set_side(tree: GoldTree) -> Iterator[Edit]:
    """One side of a set operation alone."""

    def alone(node: exp.Expr, key: str) -> exp.Expr:
        side: exp.Expr = node.args[key].copy()
        for kept in ("with_", "order", "limit", "offset"):
            if node.args.get(kept) and not side.args.get(kept):
                side.set(kept, node.args[kept].copy())
        return side

    for node in tree.each(exp.SetOperation):
        yield swap(node, partial(alone, node, "this"))
        yield swap(node, partial(alone, node, "expression"))


def _order_counts(order: exp.Expr | None) -> bool:
    """False for the order of a query inside another one, where no LIMIT cuts by it."""
    query = order.parent if order is not None else None
    if not isinstance(query, exp.Query):
        return True  # inside OVER (…) or an aggregate
    return bool(query.args.get("limit")) or not is_nested(query)


def _is_no_join(tree: GoldTree, comparison: exp.Expr) -> bool:
    return not is_join_condition(tree, comparison)


def _by_name(*operators: Operator) -> dict[str, Operator]:
    return {operator.__name__: operator for operator in operators}


OPERATORS: dict[str, Operator] = {
    **_by_name(pred_drop, negate),
    "cmp_bound": _turning(_exchanged((exp.GT, exp.GTE), (exp.LT, exp.LTE))),
    "cmp_rev": _turning(_exchanged((exp.GT, exp.LT), (exp.GTE, exp.LTE))),
    "cmp_neq": _turning(_exchanged((exp.EQ, exp.NEQ)), fits=_is_no_join),
    "cmp_eq_ge": _turning({exp.EQ: (exp.GTE, exp.LTE)}, fits=_can_be_ordered),
    **_by_name(and_or, between, lit_num, lit_str),
    "col_select": _swapping("expressions"),
    "col_where": _swapping("where", "having"),
    "col_order": col_order,
    "col_window": _swapping("window"),
    **_by_name(group_col, group_drop),
    "having_drop": lambda tree: map(_clause_gone, tree.each(exp.Having)),
    **_by_name(agg, count_col, count_distinct, distinct, order_dir, order_drop, limit, join_side),
    "join_key": _swapping("joins"),
    **_by_name(table_swap, set_op, set_side, arith, cast_drop, window),
}
"""The operators of `signal@1` by name, in order."""
