"""Cells that a column's affinity stores as another value: `'007'` becomes 7.

SQLite converts what looks like a number (sqlite.org/datatype3.html, 3.1), and is asked for what
became of it. The same number in another spelling counts where the spelling says more: leading
zeros, signs, exponents, blanks, digits past what a float holds; not the zeros that end a fraction.
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from envbuild.sql.connect import open_private

_NUMBER = r"[ \t\n\v\f\r]*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[ \t\n\v\f\r]*"
_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
# between NULs: a number in text, but no plain one of at most 15 digits, which every type keeps;
# dates and times, which most such columns hold, are told by their first sign: ten times cheaper
_SUSPECT = re.compile(
    r"\0(?!\d{1,4}[-/:])(?!-?(?:0|[1-9]\d{0,14})\0|-?(?:0|[1-9]\d{0,6})\.\d{1,8}\0)"
    + rf"({_NUMBER})(?=\0)",
    re.ASCII,
)
_EXACT = range(-(2**53), 2**53 + 1)
"""Integers that a float holds, all of them."""


class Changed(NamedTuple):
    """The cells of one column that were not stored as they were given."""

    position: int
    """Of the first, within the values."""
    given: Any
    stored: Any
    cells: int


@cache
def affinity_of(declared: str) -> str:
    """SQLite's column affinity by its own rules: integer, text, blob, real or numeric."""
    upper = declared.upper()
    if "INT" in upper:
        return "integer"
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if not upper or "BLOB" in upper:
        return "blob"
    return "real" if any(word in upper for word in ("REAL", "FLOA", "DOUB")) else "numeric"


def changed_cells(values: Sequence[Any], affinity: str) -> Changed | None:
    """What a numeric column stores otherwise than given; None where it is nothing."""
    kinds = set(map(type, values))
    if str not in kinds and not (affinity == "real" and int in kinds):
        return None
    suspects = _suspects(values, kinds, affinity)
    stored = dict(_stored_otherwise(suspects, affinity)) if suspects else {}
    places = [i for i, value in enumerate(values) if value in stored] if stored else []
    if not places:
        return None
    first = values[places[0]]
    return Changed(places[0], first, stored[first], len(places))


def _suspects(values: Sequence[Any], kinds: set[type], affinity: str) -> set[Any]:
    found: set[Any] = set()
    if str in kinds:
        texts = values if len(kinds) == 1 else [v for v in values if type(v) is str]
        found.update(_SUSPECT.findall("\0" + "\0".join(texts) + "\0"))
    if affinity == "real" and int in kinds:
        found.update(v for v in values if type(v) is int and v not in _EXACT)
    return found


def _stored_otherwise(suspects: set[Any], affinity: str) -> Iterator[tuple[Any, Any]]:
    connection = open_private()
    try:
        connection.execute(f"CREATE TABLE t(v {affinity})")
        for value in suspects:
            if not isinstance(value, int) or -(2**63) <= value < 2**63:
                connection.execute("DELETE FROM t")
                connection.execute("INSERT INTO t VALUES (?)", (value,))
                ((stored,),) = connection.execute("SELECT v FROM t")
                if not _is_same(value, stored):
                    yield value, stored
    finally:
        connection.close()


def _is_same(given: Any, stored: Any) -> bool:
    if type(given) is type(stored):
        return bool(given == stored)
    if isinstance(given, str) and not _PLAIN.fullmatch(given):
        return False
    return Decimal(str(given)) == Decimal(str(stored))
