"""Parquet from records and back: one schema per record type, the same bytes for the same rows."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from envbuild.errors import CorpusFolderError
from envbuild.io.files import atomic_path

# Arrow columns from Python values, by their buffers.
#
# `pyarrow.array` asks pandas what a list is, and so imports it wherever it is installed: half a
# second in every command that writes a catalogue. Buffers need nobody's opinion.


def arrow_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as one Arrow array of type `kind`; None is null.

    Strings, binary, 64-bit integers, floats and lists of strings are built from buffers, every
    other type by `pyarrow.array`. Raises UnicodeEncodeError for a lone surrogate, OverflowError
    for an integer past 64 bits.
    """
    build = _BUILDERS.get(kind)
    return build(values, kind) if build else pa.array(values, type=kind)


def _text(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    present = [b"" if value is None else value.encode() for value in values]
    return _bytes_of(values, present, kind)


def _binary(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return _bytes_of(values, [value or b"" for value in values], kind)


def _bytes_of(values: Sequence[Any], present: list[bytes], kind: pa.DataType) -> pa.Array:
    joined = b"".join(present)
    if len(joined) >= 2**31:
        return pa.array(values, type=kind)
    buffers = [_validity(values), _offsets(map(len, present)), pa.py_buffer(joined)]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _numbers(code: str) -> Callable[[Sequence[Any], pa.DataType], pa.Array]:
    def build(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        numbers = array(code, [0 if value is None else value for value in values])
        buffers = [_validity(values), pa.py_buffer(numbers)]
        return pa.Array.from_buffers(kind, len(values), buffers)

    return build


def _text_lists(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    lists = [value or () for value in values]
    inner = _text([text for texts in lists for text in texts], pa.string())
    buffers = [_validity(values), _offsets(map(len, lists))]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[inner])


def _offsets(lengths: Any) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate(lengths, initial=0)))


def _validity(values: Sequence[Any]) -> pa.Buffer | None:
    """The bitmap of what is not None, least bit first; None where nothing is."""
    if None not in values:
        return None
    bits = bytearray((len(values) + 7) // 8)
    for place, value in enumerate(values):
        if value is not None:
            bits[place >> 3] |= 1 << (place & 7)
    return pa.py_buffer(bytes(bits))


_BUILDERS: dict[pa.DataType, Callable[[Sequence[Any], pa.DataType], pa.Array]] = {
    pa.string(): _text,
    pa.binary(): _binary,
    pa.int64(): _numbers("q"),
    pa.float64(): _numbers("d"),
    pa.list_(pa.string()): _text_lists,
}


R = TypeVar("R", bound=msgspec.Struct)

GROUP_ROWS = 64 * 1024
"""Rows a row group holds: few enough to stream, enough to compress."""
READ_ROWS = 8192
"""Rows made into records at once."""

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
    return write_batches(path, _batches(records, schema, group), schema, metadata=metadata)


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
    batches = file.iter_batches(columns=columns_known(file, record), batch_size=held)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as e:
            raise CorpusFolderError(f"{path} is damaged or not ours: {e}") from e
        if batch is None:
            return
        yield from to_records(path, batch, record)


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
    arrays = [arrow_column(_cells(records, field), field.type) for field in schema]
    return pa.record_batch(arrays, schema=schema)


def _cells(records: Sequence[msgspec.Struct], field: pa.Field) -> list[Any]:
    cells = list(map(attrgetter(field.name), records))
    nested = pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type)
    return [msgspec.to_builtins(cell) for cell in cells] if nested else cells


def _batches(
    records: Iterable[msgspec.Struct], schema: pa.Schema, group: int
) -> Iterator[pa.RecordBatch]:
    chunk: list[msgspec.Struct] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == group:
            yield columns_of(chunk, schema)
            chunk = []
    if chunk:
        yield columns_of(chunk, schema)


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
