"""Boolean expressions taken apart: conjuncts, negation, comparisons and what they compare."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

_OPS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NullSafeEQ: "=",
    exp.NEQ: "!=",
    exp.NullSafeNEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Like: "like",
    exp.ILike: "like",
    exp.Glob: "glob",
}
OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One comparison: an operator over operands, or a test against a subquery."""

    op: str
    operands: tuple[exp.Expr, ...]
    query: exp.Expr | None = None
    """The subquery on the right side; None between plain expressions."""
    negated: bool = False
    """The subquery must not match (NOT IN, NOT EXISTS)."""

    @property
    def flipped(self) -> str:
        """The operator with its two sides changed over."""
        return FLIPPED.get(self.op, self.op)


def split_condition(node: exp.Expr, negated: bool = False) -> Iterator[tuple[exp.Expr, bool]]:
    """The conjuncts of a condition, each with whether it is negated."""
    stack = [(node, negated)]
    while stack:
        part, sign = stack.pop()
        if isinstance(part, exp.Paren):
            stack.append((part.this, sign))
        elif isinstance(part, exp.Not):
            stack.append((part.this, not sign))
        elif isinstance(part, exp.Or if sign else exp.And):
            stack.append((part.expression, sign))
            stack.append((part.this, sign))
        else:
            yield part, sign


def compared(node: exp.Expr, negated: bool) -> Comparison | None:
    """The comparison a conjunct makes; None where it makes none that rows can follow."""
    if bool(node.args.get("negate")):
        negated = not negated
    if isinstance(node, exp.Exists):
        return Comparison(op="=", operands=(), query=node.this, negated=negated)
    if isinstance(node, exp.In):
        return _membership(node, negated)
    if isinstance(node, exp.Between):
        sides = (node.this, node.args["low"], node.args["high"])
        return Comparison(op="not between" if negated else "between", operands=sides)
    if isinstance(node, exp.Is):
        return _identity(node, negated)
    op = _OPS.get(type(node))
    if op is None:
        if isinstance(node, exp.Column):  # WHERE flag
            return Comparison(op="=" if negated else "!=", operands=(node, exp.Literal.number(0)))
        return None
    if negated:
        op = OPPOSITE.get(op) or f"not {op}"
    left, right = node.this, node.expression
    if isinstance(left, exp.Subquery) and not isinstance(right, exp.Subquery):
        left, right, op = right, left, FLIPPED.get(op, op)
    if isinstance(right, exp.Subquery):
        return Comparison(op=op, operands=(left,), query=right, negated=op not in ("=", "!="))
    return Comparison(op=op, operands=(left, right))


def _membership(node: exp.In, negated: bool) -> Comparison:
    query = node.args.get("query")
    if query is not None:
        return Comparison(op="=", operands=(node.this,), query=query, negated=negated)
    if len(node.expressions) == 1 and not negated:
        return Comparison(op="=", operands=(node.this, node.expressions[0]))
    op = "not in" if negated else "in"
    return Comparison(op=op, operands=(node.this, *node.expressions))


def _identity(node: exp.Is, negated: bool) -> Comparison:
    if isinstance(node.expression, exp.Null):
        return Comparison(op="not null" if negated else "null", operands=(node.this,))
    return Comparison(op="!=" if negated else "=", operands=(node.this, node.expression))
