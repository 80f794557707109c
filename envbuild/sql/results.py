"""Result rows as bytes and as digests: typed, so that text is never taken for a blob."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from envbuild.records.execution import Row, Rows, UndecodableText, Value

_ENCODINGS = {"UTF-8": 1, "UTF-16-LE": 2, "UTF-16-BE": 3}
"""The MessagePack extension types that hold undecodable text, by its encoding."""
_CODECS = {code: encoding for encoding, code in _ENCODINGS.items()}


def _as_extension(cell: object) -> msgspec.msgpack.Ext:
    if isinstance(cell, UndecodableText):
        return msgspec.msgpack.Ext(_ENCODINGS[cell.encoding], cell.raw)
    raise TypeError(f"no cell of a result: {type(cell).__name__}")


def _from_extension(code: int, data: memoryview) -> UndecodableText:
    return UndecodableText(bytes(data), _CODECS[code])


_encode = msgspec.msgpack.Encoder(enc_hook=_as_extension).encode
# msgspec takes no union of str and bytes; a MessagePack cell already says which of them it is
_ROWS = msgspec.msgpack.Decoder(type=tuple[tuple[Any, ...], ...], ext_hook=_from_extension)


def encode_rows(rows: Iterable[Row]) -> bytes:
    """The rows as MessagePack; 1, 1.0, '1' and x'31' stay four values.

    Text that is not valid is an extension type: 1, 2 and 3 for bytes in UTF-8, UTF-16LE, UTF-16BE.
    """
    return _encode(tuple(rows))


def decode_rows(encoded: bytes) -> Rows:
    """The rows that `encode_rows` was given."""
    return _ROWS.decode(encoded)


def digest_rows(rows: Iterable[Row], *, ordered: bool) -> str:
    """Hex SHA-256 under the verdicts' equality: order-free unless `ordered`, 1 = 1.0, -0.0 = 0."""
    encoded = list(_canonical_rows(rows))
    if not ordered:
        encoded.sort()
    digest = hashlib.sha256(b"ordered" if ordered else b"bag")
    for row in encoded:
        digest.update(len(row).to_bytes(8))
        digest.update(row)
    return digest.hexdigest()


def digest_each(rows: Iterable[Row]) -> Rows:
    """Each row as one cell, its SHA-256: two are equal where the rows are."""
    return tuple((hashlib.sha256(row).digest(),) for row in _canonical_rows(rows))


def _canonical_rows(rows: Iterable[Row]) -> Iterator[bytes]:
    """Each row as bytes that are the same for rows that the verdicts call equal."""
    for row in rows:
        if float in set(map(type, row)):
            yield _encode([_canonical(cell) for cell in row])
        else:
            yield _encode(row)


def _canonical(cell: Value) -> Value:
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2.0**63:
        return int(cell)
    return cell
