"""A view's tables and indexes, still without rows, in the attached `cut`: by DDL, or at once.

Running CREATE TABLE compiles each statement twice, which costs more than copying a small table's
rows. An image of empty trees whose schema entries are written directly gives the same database for
a third of that; SQLite reads the entries as it does those of any file it opens.
"""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

import apsw

from envbuild.sql.files.view_rows import Entry

_CREATE = re.compile(
    r"create\s+(?:unique\s+index|index|virtual\s+table|table|view)\s+(?:if\s+not\s+exists\s+)?",
    re.IGNORECASE,
)
_TABLE_LEAF, _INDEX_LEAF = 13, 10
_SCHEMA_FORMAT = 4


def create_tables(connection: apsw.Connection, entries: Sequence[Entry]) -> None:
    """Runs the entries' DDL; indexes that constraints make come with their tables."""
    for entry in entries:
        if entry.sql:
            connection.execute(in_cut(entry.sql), can_cache=False)


def can_be_placed(entries: Sequence[Entry]) -> bool:
    """Whether the tables need nothing beside their own trees: no module, no sequence."""
    text = "\n".join(entry.sql for entry in entries).lower()
    return "autoincrement" not in text and "virtual" not in text


def place_tables(
    connection: apsw.Connection,
    entries: Sequence[Entry],
    *,
    page_size: int,
    encoding: int,
    without_rowid: Collection[str],
) -> None:
    """Writes the entries, each with an empty tree of its own, into a blank `cut`.

    `encoding`: the file header's number of it. `without_rowid`: names of such tables.
    """
    leaves = bytes(
        _INDEX_LEAF if entry.kind == "index" or entry.name in without_rowid else _TABLE_LEAF
        for entry in entries
    )
    connection.deserialize("cut", blank_image(leaves, page_size=page_size, encoding=encoding))
    rows = [
        (entry.kind, entry.name, entry.table, root, entry.sql or None)
        for root, entry in enumerate(entries, start=2)
    ]
    # Never cached: these pragmas act when they are compiled.
    connection.execute("PRAGMA writable_schema = ON", can_cache=False)
    try:
        connection.executemany(
            "INSERT INTO cut.sqlite_schema VALUES (?, ?, ?, ?, ?)", rows, can_cache=False
        )
    finally:
        connection.execute("PRAGMA writable_schema = OFF", can_cache=False)
    # SQLite reads a schema again when its number has changed.
    connection.execute("PRAGMA cut.schema_version = 2", can_cache=False)


@lru_cache(maxsize=16)
def blank_image(leaves: bytes, *, page_size: int, encoding: int) -> bytes:
    """A database of empty trees, the first its schema; `leaves`: the type of each other root page.

    The format is SQLite's own: https://sqlite.org/fileformat2.html, sections 1.3 and 1.6.
    """
    pages = len(leaves) + 1
    header = bytearray(100)
    header[:16] = b"SQLite format 3\0"
    header[16:18] = page_size.to_bytes(2)
    header[18:24] = bytes((1, 1, 0, 64, 32, 32))
    for offset, value in ((24, 1), (28, pages), (40, 1), (44, _SCHEMA_FORMAT), (56, encoding)):
        header[offset : offset + 4] = value.to_bytes(4)
    header[92:96] = (1).to_bytes(4)
    header[96:100] = apsw.SQLITE_VERSION_NUMBER.to_bytes(4)
    empty = b"\0\0\0\0" + page_size.to_bytes(2) + b"\0"
    first = bytes(header) + bytes((_TABLE_LEAF,)) + empty
    roots = (bytes((leaf,)) + empty for leaf in leaves)
    return b"".join(page.ljust(page_size, b"\0") for page in (first, *roots))


def in_cut(sql: str) -> str:
    """A CREATE statement for the attached view; SQLite leaves `cut.` out of what it stores."""
    return _CREATE.sub(lambda match: f"CREATE {match[0].split(None, 1)[1]}cut.", sql, count=1)
