"""Opening SQLite files for reading, by a URI that any name survives."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

Connection = apsw.Connection
"""The engine's connection, for annotations outside this folder."""

SQLITE_VERSION: str = apsw.sqlite_lib_version()
"""The engine's version; recorded in every output."""


def read_only_uri(path: Path) -> str:
    """`file:` URI for reading; immutable unless a journal or WAL lies beside the file."""
    path = Path(path).absolute()
    beside = any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))
    mode = "mode=ro" if beside else "mode=ro&immutable=1"
    return f"file:{quote(str(path))}?{mode}"


def open_read_only(path: Path) -> apsw.Connection:
    """A read-only connection; the caller closes it. Raises apsw.Error where it is no database."""
    return apsw.Connection(
        read_only_uri(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )


def open_image(image: bytes) -> apsw.Connection:
    """A private in-memory connection over a serialized database."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", image)
    return connection


def open_private() -> apsw.Connection:
    """An empty in-memory database to build in; it may attach files by URI, and takes old DDL."""
    connection = apsw.Connection(
        ":memory:",
        flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI,
    )
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 1)
    return connection


def quote_name(name: str) -> str:
    """`name` as a double-quoted SQLite identifier."""
    return '"' + name.replace('"', '""') + '"'


def iter_rows(
    connection: apsw.Connection, sql: str, bindings: tuple[object, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """The rows of one of our own statements; never for SQL from a corpus or a policy."""
    yield from connection.cursor().execute(sql, bindings, can_cache=False)
