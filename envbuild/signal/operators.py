"""The mutation operators of `signal@1`: wrong queries near a gold one (SIGNAL 1)."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial

from sqlglot import exp

from envbuild.query.names import Source, SourceColumn
from envbuild.records.corpus import Table
from envbuild.signal.proofs import (
    count_ignores_duplicates,
    distinct_is_idle,
    group_term_is_idle,
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

# Operators on conditions and the literals in them.


_BOUNDS = {exp.GT: exp.GTE, exp.GTE: exp.GT, exp.LT: exp.LTE, exp.LTE: exp.LT}
_REVERSED = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}
_CONDITION_CLAUSES = ("where", "joins")


def pred_drop(tree: GoldTree) -> Iterator[Edit]:
    """One part of an AND or OR gone; a WHERE of one condition gone."""
    for node in tree.each(exp.And, exp.Or):
        if clause_of(node) in _CONDITION_CLAUSES:
            yield swap(node, node.this.copy)
            yield swap(node, node.expression.copy)
    for where in tree.each(exp.Where):
        if not isinstance(_bare(where.this), exp.Connector) and not _is_join(tree, where.this):
            assert where.parent is not None
            yield dropped(where.parent, "where")


def negate(tree: GoldTree) -> Iterator[Edit]:
    """IN, LIKE, EXISTS, IS NULL and BETWEEN turned into their opposites, and back."""
    for node in tree.each(exp.In, exp.Like, exp.Glob, exp.Exists, exp.Is, exp.Between):
        if node.args.get("negate"):
            yield Edit(node, "negate", lambda: None)
        elif isinstance(node.parent, exp.Not):
            yield swap(node.parent, node.copy)
        else:
            yield swap(node, partial(_not, node))


def cmp_bound(tree: GoldTree) -> Iterator[Edit]:
    """> and >=, < and <= exchanged."""
    for node in tree.each(*_BOUNDS):
        yield swap(node, partial(same_sides, node, _BOUNDS[type(node)]))


def cmp_rev(tree: GoldTree) -> Iterator[Edit]:
    """> and <, >= and <= exchanged."""
    for node in tree.each(*_REVERSED):
        yield swap(node, partial(same_sides, node, _REVERSED[type(node)]))


def cmp_neq(tree: GoldTree) -> Iterator[Edit]:
    """= and <> exchanged, join conditions apart."""
    for node in tree.each(exp.EQ, exp.NEQ):
        if not is_join_condition(tree, node):
            kind = exp.NEQ if isinstance(node, exp.EQ) else exp.EQ
            yield swap(node, partial(same_sides, node, kind))


def cmp_eq_ge(tree: GoldTree) -> Iterator[Edit]:
    """= loosened to >= or <= between numbers or dates, join conditions apart."""
    for node in tree.each(exp.EQ):
        kinds = {tree.kind(node.this), tree.kind(node.expression)}
        if kinds & {"number", "date"} and not is_join_condition(tree, node):
            yield swap(node, partial(same_sides, node, exp.GTE))
            yield swap(node, partial(same_sides, node, exp.LTE))


def and_or(tree: GoldTree) -> Iterator[Edit]:
    """AND and OR exchanged, ON apart."""
    for node in tree.each(exp.And, exp.Or):
        if clause_of(node) == "joins" or _is_join(tree, node.this, node.expression):
            continue
        yield swap(node, partial(_other_connector, node))


def between(tree: GoldTree) -> Iterator[Edit]:
    """BETWEEN with its bounds left out, or with one side open."""
    for node in tree.each(exp.Between):
        if isinstance(node.parent, exp.Not):
            continue
        yield swap(node, partial(_exclusive, node))
        yield swap(node, partial(_bound, node, exp.GTE, "low"))
        yield swap(node, partial(_bound, node, exp.LTE, "high"))


def having_drop(tree: GoldTree) -> Iterator[Edit]:
    """HAVING gone."""
    for having in tree.each(exp.Having):
        assert having.parent is not None
        yield dropped(having.parent, "having")


def lit_num(tree: GoldTree) -> Iterator[Edit]:
    """A number compared or counted with, one step up or down: 1, or 0.1 for decimals."""
    for node in tree.each(exp.Literal):
        if node.is_string or not _is_operand(node):
            continue
        for changed in _number_steps(node.this):
            yield swap(node, partial(exp.Literal.number, changed))


def lit_str(tree: GoldTree) -> Iterator[Edit]:
    """A compared text in another case, within LIKE %…%, or another text of the query."""
    texts = sorted({node.this for node in tree.each(exp.Literal) if _is_compared_text(node)})
    for node in tree.each(exp.Literal):
        if not _is_compared_text(node):
            continue
        parent, text = node.parent, node.this
        if isinstance(parent, exp.EQ) and node.arg_key == "expression":
            yield swap(parent, partial(_contains, parent, text))
        pattern = isinstance(parent, exp.Like)
        for changed in _loosened(text) if pattern else _respelled(text):
            yield swap(node, partial(exp.Literal.string, changed))
        for other in texts:
            if other != text and ("%" in other) == pattern:
                yield swap(node, partial(exp.Literal.string, other))


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _is_join(tree: GoldTree, *nodes: exp.Expr) -> bool:
    bare = [_bare(node) for node in nodes]
    return any(isinstance(one, COMPARISONS) and is_join_condition(tree, one) for one in bare)


def _not(node: exp.Expr) -> exp.Expr:
    inner = node.copy()
    return exp.Not(this=inner if isinstance(node, exp.Exists) else exp.Paren(this=inner))


def _other_connector(node: exp.Expr) -> exp.Expr:
    changed = same_sides(node, exp.Or if isinstance(node, exp.And) else exp.And)
    return exp.Paren(this=changed) if isinstance(node.parent, exp.Connector | exp.Not) else changed


def _exclusive(node: exp.Expr) -> exp.Expr:
    low, high = node.args["low"].copy(), node.args["high"].copy()
    return exp.Paren(
        this=exp.And(
            this=exp.GT(this=node.this.copy(), expression=low),
            expression=exp.LT(this=node.this.copy(), expression=high),
        )
    )


def _bound(node: exp.Expr, kind: type[exp.Expr], key: str) -> exp.Expr:
    return kind(this=node.this.copy(), expression=node.args[key].copy())


def _is_operand(node: exp.Expr) -> bool:
    """True for a literal that a comparison or arithmetic uses, and not a position or a format."""
    parent = node.parent
    while isinstance(parent, exp.Neg | exp.Paren):
        parent = parent.parent
    if clause_of(node) in ("limit", "offset"):
        return False
    return isinstance(parent, (*COMPARISONS, exp.Between, exp.In, exp.Add, exp.Sub, exp.Mul))


def _is_compared_text(node: exp.Literal) -> bool:
    return node.is_string and isinstance(node.parent, (*COMPARISONS, exp.Between, exp.In, exp.Like))


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


def _contains(node: exp.Expr, text: str) -> exp.Expr:
    return exp.Like(this=node.this.copy(), expression=exp.Literal.string(f"%{text}%"))


# Operators on aggregates, DISTINCT, arithmetic, casts and windows.


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
                if tree.column_kind(column) == "number" and named not in keys:
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


# Operators that put another column, or another table, where one stands.


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


# Operators on order, limits, joins and set operations.


_OTHER_SETS: dict[type[exp.Expr], tuple[type[exp.Expr], ...]] = {
    exp.Union: (exp.Intersect, exp.Except),
    exp.Intersect: (exp.Union, exp.Except),
    exp.Except: (exp.Intersect, exp.Union),
}


def order_dir(tree: GoldTree) -> Iterator[Edit]:
    """ASC and DESC exchanged, where the order decides anything."""
    for ordered in tree.each(exp.Ordered):
        if _order_counts(ordered):
            yield swap(ordered, partial(_turned, ordered))


def order_drop(tree: GoldTree) -> Iterator[Edit]:
    """ORDER BY gone, or one of its terms, where the order decides anything."""
    for order in tree.each(exp.Order):
        if order.parent is None or not order.expressions or not _order_counts(order.expressions[0]):
            continue
        if not isinstance(order.parent, exp.Window):
            yield dropped(order.parent, "order")
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
        if offset.parent is not None:
            yield dropped(offset.parent, "offset")


def join_side(tree: GoldTree) -> Iterator[Edit]:
    """INNER JOIN and LEFT JOIN exchanged, unless a condition or a key makes them one."""
    for join in tree.each(exp.Join):
        conditioned = join.args.get("on") is not None or join.args.get("using")
        if not conditioned or not isinstance(join.parent, exp.Select):
            continue
        side = (join.side or "").upper()
        if side in ("", "LEFT") and not join_side_is_idle(tree, join.parent, join):
            yield swap(join, partial(_other_side, join, "" if side else "LEFT"))


def set_op(tree: GoldTree) -> Iterator[Edit]:
    """UNION, UNION ALL, INTERSECT and EXCEPT exchanged."""
    for node in tree.each(exp.SetOperation):
        if isinstance(node, exp.Union):
            turned = not node.args.get("distinct")
            yield Edit(node, "distinct", partial(bool, turned))
        for kind in _OTHER_SETS[type(node)]:
            yield swap(node, partial(_other_set, node, kind))


def set_side(tree: GoldTree) -> Iterator[Edit]:
    """One side of a set operation alone."""
    for node in tree.each(exp.SetOperation):
        yield swap(node, partial(_one_side, node, "this"))
        yield swap(node, partial(_one_side, node, "expression"))


def _order_counts(ordered: exp.Expr) -> bool:
    """False for the order of a query inside another one, where no LIMIT cuts by it."""
    order = ordered.parent
    query = order.parent if order is not None else None
    if not isinstance(query, exp.Query):
        return True  # inside OVER (…) or an aggregate
    return bool(query.args.get("limit")) or not is_nested(query)


def _turned(ordered: exp.Expr) -> exp.Expr:
    downwards = bool(ordered.args.get("desc"))
    # SQLite's own place for NULL in the new direction, so that no NULLS FIRST is written
    return exp.Ordered(this=ordered.this.copy(), desc=not downwards, nulls_first=downwards)


def _other_side(join: exp.Expr, side: str) -> exp.Expr:
    changed = join.copy()
    changed.set("side", side or None)
    changed.set("kind", None)
    return changed


def _other_set(node: exp.Expr, kind: type[exp.Expr]) -> exp.Expr:
    kept = {key: _copied(value) for key, value in node.args.items() if key != "distinct"}
    return kind(**kept, distinct=True)


def _copied(value: object) -> object:
    if isinstance(value, list):
        return [_copied(one) for one in value]
    return value.copy() if isinstance(value, exp.Expr) else value


def _one_side(node: exp.Expr, key: str) -> exp.Expr:
    side: exp.Expr = node.args[key].copy()
    for kept in ("with_", "order", "limit", "offset"):
        if node.args.get(kept) and not side.args.get(kept):
            side.set(kept, node.args[kept].copy())
    return side


# The operators of `signal@1`, in order; a function's name is the operator's name.


Operator = Callable[[GoldTree], Iterator[Edit]]

OPERATORS: tuple[Operator, ...] = (
    pred_drop,
    negate,
    cmp_bound,
    cmp_rev,
    cmp_neq,
    cmp_eq_ge,
    and_or,
    between,
    lit_num,
    lit_str,
    col_select,
    col_where,
    col_order,
    col_window,
    group_col,
    group_drop,
    having_drop,
    agg,
    count_col,
    count_distinct,
    distinct,
    order_dir,
    order_drop,
    limit,
    join_side,
    join_key,
    table_swap,
    set_op,
    set_side,
    arith,
    cast_drop,
    window,
)
