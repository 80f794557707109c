"""Values on their way into a table: what is bound, what a default gives, what affinity changes."""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from envbuild.io.packed import UndecodableText, unpack_value
from envbuild.records.corpus import Column
from envbuild.records.execution import Value
from envbuild.sql.connect import SQLiteError, open_private

PLAIN_TYPES = frozenset((int, float, str, bool, type(None)))
"""Types that are bound as they are, unless they came through the lenient decoder."""
INT64 = range(-(2**63), 2**63)
Report = Callable[[str], None]
"""Takes the reason code of what a cell lost."""


def bindable(value: Any, *, packed: bool, report: Report) -> Any:
    """`value` as None, int, float, str, bytes or UndecodableText.

    Objects and arrays become JSON text (packed ones their value), booleans 0 or 1, integers past
    64 bits their digits, NaN becomes NULL (`nan_to_null`), a lone surrogate U+FFFD
    (`invalid_unicode`).
    """
    if isinstance(value, str):
        return value if _encodable(value) else _replace_surrogates(value, report)
    if value is None or isinstance(value, bytes | UndecodableText):
        return value
    if isinstance(value, bool | int):
        return int(value) if value in INT64 else str(value)
    if isinstance(value, float):
        if math.isnan(value):
            report("nan_to_null")
            return None
        return value
    if packed and isinstance(value, dict):
        return unpack_value(value)
    text = json.dumps(value)
    return text if _encodable(text) else _replace_surrogates(text, report)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _replace_surrogates(text: str, report: Report) -> str:
    """Pairs written as two escapes are one character; what stays alone becomes U+FFFD."""
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if "\ufffd" in joined:
        report("invalid_unicode")
    return joined


_MOMENT = "'1970-01-01 00:00:00'"
_TEXT = re.compile(r"'(?:[^']|'')*'")
_WRITTEN = (
    (r"\bCURRENT_TIMESTAMP\b", _MOMENT),
    (r"\bCURRENT_DATE\b", "'1970-01-01'"),
    (r"\bCURRENT_TIME\b", "'00:00:00'"),
    (r"'now'", _MOMENT),
    (r"\b(DATE|TIME|DATETIME|JULIANDAY|UNIXEPOCH)\s*\(\s*\)", rf"\1({_MOMENT})"),
    (r"\bRANDOM\s*\(\s*\)", "0"),
    (r"\bRANDOMBLOB\s*\(", "zeroblob("),
)
"""What changes from build to build in a default, and what is evaluated in its place."""


def fixed_defaults(columns: Iterable[Column]) -> dict[str, Value]:
    """Column -> the value for its default, where that would change from build to build.

    None where SQLite does not take the default: then no row could have it.
    """
    fixed: dict[str, Value] = {}
    for column in columns:
        default = written = column.default or ""
        for pattern, replacement in _WRITTEN:
            written = re.sub(pattern, replacement, written, flags=re.IGNORECASE)
        if written == default or _TEXT.fullmatch(default):
            continue
        with closing(open_private()) as connection:
            try:
                ((fixed[column.name],),) = connection.execute(f"SELECT {written}").fetchall()
            except SQLiteError:
                fixed[column.name] = None
    return fixed


_NUMBERS = re.compile(
    r"\0(?!\d{1,4}[-/:])"  # dates and times, which most such columns hold
    r"([ \t\n\v\f\r]*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[ \t\n\v\f\r]*)(?=\0)",
    re.ASCII,
)
"""Numbers in text, between NULs: one search in a column is ten times cheaper than one a cell."""
_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?", re.ASCII)
_SURE_DIGITS = 15
"""A plain number of as many characters is the same in every type."""
_EXACT = range(-(2**53), 2**53 + 1)
"""Integers that a float holds, all of them."""


class Changed(NamedTuple):
    """The cells of one column that were not stored as they were given."""

    position: int
    """Of the first, within the values."""
    given: Any
    stored: Any
    cells: int


@lru_cache(maxsize=4096)
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
    """What a numeric column stores otherwise than given; None where it is nothing.

    A number in text is stored as a number, and is the same only where it was written plainly.
    """
    kinds = set(map(type, values))
    if str not in kinds and not (affinity == "real" and int in kinds):
        return None
    texts = "\0".join(value for value in values if type(value) is str)
    suspects: set[Any] = {
        text
        for text in _NUMBERS.findall(f"\0{texts}\0")
        if not (len(text) <= _SURE_DIGITS and _PLAIN.fullmatch(text))
    }
    if affinity == "real":
        suspects |= {v for v in values if type(v) is int and v in INT64 and v not in _EXACT}
    if not suspects:
        return None
    cast = f"SELECT CAST(? AS {'REAL' if affinity == 'real' else 'NUMERIC'})"
    with closing(open_private()) as connection:
        stored = {given: connection.execute(cast, (given,)).fetchall()[0][0] for given in suspects}
    changed = {given for given in suspects if not _is_same(given, stored[given])}
    places = [place for place, value in enumerate(values) if value in changed]
    if not places:
        return None
    first = values[places[0]]
    return Changed(places[0], first, stored[first], len(places))


def _is_same(given: str | int, stored: Value) -> bool:
    plain = isinstance(given, int) or _PLAIN.fullmatch(given) is not None
    return plain and Decimal(given) == Decimal(str(stored))
