"""SQLite files made elsewhere: opened to be looked at, and brought out of WAL mode."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from envbuild.errors import CorpusError
from envbuild.sql.connect import Connection, open_read_only

_MODE_BYTES = 18
"""Offset of the header's write and read versions: 1 rollback journal, 2 WAL."""
_HEADER = b"SQLite format 3\0"


@contextmanager
def open_ready(path: Path) -> Iterator[Connection]:
    """A read-only connection; CorpusError `not_a_database` for what SQLite cannot read."""
    try:
        connection = open_read_only(path)
    except apsw.Error as e:
        raise CorpusError("not_a_database", str(e)) from None
    try:
        yield connection
    except apsw.Error as e:
        raise CorpusError("not_a_database", str(e)) from None
    finally:
        connection.close()


def fold_in_log(path: Path) -> None:
    """Brings what lies in the log beside a copy into the copy itself."""
    try:
        connection = apsw.Connection(str(path))
        try:
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        finally:
            connection.close()
    except apsw.Error as e:
        raise CorpusError("not_a_database", str(e)) from None


def put_out_of_wal_mode(path: Path) -> None:
    """Marks a copy without a log as a rollback-journal database: reading it writes nothing."""
    with path.open("r+b") as stream:
        header = stream.read(_MODE_BYTES + 2)
        if header.startswith(_HEADER) and header[_MODE_BYTES:] == b"\x02\x02":
            stream.seek(_MODE_BYTES)
            stream.write(b"\x01\x01")
