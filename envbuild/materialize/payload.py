"""A row payload's JSON text as tables of rows, and the encoding that keeps every SQLite value.

A plain payload is `{table: [row, …]}`. A *packed* one, written by `pack`, says so by the key
PACKED, which no table can be called (SQLite's names hold no NUL), and only in it
`{"$hex": "…"}` is a blob, `{"$text": "…"}` is text that is not UTF-8 (hex of its bytes), and
`{"$float": "inf"}` an infinity. In a plain payload such objects are what they look like: JSON.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from envbuild.errors import PayloadError
from envbuild.records.execution import Value

PACKED = "\0envbuild packed/1"
_MANY_DIGITS = 4000
"""Longer integers cannot become Python ints; they stay digits, which is what is bound anyway."""
_TABLES = msgspec.json.Decoder(dict[str, msgspec.Raw])


class UndecodableText(NamedTuple):
    """A cell stored as text whose bytes are not UTF-8."""

    raw: bytes


class PayloadTable(NamedTuple):
    """One table's rows as the payload has them."""

    name: str
    rows: Any
    """A list, unless the payload is wrong."""
    loose: bool
    """Decoded by Python's lenient decoder: NaN, infinities and lone surrogates may be inside."""
    packed: bool


def iter_payload(payload: str | bytes) -> Iterator[PayloadTable]:
    """The tables of a payload, decoded one by one so that a large one is never whole in memory.

    Raises PayloadError `payload_parse_error` where it is not JSON, `payload_not_object` where it
    is not an object of tables. A table named twice comes twice.
    """
    raw = payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
    if not raw.strip():
        return
    try:
        tables = _TABLES.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        yield from _iter_loosely(payload)
        return
    if not _fills(raw, tables) and _names_repeat(raw):
        yield from _iter_loosely(payload)
        return
    packed = PACKED in tables
    for name, text in tables.items():
        if name == PACKED:
            continue
        try:
            rows = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            loosely = _loads(bytes(text))
            yield PayloadTable(name, loosely, True, packed)
        else:
            yield PayloadTable(name, rows, False, packed)


def unpack_value(value: dict[str, Any]) -> Value | UndecodableText:
    """The SQLite value behind a packed payload's object. Raises PayloadError for any other."""
    try:
        match value:
            case {"$hex": str(digits)}:
                return bytes.fromhex(digits)
            case {"$text": str(digits)}:
                return UndecodableText(bytes.fromhex(digits))
            case {"$float": str(number)}:
                return float(number)
    except ValueError:  # told below
        pass
    raise PayloadError("payload_parse_error", f"{value!r} is no packed value")


def pack_value(value: Value | UndecodableText) -> Any:
    """What a packed payload holds for a SQLite value: itself, or an object that names it."""
    if isinstance(value, bytes):
        return {"$hex": value.hex()}
    if isinstance(value, UndecodableText):
        return {"$text": value.raw.hex()}
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return {"$float": str(value)}
    return value


def _iter_loosely(payload: str | bytes) -> Iterator[PayloadTable]:
    """By Python's decoder, which takes NaN, 1e999 and lone surrogates; repeated names stay two."""
    pairs = _loads(payload, object_pairs_hook=_Pairs)
    if pairs is None:
        return
    if not isinstance(pairs, _Pairs):
        raise PayloadError("payload_not_object", f"the payload is a JSON {type(pairs).__name__}")
    packed = any(name == PACKED for name, _ in pairs)
    for name, rows in pairs:
        if name != PACKED:
            # a lone surrogate is in no table's name, and could not be stored in a reject
            encodable = name.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            yield PayloadTable(encodable, _plain(rows), True, packed)


class _Pairs(list[tuple[str, Any]]):
    """An object's members in order, repeated names kept."""


def _plain(value: Any) -> Any:
    if isinstance(value, _Pairs):
        return {name: _plain(inner) for name, inner in value}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _loads(text: str | bytes, object_pairs_hook: Callable[..., Any] | None = None) -> Any:
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogatepass")
        return json.loads(
            text.removeprefix("\ufeff"), parse_int=_integer, object_pairs_hook=object_pairs_hook
        )
    except (ValueError, RecursionError) as e:
        raise PayloadError("payload_parse_error", str(e) or "nested too deeply") from None


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) < _MANY_DIGITS else digits


def _fills(raw: bytes, tables: dict[str, msgspec.Raw]) -> bool:
    """Whether the tables found are all of the text, so that no name hides an earlier one.

    Told by the length alone: between names and values stand `:` and `,`, with or without a blank.
    """
    ascii_only = raw.isascii()
    names = sum(len(json.dumps(name, ensure_ascii=ascii_only).encode()) for name in tables)
    between = len(raw.strip()) - sum(map(len, tables.values())) - names
    compact = 2 * len(tables) + 1 if tables else 2
    return between in (compact, compact + 2 * len(tables) - 1)


def _names_repeat(raw: bytes) -> bool:
    pairs = _loads(raw, object_pairs_hook=_Pairs)
    return isinstance(pairs, _Pairs) and len({name for name, _ in pairs}) < len(pairs)
