"""AUTOINCREMENT counters, which outlive the rows that were deleted."""

from typing import Any

from envbuild.errors import PayloadError
from envbuild.sql.connect import Connection

SEQUENCE_TABLE = "sqlite_sequence"
"""SQLite's own; a packed payload holds its rows as `{"name": …, "seq": …}`."""


def restore_sequences(connection: Connection, rows: Any) -> None:
    """Sets the counters to the packed ones. Raises PayloadError for rows of another shape."""
    try:
        counters = [(row["name"], row["seq"]) for row in rows]
    except (TypeError, KeyError):
        raise PayloadError("payload_parse_error", f"{SEQUENCE_TABLE} has odd rows") from None
    if not _has_sequences(connection):
        return
    connection.execute(f"DELETE FROM {SEQUENCE_TABLE}")
    connection.executemany(f"INSERT INTO {SEQUENCE_TABLE}(name, seq) VALUES (?, ?)", counters)


def read_sequences(connection: Connection) -> list[dict[str, Any]]:
    """The counters of a database, none where no table has one."""
    if not _has_sequences(connection):
        return []
    rows = connection.execute(f"SELECT name, seq FROM {SEQUENCE_TABLE} ORDER BY rowid")
    return [{"name": name, "seq": seq} for name, seq in rows]


def _has_sequences(connection: Connection) -> bool:
    found = connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE name = ?", (SEQUENCE_TABLE,)
    ).fetchone()
    return found is not None
