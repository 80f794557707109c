"""SQLite's SQL as a tree, unless sqlglot would take too long over it."""

from functools import cache

from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import SqlglotError

from envbuild.sql.text.tokens import Kind, iter_code

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
    for kind, start, end in iter_code(sql):
        text = sql[start:end].lower() if kind in (Kind.WORD, Kind.OPERATOR) else ""
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
