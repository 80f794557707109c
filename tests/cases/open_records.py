"""Records of no fixed type as Parquet, given back as they were.

A column's type comes from its values: text, truth values, whole numbers, floats, blobs, lists of
text, chat messages. Anything else (objects whose keys differ from row to row, nested rows,
integers past 64 bits, blobs among text) becomes JSON text, in which a blob is `{"$hex": …}` and an
infinity `{"$float": …}`; so no key is ever added, and no value changes its type. The file is flat,
and every reader of Parquet takes it. A column without any value is text, so that shards agree.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from envbuild.io.parquet import open_parquet, write_batches
from tests.cases.form import deep

Record = Mapping[str, Any]
TYPES = (
    *(pa.string(), pa.bool_(), pa.int64(), pa.float64(), pa.binary(), pa.list_(pa.string())),
    pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
)
"""The first that gives a column's values back as they were is its type."""
_JSON_TEXT = {b"envbuild": b"json"}
"""Metadata of a field whose text is JSON."""


def open_schema(records: Iterable[Record], *, known: pa.Schema) -> pa.Schema:
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
    records: list[dict[str, Any]] = table.to_pylist()
    for name in [field.name for field in table.schema if field.metadata]:
        for record in records:
            if record[name] is not None:
                record[name] = json.loads(record[name], object_hook=_revived)
    return records


def _field(name: str, values: Sequence[Any], known: pa.Schema) -> pa.Field:
    present = [value for value in values if value is not None]
    for type_ in ([known.field(name).type] if name in known.names else []) + list(TYPES):
        try:
            if deep(pa.array(present, type=type_).to_pylist()) == deep(present):
                return pa.field(name, type_)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            continue  # these values are of another kind
    return pa.field(name, pa.string(), metadata=_JSON_TEXT)


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
        revive = {"$hex": bytes.fromhex, "$float": float, "$object": dict}.get(key)
        return revive(value) if revive else found
    return found
