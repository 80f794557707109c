"""Arrow columns from Python values, by their buffers.

`pyarrow.array` asks pandas what a list is, and so imports it wherever it is installed: half a
second in every command that writes a catalogue. Buffers need nobody's opinion.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa


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
