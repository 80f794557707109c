"""Defaults that give another value at every build: the clock's, and those by chance.

The same payload has to give the same bytes. A row that leaves such a column to its default gets
what the default is at the first second of 1970, with zero for every random number.
"""

import re
from collections.abc import Iterable

from envbuild.records.execution import Value
from envbuild.records.schema import Column
from envbuild.sql.connect import SQLiteError, open_private

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
