"""Values on their way into a table: what is bound, what a default gives, what affinity changes."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_CHANGING = re.compile(
    r"\bCURRENT_(?:TIMESTAMP|DATE|TIME)\b|\bRANDOM(?:BLOB)?\s*\(|'now'"
    r"|\b(?:DATE|TIME|DATETIME|JULIANDAY|UNIXEPOCH)\s*\(\s*\)",
    re.IGNORECASE,
)
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


def fixed_defaults(columns: Iterable[Column]) -> dict[str, Value]:
    """Column -> the value for its default, where that would change from build to build."""
    return {
        column.name: _evaluated(column.default)
        for column in columns
        if column.default is not None
        and _CHANGING.search(column.default)
        and not _TEXT.fullmatch(column.default)
    }


def _evaluated(default: str) -> Value:
    """None where SQLite does not take the default: then no row could have it."""
    for pattern, written in _WRITTEN:
        default = re.sub(pattern, written, default, flags=re.IGNORECASE)
    connection = open_private()
    try:
        ((value,),) = connection.execute(f"SELECT {default}").fetchall()
    except SQLiteError:
        return None
    finally:
        connection.close()
    return value


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
