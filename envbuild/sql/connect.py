"""Opening SQLite files for reading, by a URI that any name survives."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from envbuild import __version__
from envbuild.errors import SourceError
from envbuild.io.packs import local_file

Connection = apsw.Connection
"""The engine's connection, for annotations outside this folder."""

SQLiteError = apsw.Error
"""What the engine raises, for callers outside this folder: a damaged file, a missing table, …"""
ROW_REFUSALS = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.SQLError)
"""What SQLite raises for a row that a rule, a type or a generated column does not admit."""

SQLITE_VERSION: str = apsw.sqlite_lib_version()
"""The engine's version; recorded in every output."""
VERSIONS: dict[str, str] = {"envbuild": __version__, "sqlite": SQLITE_VERSION}
"""What every output names that a database was run for."""


def read_only_uri(path: Path) -> str:
    """`file:` URI for reading; immutable unless a journal or WAL lies beside the file."""
    absolute = str(local_file(Path(path)).absolute())
    mode = "mode=ro" if has_log(absolute) else "mode=ro&immutable=1"
    return f"file:{quote(absolute)}?{mode}"


def read_image(path: Path) -> bytes:
    """The database as bytes, with what was committed to a log beside its file.

    Without a log these are the file's own bytes. Raises SourceError, with the path, where there is
    no such file, or SQLite cannot read it together with its log.
    """
    try:
        path = local_file(Path(path))
        if not has_log(str(path.absolute())):
            return path.read_bytes()
        connection = open_read_only(path)
        try:
            connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            return connection.serialize("main")
        finally:
            connection.close()
    except OSError as e:
        raise SourceError(f"cannot read the database {path}: {e.strerror}") from e
    except apsw.Error as e:
        raise SourceError(
            f"cannot read the database {path} together with the log beside it ({e}): open it once "
            "with its writer, or materialize a copy"
        ) from e


def has_log(file: str) -> bool:
    """Whether a WAL or a journal lies beside the file at this absolute path."""
    # os.access, since Path objects would make a third of the cost of opening a small file.
    return any(os.access(file + end, os.F_OK) for end in ("-wal", "-journal"))


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


def open_writable_image(image: bytes) -> apsw.Connection:
    """A writable in-memory copy of a serialized database, without triggers and key enforcement.

    The copy of a WAL database is one with a plain journal, since a WAL needs files beside it.
    """
    if image[18:20] == b"\x02\x02":
        image = image[:18] + b"\x01\x01" + image[20:]
    connection = open_image(image)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 0)
    return connection


def quote_name(name: str) -> str:
    """`name` as a double-quoted SQLite identifier."""
    return '"' + name.replace('"', '""') + '"'


def iter_rows(
    connection: apsw.Connection, sql: str, bindings: tuple[object, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """The rows of one of our own statements; never for SQL from a corpus or a policy."""
    yield from connection.cursor().execute(sql, bindings, can_cache=False)
