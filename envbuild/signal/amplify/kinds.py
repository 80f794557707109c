"""What sort of values a column holds, read from its rows, its literals, its type and its name."""

import re
from collections.abc import Sequence
from enum import StrEnum

from envbuild.records.execution import Value

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?Z?")
_TIME = re.compile(r"\d\d?:\d\d(:\d\d(\.\d+)?)?")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.\w+")
_CODE = re.compile(r"(?=.*\d)[A-Za-z0-9_\-./() +]{1,20}|[A-Z]{1,6}")
_WORDS = {
    "moment": ("timestamp", "datetime", "date_time", "created", "updated", "_at", "last_login"),
    "date": ("date", "_day", "birth", "dob"),
    "time": ("time",),
    "year": ("year",),
    "email": ("email",),
    "code": ("phone", "code", "zip", "_id", "isbn", "number", "sku"),
    "flag": ("is_", "has_"),
}
NAME_LIKE = re.compile(r"(name|title|code|e_?mail|phone)", re.IGNORECASE)
"""Columns that people keep unique without declaring it (SIGNAL 7)."""
NAME_PART = re.compile(
    r"(first|last|middle|given|family|fore|sur)[ _]?name|^[fl]_?name$", re.IGNORECASE
)
"""Parts of a person's name: they repeat."""


class Kind(StrEnum):
    """A sort of values, which says how a fresh one is made."""

    INTEGER = "integer"
    REAL = "real"
    DIGITS = "digits"
    """Text that holds numbers."""
    DATE = "date"
    MOMENT = "moment"
    """Date and time."""
    TIME = "time"
    YEAR = "year"
    FLAG = "flag"
    EMAIL = "email"
    CODE = "code"
    BYTES = "bytes"
    WORDS = "words"


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


def stored(value: Value, affinity: str) -> Value:
    """The value as SQLite keeps it in a column of this affinity."""
    if value is None or (affinity == "text" and isinstance(value, str)):
        return value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)
    if affinity == "text":
        return _text(value) if isinstance(value, int | float) else value
    if affinity in ("integer", "numeric", "real"):
        if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            value = float(value) if "." in value or len(value) > 18 else int(value)
        if isinstance(value, int) and affinity == "real" and abs(value) < 2**53:
            return float(value)
        if isinstance(value, float) and affinity != "real" and abs(value) < 2**53:
            return int(value) if value.is_integer() else value
    return value


def kind_of(name: str, declared: str, values: Sequence[Value], literals: Sequence[Value]) -> Kind:
    """The kind of a column: what its values show, else its literals, else its type and name."""
    affinity = affinity_of(declared)
    for shown in (values, literals):
        found = [v for v in shown if v is not None]
        if found and (kind := _shown(found, affinity)) is not None:
            return kind
    return _guessed(name.lower(), declared.upper(), affinity)


def _shown(values: Sequence[Value], affinity: str) -> Kind | None:
    sample = values[:40]
    if all(isinstance(v, int | float) for v in sample):
        if affinity == "text":
            return Kind.DIGITS
        return Kind.REAL if any(isinstance(v, float) for v in sample) else Kind.INTEGER
    if all(isinstance(v, bytes) for v in sample):
        return Kind.BYTES
    texts = [v for v in sample if isinstance(v, str)]
    if len(texts) * 2 < len(sample):
        return None
    for pattern, kind in _PATTERNS:
        if sum(1 for t in texts if pattern.fullmatch(t)) * 4 >= len(texts) * 3:
            return kind
    return Kind.WORDS


_PATTERNS = (
    (_DATE, Kind.DATE),
    (_MOMENT, Kind.MOMENT),
    (_TIME, Kind.TIME),
    (_NUMBER, Kind.DIGITS),
    (_EMAIL, Kind.EMAIL),
    (_CODE, Kind.CODE),
)


def _guessed(name: str, declared: str, affinity: str) -> Kind:
    def named(word: str) -> bool:
        return any(w in name for w in _WORDS[word])

    if "BLOB" in declared:
        return Kind.BYTES
    if "DATE" in declared or "TIMESTAMP" in declared:
        return Kind.MOMENT if "TIME" in declared else Kind.DATE
    if "BOOL" in declared or name.startswith(_WORDS["flag"]):
        return Kind.FLAG
    if affinity in ("integer", "numeric", "real"):
        if named("year") and affinity != "real":
            return Kind.YEAR
        return Kind.REAL if affinity != "integer" else Kind.INTEGER
    for word in ("email", "moment", "date", "time", "year", "code"):
        if named(word):
            return Kind(word)
    return Kind.WORDS


def _text(value: float) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
