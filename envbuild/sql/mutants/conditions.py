"""Operators on conditions and the literals in them."""

from collections.abc import Iterator
from decimal import Decimal
from functools import partial

from sqlglot import exp

from envbuild.sql.mutants.edits import Edit, dropped, same_sides, swap
from envbuild.sql.mutants.places import COMPARISONS, clause_of, is_join_condition
from envbuild.sql.mutants.tree import GoldTree

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
