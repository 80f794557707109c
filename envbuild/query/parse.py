"""SQLite's SQL as a tree, unless sqlglot would take too long over it; boolean expressions taken
apart."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import SqlglotError

from envbuild.sql.tokens import Kind, iter_code

# SQLite's SQL as a tree, unless sqlglot would take too long over it.


MAX_DOUBLINGS = 10
"""Doublings of its time from which on sqlglot is not asked: a thousand times the usual."""
_SQLITE = SQLite()


def parse_statement(sql: str) -> exp.Expr | None:
    """The tree of the first statement; None where sqlglot cannot read it, or not soon."""
    if sql.lower().count("join") + sql.count("(") > MAX_DOUBLINGS < count_doublings(sql):
        return None
    try:
        trees = _SQLITE.parse(sql)
    except (SqlglotError, RecursionError, IndexError):
        return None
    return trees[0] if trees else None


def render(root: exp.Expr) -> str:
    """The tree as SQLite text, without comments."""
    return root.sql(dialect="sqlite", comments=False, copy=False)


def count_doublings(sql: str) -> int:
    """JOINs without ON or USING, and the deepest nesting of calls that a type's name opens.

    sqlglot tries what follows such a JOIN as a nested join first, and what stands in `date(…)` as a
    type's argument, and then reads it once more: both double with each level, so that a query which
    SQLite runs at once can take sqlglot hours.
    """
    types = _type_names()
    bare = deepest = depth = 0
    brackets: list[bool] = []  # for each open bracket: does a type's name open it?
    before, waits = "", False
    for kind, written, _ in iter_code(sql):
        text = written.lower() if kind in (Kind.WORD, Kind.OPERATOR) else ""
        if text == "join":
            bare += waits
            waits = True
        elif text in ("on", "using"):
            waits = False
        elif text == "(":
            brackets.append(before in types)
            depth += brackets[-1]
            deepest = max(deepest, depth)
        elif text == ")" and brackets:
            depth -= brackets.pop()
        before = text
    return bare + waits + deepest


@cache
def _type_names() -> frozenset[str]:
    types = SQLite.Parser.TYPE_TOKENS
    return frozenset(
        word.lower() for word, token in SQLite.Tokenizer.KEYWORDS.items() if token in types
    )


# Boolean expressions taken apart: conjuncts, negation, comparisons and what they compare.


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
    exp.Is: "=",
    exp.Between: "between",
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
    negated = negated is not bool(node.args.get("negate"))
    query = node.this if isinstance(node, exp.Exists) else node.args.get("query")
    if isinstance(node, exp.Exists | exp.In) and query is not None:
        tested = () if isinstance(node, exp.Exists) else (node.this,)
        return Comparison(op="=", operands=tested, query=query, negated=negated)
    operands: tuple[Any, ...] = (node.this, node.args.get("expression"))
    op = _OPS.get(type(node), "")
    if isinstance(node, exp.In):
        operands = (node.this, *node.expressions)
        op = "=" if len(operands) == 2 and not negated else "in"
    elif isinstance(node, exp.Between):
        operands = (node.this, node.args["low"], node.args["high"])
    elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        op, operands = "null", (node.this,)
    elif isinstance(node, exp.Column):  # WHERE flag
        op, operands = "!=", (node, exp.Literal.number(0))
    if not op:
        return None
    if negated:
        op = OPPOSITE.get(op) or f"not {op}"
    if isinstance(node, exp.Binary) and len(operands) == 2:
        left, right = operands
        if isinstance(left, exp.Subquery) and not isinstance(right, exp.Subquery):
            left, right, op = right, left, FLIPPED.get(op, op)
        if isinstance(right, exp.Subquery):
            return Comparison(op=op, operands=(left,), query=right, negated=op not in ("=", "!="))
    return Comparison(op=op, operands=operands)
