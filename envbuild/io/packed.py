"""The encoding of a row payload that keeps every SQLite value.

A plain payload is `{table: [row, …]}`. A *packed* one says so by the key PACKED, which no table can
be called (SQLite's names hold no NUL), and only in it `{"$hex": "…"}` is a blob, `{"$text": "…"}`
is text that is not UTF-8 (hex of its bytes), `{"$float": "inf"}` an infinity, and
`{"$refused": "…"}` a cell that costs its row, with the reason. In a plain payload such objects are
what they look like: JSON.
"""

import json
from typing import Any, NamedTuple

from envbuild.errors import PayloadError
from envbuild.records.execution import Value

PACKED = "\0envbuild packed/1"


class UndecodableText(NamedTuple):
    """A cell stored as text whose bytes are not UTF-8."""

    raw: bytes


class RefusedCellError(Exception):
    """A cell that SQLite has no value for; the reason's code is its text."""


def pack_value(value: Value | UndecodableText) -> Any:
    """What a packed payload holds for a SQLite value: itself, or an object that names it."""
    if isinstance(value, bytes):
        return {"$hex": value.hex()}
    if isinstance(value, UndecodableText):
        return {"$text": value.raw.hex()}
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return {"$float": str(value)}
    return value


def unpack_value(value: dict[str, Any]) -> Value | UndecodableText:
    """The SQLite value behind a packed payload's object.

    Raises RefusedCellError for a refused cell, PayloadError for any other object.
    """
    try:
        match value:
            case {"$hex": str(digits)}:
                return bytes.fromhex(digits)
            case {"$text": str(digits)}:
                return UndecodableText(bytes.fromhex(digits))
            case {"$float": str(number)}:
                return float(number)
            case {"$refused": str(reason)}:
                raise RefusedCellError(reason)
    except ValueError:  # told below
        pass
    raise PayloadError("payload_parse_error", f"{value!r} is no packed value")


def nested_payload(tables: dict[str, Any]) -> bytes:
    """A payload kept as nested values instead of text, as the JSON text of a packed one.

    A cell that is bytes is a blob; bytes deeper inside a JSON value cost their row
    (`binary_in_json`), since JSON has no spelling for them.
    """
    packed: dict[str, Any] = {PACKED: []}
    for table, rows in tables.items():
        packed[table] = [_pack_row(row) for row in rows] if isinstance(rows, list) else rows
    return json.dumps(packed, default=str).encode()


def _pack_row(row: Any) -> Any:
    if isinstance(row, dict):
        return {key: _pack_cell(cell) for key, cell in row.items()}
    return [_pack_cell(cell) for cell in row] if isinstance(row, list) else row


def _pack_cell(cell: Any) -> Any:
    if not isinstance(cell, dict | list):
        return pack_value(cell)
    try:
        return json.dumps(cell, default=_as_text)
    except TypeError:
        return {"$refused": "binary_in_json"}


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        raise TypeError
    return str(value)
