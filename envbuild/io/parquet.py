"""Parquet from records and back: one schema per record type, the same bytes for the same rows."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from envbuild.errors import CorpusFolderError
from envbuild.io.files import atomic_path

R = TypeVar("R", bound=msgspec.Struct)

GROUP_ROWS = 64 * 1024
"""Rows a row group holds: few enough to stream, enough to compress."""
READ_ROWS = 8192
"""Rows made into records at once."""

_NUMBERS = {pa.int64(): "q", pa.float64(): "d"}
_ARROW: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}


def arrow_schema(record: type[msgspec.Struct], **overrides: pa.DataType) -> pa.Schema:
    """The Arrow schema of a record type: its fields in order, tuples as lists, `| None` nullable.

    A record inside a record becomes a struct. Raises TypeError for a field of any other type.
    """
    hints = get_type_hints(record)
    return pa.schema(
        [
            pa.field(name, overrides.get(name) or _arrow_type(hints[name]))
            for name in record.__struct_fields__
        ]
    )


def write_records(
    path: Path,
    records: Iterable[msgspec.Struct],
    schema: pa.Schema,
    *,
    metadata: dict[str, str] | None = None,
    group: int = GROUP_ROWS,
) -> int:
    """Writes records to one Parquet file, whole or not at all; returns how many.

    Rows are written in the order given; sort them first where bytes must not depend on it. `group`
    rows make a row group, and as many records are in memory at once.
    """
    remaining = iter(records)
    chunks = iter(lambda: list(islice(remaining, group)), [])
    batches = (columns_of(chunk, schema) for chunk in chunks)
    return write_batches(path, batches, schema, metadata=metadata)


def write_batches(
    path: Path,
    batches: Iterable[pa.RecordBatch | pa.Table],
    schema: pa.Schema,
    *,
    metadata: dict[str, str] | None = None,
) -> int:
    """Streams ready column batches to one Parquet file (zstd); returns the number of rows."""
    if metadata:
        schema = schema.with_metadata(metadata)
    rows = 0
    # least and greatest of a list's values help no reader, and cost a fifth of the writing
    flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            write_page_index=True,
            write_statistics=flat,
            write_batch_size=8192,
        ) as writer,
    ):
        for batch in batches:
            table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
            table = table.cast(schema) if table.schema != schema else table
            writer.write_table(table, row_group_size=GROUP_ROWS)
            rows += table.num_rows
    return rows


def read_records(path: Path, record: type[R]) -> list[R]:
    """Every row of a Parquet file as records."""
    return list(iter_records(path, record))


def iter_records(path: Path, record: type[R], *, held: int = READ_ROWS) -> Iterator[R]:
    """The rows of a Parquet file as records, of which at most `held` are in memory.

    Columns the record does not know are ignored; a file that is missing, damaged, or holds other
    records raises CorpusFolderError.
    """
    file = open_parquet(path)
    try:
        for batch in file.iter_batches(columns=columns_known(file, record), batch_size=held):
            yield from to_records(path, batch, record)
    except (pa.ArrowException, OSError) as e:
        raise CorpusFolderError(f"{path} is damaged or not ours: {e}") from e


def columns_known(file: pq.ParquetFile, record: type[msgspec.Struct]) -> list[str]:
    """The fields of a record type that a file has as columns."""
    return [name for name in record.__struct_fields__ if name in file.schema_arrow.names]


def to_records(path: Path, batch: pa.RecordBatch, record: type[R]) -> list[R]:
    """The rows of a batch of the file at `path`; CorpusFolderError where they are no records."""
    try:
        return msgspec.convert(batch.to_pylist(), list[record])  # type: ignore[valid-type]
    except (pa.ArrowException, ValueError) as e:  # ValueError: no such record, no text
        raise CorpusFolderError(f"{path} is damaged or not ours: {e}") from e


def open_parquet(path: Path) -> pq.ParquetFile:
    """An open Parquet file; CorpusFolderError where it is missing or not Parquet."""
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise CorpusFolderError(f"no file {path}: is this the right folder?") from None
    except (pa.ArrowInvalid, OSError) as e:
        raise CorpusFolderError(f"{path} is not a readable Parquet file: {e}") from e


def parquet_metadata(path: Path) -> dict[str, str]:
    """The file's own key-value metadata, decoded."""
    found = open_parquet(path).schema_arrow.metadata or {}
    return {key.decode(): value.decode() for key, value in found.items()}


def columns_of(records: Sequence[msgspec.Struct], schema: pa.Schema) -> pa.RecordBatch:
    """One record batch of these records, column by column."""
    arrays = []
    for field in schema:
        cells = list(map(attrgetter(field.name), records))
        if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
            cells = msgspec.to_builtins(cells)
        arrays.append(arrow_column(cells, field.type))
    return pa.record_batch(arrays, schema=schema)


def arrow_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as one Arrow array of type `kind`; None is null.

    The common types are built from buffers, since `pyarrow.array` asks pandas what a list is, and
    so imports it wherever it is installed: half a second in every command that writes a catalogue.
    Raises UnicodeEncodeError for a lone surrogate, OverflowError for an integer past 64 bits.
    """
    valid = None
    if None in values:
        bits = np.packbits([value is not None for value in values], bitorder="little")
        valid = pa.py_buffer(bits.tobytes())
    if kind in _NUMBERS:
        numbers = array(_NUMBERS[kind], [0 if value is None else value for value in values])
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(numbers)])
    if kind == pa.list_(pa.string()):
        lists = [value or () for value in values]
        inner = arrow_column([text for texts in lists for text in texts], pa.string())
        buffers = [valid, _offsets(lists)]
        return pa.Array.from_buffers(kind, len(values), buffers, children=[inner])
    if kind == pa.string():
        parts = [b"" if value is None else value.encode() for value in values]
    elif kind == pa.binary():
        parts = [value or b"" for value in values]
    else:
        return pa.array(values, type=kind)
    buffers = [valid, _offsets(parts), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _offsets(parts: Iterable[Sequence[Any]]) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate(map(len, parts), initial=0)))


def _arrow_type(hint: Any) -> pa.DataType:
    options = [a for a in get_args(hint) if a is not type(None)]
    if get_origin(hint) is tuple:
        return pa.list_(_arrow_type(get_args(hint)[0]))
    if len(options) == 1:  # X | None
        return _arrow_type(options[0])
    if isinstance(hint, type) and issubclass(hint, str):  # StrEnum
        return pa.string()
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return pa.struct(list(arrow_schema(hint)))
    if hint in _ARROW:
        return _ARROW[hint]
    raise TypeError(f"no Arrow type for {hint!r}")
