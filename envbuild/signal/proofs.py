"""Cheap proofs that a change cannot be seen on any database that keeps its declared keys."""

from sqlglot import exp

from envbuild.query.names import Source, SourceColumn
from envbuild.signal.tree import COMPARISONS, GoldTree, select_of


def is_never_null(source: Source, column: SourceColumn) -> bool:
    """True for a NOT NULL column that no outer join can fill with NULL."""
    return column.not_null and not _may_be_missing(source)


def is_alone(tree: GoldTree, node: exp.Expr) -> bool:
    """True where the SELECT around a node reads one source."""
    select = select_of(node)
    return select is not None and len(tree.sources(select)) == 1


def count_ignores_duplicates(tree: GoldTree, counted: exp.Expr) -> bool:
    """True where what is counted is unique already: the key of the only table."""
    found = tree.resolve(counted) if isinstance(counted, exp.Column) else None
    return found is not None and found[1].unique and is_alone(tree, counted)


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
        if outputs and all(isinstance(value, exp.AggFunc) for value in outputs):
            return True  # one row
        return len(tree.sources(select)) == 1 and any(_is_key(tree, one) for one in outputs)
    shown = {value.sql() for value in outputs} | {value.alias for value in select.expressions}
    shown |= {str(number) for number in range(1, len(outputs) + 1)}
    return bool(group.expressions) and all(term.sql() in shown for term in group.expressions)


def group_term_is_idle(tree: GoldTree, group: exp.Group, term: exp.Expr) -> bool:
    """True where another term of the GROUP BY is the key of the term's own table."""
    found = tree.resolve(term) if isinstance(term, exp.Column) else None
    others = (one for one in group.expressions if one is not term and isinstance(one, exp.Column))
    return found is not None and any(
        other is not None and other[0] is found[0] and other[1].unique
        for other in map(tree.resolve, others)
    )


def join_side_is_idle(tree: GoldTree, select: exp.Select, join: exp.Join) -> bool:
    """True where INNER and LEFT give the same rows.

    WHERE, or a later inner join, refuses a missing right side; or the left side's NOT NULL
    foreign key always finds its parent.
    """
    joined = join.this.unnest()
    right = next((source for source in tree.sources(select) if source.node is joined), None)
    if right is None:
        return False
    where, joins = select.args.get("where"), select.args["joins"]
    later = joins[next(i for i, one in enumerate(joins) if one is join) + 1 :]
    conditions = [where.this] if where is not None else []
    conditions += [one.args["on"] for one in later if one.args.get("on") and not one.side]
    return any(_refuses_missing(tree, one, right) for one in conditions) or _key_finds_parent(
        tree, join, right
    )


def _may_be_missing(source: Source) -> bool:
    """True for a source on the optional side of an outer join."""
    join = source.node.find_ancestor(exp.Join)
    select = source.node.find_ancestor(exp.Select)
    joins = (select.args.get("joins") or ()) if select else ()
    return bool(join is not None and join.side) or any(
        one.side in ("RIGHT", "FULL") for one in joins
    )


def _is_key(tree: GoldTree, value: exp.Expr) -> bool:
    found = tree.resolve(value) if isinstance(value, exp.Column) else None
    return found is not None and found[1].unique and found[1].not_null


def _refuses_missing(tree: GoldTree, condition: exp.Expr, source: Source) -> bool:
    """True where a condition is never true for NULLs in place of the source's columns."""
    condition = condition.unnest()
    sides = [condition.this, condition.args.get("expression")]
    if isinstance(condition, exp.And):
        return any(_refuses_missing(tree, side, source) for side in sides)
    if not isinstance(condition, (*COMPARISONS, exp.Like, exp.Between, exp.In)):
        return False
    found = (tree.resolve(side) for side in sides if isinstance(side, exp.Column))
    return any(place is not None and place[0] is source for place in found)


def _key_finds_parent(tree: GoldTree, join: exp.Join, right: Source) -> bool:
    """True where ON follows a declared key of one NOT NULL column to its parent on the right."""
    condition = join.args.get("on")
    if right.table is None or not isinstance(condition, exp.EQ):
        return False
    sides = (condition.this, condition.expression)
    found = [tree.resolve(side) for side in sides if isinstance(side, exp.Column)]
    parent = next((place for place in found if place and place[0] is right), None)
    child = next((place for place in found if place and place[0] is not right), None)
    if parent is None or child is None or child[0].table is None:
        return False
    ends = (child[0].table.name, child[1].name.lower(), right.table.name, parent[1].name.lower())
    return is_never_null(*child) and any(
        len(key.child_columns) == 1
        and ends
        == (key.child, key.child_columns[0].lower(), key.parent, key.parent_columns[0].lower())
        for key in tree.schema.foreign_keys
    )
