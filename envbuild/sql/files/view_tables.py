"""A view's tables and indexes, still without rows, in the attached `cut`."""

import re
from collections.abc import Iterable

import apsw

from envbuild.sql.files.view_rows import Entry

_CREATE = re.compile(
    r"create\s+(?:unique\s+index|index|virtual\s+table|table|view)\s+(?:if\s+not\s+exists\s+)?",
    re.IGNORECASE,
)


def create_tables(connection: apsw.Connection, entries: Iterable[Entry]) -> None:
    """Runs the entries' DDL; indexes that constraints make come with their tables."""
    for entry in entries:
        connection.execute(in_cut(entry.sql), can_cache=False)


def in_cut(sql: str) -> str:
    """A CREATE statement for the attached view; SQLite leaves `cut.` out of what it stores."""
    return _CREATE.sub(lambda match: f"CREATE {match[0].split(None, 1)[1]}cut.", sql, count=1)
