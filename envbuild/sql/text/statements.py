"""DDL cut into statements by SQLite's own completeness rule, never at just any `;`.

A trigger's body holds semicolons: it ends at `; END ;`. The table below is the rule of
`sqlite3_complete`, over this package's own tokens.
"""

import re
from collections.abc import Iterator

from envbuild.sql.text.tokens import Kind, iter_code

_START, _NORMAL, _EXPLAIN, _CREATE, _TRIGGER, _SEMICOLON, _END = range(7)
_CLASSES = {"explain": 1, "create": 2, "temp": 3, "temporary": 3, "trigger": 4, "end": 5}
_OTHER, _STOP = 0, 6
# state -> next state for OTHER, EXPLAIN, CREATE, TEMP, TRIGGER, END and `;`
_NEXT = (
    (_NORMAL, _EXPLAIN, _CREATE, _NORMAL, _NORMAL, _NORMAL, _START),
    (_NORMAL, _NORMAL, _NORMAL, _NORMAL, _NORMAL, _NORMAL, _START),
    (_EXPLAIN, _NORMAL, _CREATE, _NORMAL, _NORMAL, _NORMAL, _START),
    (_NORMAL, _NORMAL, _NORMAL, _CREATE, _TRIGGER, _NORMAL, _START),
    (_TRIGGER, _TRIGGER, _TRIGGER, _TRIGGER, _TRIGGER, _TRIGGER, _SEMICOLON),
    (_TRIGGER, _TRIGGER, _TRIGGER, _TRIGGER, _TRIGGER, _END, _SEMICOLON),
    (_TRIGGER, _TRIGGER, _TRIGGER, _TRIGGER, _TRIGGER, _TRIGGER, _START),
)


def split_statements(text: str) -> list[str]:
    """The statements of `text` in order, without their closing `;`, comments kept.

    Comments stand with the statement they precede; pieces of nothing but comments are left out.
    A "trigger" that never ends (another dialect's) is cut at its first `;`, so that what follows
    it is not lost.
    """
    return list(_iter_statements(text) if _SUBTLE.search(text) else _iter_plainly(text))


# Without triggers a statement ends at the first `;` that stands in no string, name or comment.
_SUBTLE = re.compile(r"trigger|[@#:$][^\s;]*\(", re.IGNORECASE)
_MARKS = re.compile(
    r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)"""
    r"""|--[^\n]*|/\*(?=[\s\S])[\s\S]*?(?:\*/|\Z)|;"""
)
_NO_CODE = re.compile(r"(?:[ \t\n\v\f\r\ufeff]+|--[^\n]*|/\*(?=[\s\S])[\s\S]*?(?:\*/|\Z))*")


def _iter_plainly(text: str) -> Iterator[str]:
    """The same by one regular expression: twenty times cheaper."""
    start = 0
    ends = [mark.start() for mark in _MARKS.finditer(text) if mark[0] == ";"]
    for end in (*ends, len(text)):
        before_code = _NO_CODE.match(text, start, end)
        if before_code is None or before_code.end() < end:
            yield text[start:end].strip()
        start = end + 1


def _iter_statements(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        for piece_start, piece_end, whole in _pieces(text, start):
            if not whole and (cut := _first_semicolon(text, piece_start)) is not None:
                yield text[piece_start:cut].strip()
                start = cut + 1
                break
            yield text[piece_start:piece_end].strip()
        else:
            return


def _pieces(text: str, start: int) -> Iterator[tuple[int, int, bool]]:
    """(start, end, whole) of each statement from `start` on; not whole: a trigger without end."""
    state, began, code = _START, start, False
    for kind, first, last in iter_code(text[start:] if start else text):
        word = text[start + first : start + last]
        if kind is Kind.OPERATOR and word == ";":
            state = _NEXT[state][_STOP]
            if state == _START:
                if code:
                    yield began, start + first, True
                began, code = start + last, False
        else:
            kind_class = _CLASSES.get(word.lower(), _OTHER) if kind is Kind.WORD else _OTHER
            state, code = _NEXT[state][kind_class], True
    if code:
        yield began, len(text), state not in (_TRIGGER, _SEMICOLON)


def _first_semicolon(text: str, start: int) -> int | None:
    rest = text[start:]
    for kind, first, last in iter_code(rest):
        if kind is Kind.OPERATOR and rest[first:last] == ";":
            return start + first
    return None
