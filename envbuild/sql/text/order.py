"""Whether the order of a result's rows means anything."""

import re

from envbuild.sql.text.plain_text import QUOTED, STRING
from envbuild.sql.text.tokens import Kind, iter_code

_OPAQUE = re.compile(f"{STRING}|{QUOTED}")
_UNFINISHED = re.compile(r"['\"`\[@#:$]|--|/\*|[^\t\n\f\r\x20-\x7e]")
"""Marks after which only the scanner knows what is text and what is SQL."""
_MARKS = re.compile(r"[()]|\border[ \t\n\f\r]+by\b", re.IGNORECASE)


def order_matters(sql: str) -> bool:
    """True where the outermost query has ORDER BY (CONTRACT 4).

    Inner ones (subqueries, CTEs, windows, aggregates) always stand in parentheses.
    """
    if "order" not in sql.lower():
        return False
    bare = _OPAQUE.sub("%", sql)
    if _UNFINISHED.search(bare):
        return _scan(sql)
    depth = 0
    for mark in _MARKS.findall(bare):
        if mark == "(":
            depth += 1
        elif mark == ")":
            depth -= 1
        elif depth == 0:
            return True
    return False


def _scan(sql: str) -> bool:
    """The same by tokens: for texts that regular expressions would misread."""
    depth, after_order = 0, False
    for kind, start, end in iter_code(sql):
        text = sql[start:end]
        if kind is Kind.OPERATOR:
            depth += (text == "(") - (text == ")")
        if kind is Kind.WORD and depth == 0:
            word = text.lower()
            if after_order and word == "by":
                return True
            after_order = word == "order"
        else:
            after_order = False
    return False
