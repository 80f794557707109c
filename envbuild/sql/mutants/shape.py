"""Operators on order, limits, joins and set operations."""

from collections.abc import Iterator
from functools import partial

from sqlglot import exp

from envbuild.sql.mutants.edits import Edit, dropped, swap, without
from envbuild.sql.mutants.places import is_nested
from envbuild.sql.mutants.proofs import join_side_is_idle
from envbuild.sql.mutants.tree import GoldTree

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
