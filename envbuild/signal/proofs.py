"""Cheap proofs that a change cannot be seen on any database that keeps its declared keys."""

from sqlglot import exp

from envbuild.query.names import Source, SourceColumn
from envbuild.signal.tree import COMPARISONS, GoldTree, select_of

_BAG_VERDICTS = frozenset(("bag@1",))
_SET_VERDICTS = frozenset(("official@1",))
_ORDER_OPERATORS = frozenset(("order_dir", "order_drop", "col_order"))


def operators_unseen_by(verdict: str, tree: GoldTree) -> frozenset[str]:
    """Operators whose changes a verdict can never see in this query."""
    if any(tree.each(exp.Limit, exp.Window)):
        return frozenset()
    if verdict in _SET_VERDICTS:
        nested = any(select is not tree.root for select in tree.each(exp.Select))
        return _ORDER_OPERATORS if nested else _ORDER_OPERATORS | {"distinct"}
    return _ORDER_OPERATORS if verdict in _BAG_VERDICTS else frozenset()


def is_never_null(tree: GoldTree, source: Source, column: SourceColumn) -> bool:
    """True for a NOT NULL column that no outer join can fill with NULL."""
    return column.not_null and not _may_be_missing(source)


def count_ignores_duplicates(tree: GoldTree, counted: exp.Expr) -> bool:
    """True where what is counted is unique already: the key of the only table."""
    select = select_of(counted)
    if select is None or not isinstance(counted, exp.Column) or len(tree.sources(select)) != 1:
        return False
    found = tree.resolve(counted)
    return found is not None and found[1].unique


def distinct_is_idle(tree: GoldTree, select: exp.Select) -> bool:
    """True where DISTINCT cannot change what is asked of this SELECT."""
    parent = select.parent
    if isinstance(parent, exp.SetOperation) and parent.args.get("distinct"):
        return True
    holder = parent.parent if isinstance(parent, exp.Subquery) else parent
    if isinstance(holder, exp.In | exp.Exists) and not select.args.get("limit"):
        return True
    group = select.args.get("group")
    outputs = [value.unalias() for value in select.expressions]
    if group is None:
        if outputs and all(_is_aggregate(value) for value in outputs):
            return True  # one row
        return len(tree.sources(select)) == 1 and any(_is_unique(tree, one) for one in outputs)
    shown = {value.sql() for value in outputs} | {value.alias for value in select.expressions}
    shown |= {str(number) for number in range(1, len(outputs) + 1)}
    return bool(group.expressions) and all(term.sql() in shown for term in group.expressions)


def group_term_is_idle(tree: GoldTree, group: exp.Group, term: exp.Expr) -> bool:
    """True where another term of the GROUP BY is the key of the term's own table."""
    found = tree.resolve(term) if isinstance(term, exp.Column) else None
    if found is None:
        return False
    others = [one for one in group.expressions if one is not term and isinstance(one, exp.Column)]
    return any(
        other is not None and other[0] is found[0] and other[1].unique
        for other in map(tree.resolve, others)
    )


def join_side_is_idle(tree: GoldTree, select: exp.Select, join: exp.Join) -> bool:
    """True where INNER and LEFT give the same rows.

    WHERE, or a later inner join, refuses a missing right side; or the left side's NOT NULL
    foreign key always finds its parent.
    """
    sources = tree.sources(select)
    right = next((source for source in sources if source.node is join.this.unnest()), None)
    if right is None:
        return False
    where = select.args.get("where")
    if where is not None and _refuses_missing(tree, where.this, right):
        return True
    joins = select.args["joins"]
    later = joins[next(i for i, one in enumerate(joins) if one is join) + 1 :]
    for other in later:
        condition = other.args.get("on")
        if condition is not None and not other.side and _refuses_missing(tree, condition, right):
            return True
    return _key_finds_parent(tree, join, right)


def _may_be_missing(source: Source) -> bool:
    """True for a source on the optional side of an outer join."""
    join = source.node.find_ancestor(exp.Join)
    select = source.node.find_ancestor(exp.Select)
    if join is not None and join.side:
        return True
    joins = (select.args.get("joins") or ()) if select else ()
    return any((one.side or "").upper() in ("RIGHT", "FULL") for one in joins)


def _is_aggregate(value: exp.Expr) -> bool:
    return isinstance(value, exp.AggFunc)


def _is_unique(tree: GoldTree, value: exp.Expr) -> bool:
    if not isinstance(value, exp.Column):
        return False
    found = tree.resolve(value)
    return found is not None and found[1].unique and found[1].not_null


def _refuses_missing(tree: GoldTree, condition: exp.Expr, source: Source) -> bool:
    """True where a condition is never true for NULLs in place of the source's columns."""
    if isinstance(condition, exp.Paren):
        return _refuses_missing(tree, condition.this, source)
    if isinstance(condition, exp.And):
        return _refuses_missing(tree, condition.this, source) or _refuses_missing(
            tree, condition.expression, source
        )
    if isinstance(condition, (*COMPARISONS, exp.Like, exp.Between, exp.In)):
        sides = [condition.this, condition.args.get("expression")]
        return any(
            isinstance(side, exp.Column)
            and (found := tree.resolve(side)) is not None
            and found[0] is source
            for side in sides
        )
    return False


def _key_finds_parent(tree: GoldTree, join: exp.Join, right: Source) -> bool:
    condition = join.args.get("on")
    if right.table is None or not isinstance(condition, exp.EQ):
        return False
    sides = [condition.this, condition.expression]
    found = [tree.resolve(side) if isinstance(side, exp.Column) else None for side in sides]
    if None in found:
        return False
    parent = next((one for one in found if one and one[0] is right), None)
    child = next((one for one in found if one and one[0] is not right), None)
    if parent is None or child is None or child[0].table is None:
        return False
    if not child[1].not_null or _may_be_missing(child[0]):
        return False
    return any(
        key.child == child[0].table.name
        and key.parent == right.table.name
        and [name.lower() for name in key.child_columns] == [child[1].name.lower()]
        and [name.lower() for name in key.parent_columns] == [parent[1].name.lower()]
        for key in tree.schema.foreign_keys
    )
