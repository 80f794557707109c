"""Records of no fixed type as Parquet, given back as they were.

A column's type comes from all of its values: text, whole numbers, floats, truth values, lists of
text, chat messages. Anything else (objects whose keys differ from row to row, nested rows, integers
past 64 bits, blobs among text) becomes JSON text, in which a blob is `{"$hex": …}` and an infinity
`{"$float": …}`; so no key is ever added, and no value changes its type. The file is flat, and every
reader of Parquet takes it. A column without any value is text, so that shards agree.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from envbuild.io.parquet import open_parquet, write_batches

Record = Mapping[str, Any]
MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_JSON_TEXT = {b"envbuild": b"json"}
"""Metadata of a field whose text is JSON."""
_LARGEST = 2**63


def open_schema(records: Iterable[Record], *, known: pa.Schema | None = None) -> pa.Schema:
    """One schema for all of these records; a field of `known` keeps its type where values fit."""
    columns: dict[str, list[Any]] = {}
    for record in records:
        for name, value in record.items():
            columns.setdefault(name, []).append(value)
    return pa.schema([_field(name, values, known) for name, values in columns.items()])


def write_open_records(path: Path, records: Sequence[Record], schema: pa.Schema) -> int:
    """Writes the records under a schema of `open_schema`; a missing key is null."""
    arrays = [pa.array([_stored(r.get(f.name), f) for r in records], type=f.type) for f in schema]
    return write_batches(path, [pa.record_batch(arrays, schema=schema)], schema)


def read_open_records(path: Path) -> list[dict[str, Any]]:
    """The records that were written, each key present."""
    table = open_parquet(path).read()
    as_json = [
        f.name for f in table.schema if f.metadata and f.metadata.get(b"envbuild") == b"json"
    ]
    records: list[dict[str, Any]] = table.to_pylist()
    for record in records:
        for name in as_json:
            if record[name] is not None:
                record[name] = json.loads(record[name], object_hook=_revived)
    return records


def _field(name: str, values: Sequence[Any], known: pa.Schema | None) -> pa.Field:
    present = [value for value in values if value is not None]
    if known is not None and name in known.names:
        kept = known.field(name)
        try:
            if pa.array(present, type=kept.type).to_pylist() == present:
                return pa.field(name, kept.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass  # these values are of another kind than the column usually holds
    for holds, type_ in _TYPES:
        if all(map(holds, present)):
            return pa.field(name, type_)
    return pa.field(name, pa.string(), metadata=_JSON_TEXT)


def _are(kind: type, values: Iterable[Any]) -> bool:
    return all(type(value) is kind for value in values)


_TYPES: tuple[tuple[Any, pa.DataType], ...] = (
    (lambda value: type(value) is str, pa.string()),
    (lambda value: type(value) is bool, pa.bool_()),
    (lambda value: type(value) is int and -_LARGEST <= value < _LARGEST, pa.int64()),
    (lambda value: type(value) is float, pa.float64()),
    (lambda value: type(value) is bytes, pa.binary()),
    (lambda value: type(value) is list and _are(str, value), pa.list_(pa.string())),
    (
        lambda value: (
            type(value) is list
            and _are(dict, value)
            and all(set(one) == {"role", "content"} and _are(str, one.values()) for one in value)
        ),
        MESSAGES,
    ),
)
"""The first that holds for every value of a column is its type."""


def _stored(value: Any, field: pa.Field) -> Any:
    if value is None or not field.metadata:
        return value
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$hex": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, Mapping):
        plain = {key: _plain(inner) for key, inner in value.items()}
        return {"$object": plain} if len(plain) == 1 and next(iter(plain))[:1] == "$" else plain
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _revived(found: dict[str, Any]) -> Any:
    if len(found) == 1:
        ((key, value),) = found.items()
        if key == "$hex":
            return bytes.fromhex(value)
        if key == "$float":
            return float(value)
        if key == "$object":
            return value
    return found
