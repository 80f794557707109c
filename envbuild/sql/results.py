"""Result rows as bytes and as digests: typed, so that text is never taken for a blob."""

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from envbuild.records.execution import Row, Rows

# msgspec takes no union of str and bytes; a MessagePack cell already says which of them it is
_ROWS = msgspec.msgpack.Decoder(type=tuple[tuple[Any, ...], ...])


def encode_rows(rows: Iterable[Row]) -> bytes:
    """The rows as MessagePack; 1, 1.0, '1' and x'31' stay four values."""
    return msgspec.msgpack.encode(tuple(rows))


def decode_rows(encoded: bytes) -> Rows:
    """The rows that `encode_rows` was given."""
    return _ROWS.decode(encoded)


def digest_rows(rows: Iterable[Row], *, ordered: bool) -> str:
    """Hex SHA-256 under the verdicts' equality: order-free unless `ordered`, 1 = 1.0, -0.0 = 0."""
    encoded = [msgspec.msgpack.encode([_canonical(cell) for cell in row]) for row in rows]
    if not ordered:
        encoded.sort()
    digest = hashlib.sha256(b"ordered" if ordered else b"bag")
    for row in encoded:
        digest.update(len(row).to_bytes(8))
        digest.update(row)
    return digest.hexdigest()


def _canonical(cell: int | float | str | bytes | None) -> int | float | str | bytes | None:
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2.0**63:
        return int(cell)
    return cell
