"""Parquet and JSON record files as rows, one at a time, whatever the size of their cells."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import CorpusFolderError, SourceError
from envbuild.io.json_stream import RawRecord, iter_json
from envbuild.io.packed import nested_payload

REPEATED_ROWS_A_BATCH = 256
ROWS_A_BATCH = 1
"""Rows decoded at once where a cell may hold ten megabytes: no slower, and half the memory."""
SMALL_ROWS_A_BATCH = 4096
_RECORDS_LOOKED_AT = 100
_NO_CELL = (b"", b"NaN", b"Infinity", b"-Infinity")


def columns_of(file: Path) -> set[str]:
    """Column names of a Parquet file, or the keys of a JSON file's first records."""
    if file.suffix == ".parquet":
        return set(_open_parquet(file).schema_arrow.names)
    keys: set[str] = set()
    for record in islice(iter_json(file, RawRecord), _RECORDS_LOOKED_AT):
        keys |= record.keys()
    return keys


def iter_cells(
    file: Path, columns: Sequence[str], *, large: bool, repeated: bool = False
) -> Iterator[tuple[Any, ...]]:
    """The cells of `columns`, row by row; a column that the file lacks gives None.

    With `large`, text cells of Parquet come as buffers of UTF-8 that nobody has copied yet, and
    one row at a time is in memory; `text_of` and `bytes_of` copy.
    `repeated` says that the same large text stands in many rows: it is decoded once.
    Raises SourceError for a file that is no Parquet or no JSON.
    """
    if file.suffix == ".parquet":
        yield from _iter_parquet(file, columns, large=large, repeated=repeated)
    else:
        for record in iter_json(file, RawRecord):
            yield tuple(_json_cell(record.get(column)) for column in columns)


def _iter_parquet(
    file: Path, columns: Sequence[str], *, large: bool, repeated: bool
) -> Iterator[tuple[Any, ...]]:
    import pyarrow as pa

    known = columns_of(file)
    present = [name for name in columns if name in known]
    parquet = _open_parquet(file, dictionaries=present if repeated else ())
    size = SMALL_ROWS_A_BATCH
    if large:
        size = REPEATED_ROWS_A_BATCH if repeated else ROWS_A_BATCH
    nothing = [None] * size
    try:
        # threads decode columns side by side: more memory, and the workers have the cores
        for batch in parquet.iter_batches(batch_size=size, columns=present, use_threads=not large):
            arrays = {name: batch.column(name) for name in present}
            if large:
                for row in range(batch.num_rows):
                    yield tuple(
                        _large_cell(arrays[n][row]) if n in arrays else None for n in columns
                    )
            else:
                lists = {name: array.to_pylist() for name, array in arrays.items()}
                cells = [lists.get(name, nothing[: batch.num_rows]) for name in columns]
                yield from zip(*cells, strict=True)
    except (pa.ArrowException, OSError) as e:
        raise SourceError(f"{file} is damaged: {e}") from e


def _open_parquet(file: Path, *, dictionaries: Sequence[str] = ()) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # without pre_buffer a row group is read page by page, not whole
        return pq.ParquetFile(
            file, read_dictionary=list(dictionaries), pre_buffer=False, buffer_size=1 << 20
        )
    except (pa.ArrowInvalid, OSError, CorpusFolderError) as e:
        raise SourceError(f"{file} is not a readable Parquet file: {e}") from e


def bytes_of(cell: Any) -> bytes:
    """A large cell as bytes; nothing is empty, a number its digits."""
    if isinstance(cell, dict):  # a payload kept as a struct, not as text
        return nested_payload(cell)
    if isinstance(cell, list):
        return json.dumps(cell, default=str).encode()
    if hasattr(cell, "to_pybytes"):
        content: bytes = cell.to_pybytes()
        return content
    if isinstance(cell, bytes):
        return cell
    return b"" if cell is None else str(cell).encode("utf-8", "surrogatepass")


def text_of(cell: Any) -> str:
    """A large cell as text; nothing is empty, a number its digits."""
    if hasattr(cell, "to_pybytes") or isinstance(cell, bytes):
        return bytes_of(cell).decode("utf-8", "replace")
    return "" if cell is None else str(cell)


def length_of(cell: Any) -> int:
    """How long a large cell is, without a copy of it."""
    return len(cell if hasattr(cell, "__len__") else text_of(cell))


def _large_cell(scalar: Any) -> Any:
    """Text as its buffer, anything else as Python has it."""
    if hasattr(scalar, "dictionary"):
        scalar = scalar.value
    return scalar.as_buffer() if hasattr(scalar, "as_buffer") else scalar.as_py()


def _json_cell(raw: msgspec.Raw | None) -> Any:
    """A string or number as Python has it; an object or array as its JSON text.

    NaN or an infinity for a whole cell is nothing.
    """
    text = b"" if raw is None else bytes(raw)
    if text in _NO_CELL:
        return None
    if text[:1] in b"{[":
        return text.decode("utf-8", "replace")
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:  # text that is not UTF-8, or a number past every type: its digits
        shown = text.decode("utf-8", "replace")
        return json.loads(shown) if shown.startswith('"') else shown
