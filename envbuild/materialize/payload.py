"""A row payload's JSON text as tables of rows."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from envbuild.errors import PayloadError
from envbuild.io.packed import PACKED

_MANY_DIGITS = 4000
"""Longer integers cannot become Python ints; they stay digits, which is what is bound anyway."""
_TABLES = msgspec.json.Decoder(dict[str, msgspec.Raw])


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
    is not an object of tables. A table named twice comes twice. What was encoded twice, the
    payload or a table's list of rows as a JSON string, is read through.
    """
    raw = payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
    if not raw.strip():
        return
    if raw.lstrip()[:1] == b'"':
        inner = _loads(raw)
        yield from iter_payload(inner) if inner.strip() else ()
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
            yield PayloadTable(name, _decoded_again(rows), isinstance(rows, str), packed)


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
            yield PayloadTable(encodable, _decoded_again(_plain(rows)), True, packed)


def _decoded_again(rows: Any) -> Any:
    """The list behind a JSON string of one; anything else as it is."""
    if isinstance(rows, str) and rows.lstrip()[:1] == "[":
        with suppress(PayloadError):
            return _loads(rows)
    return rows


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
