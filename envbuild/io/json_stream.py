"""JSON arrays and JSON lines of any size, record by record, in a few megabytes of memory.

An array is cut where `}, {` stands between two records. That text may also lie inside a string or
a nested list; a cut there leaves JSON that does not parse, and the cut before it is tried.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec

from envbuild.errors import SourceError

R = TypeVar("R")

CHUNK_BYTES = 4 * 1024 * 1024
LONGEST_RECORD = 512 * 1024 * 1024
"""Bytes without a possible end of a record; beyond, the text is taken to be malformed."""
CUTS_TRIED = 16
"""Cuts tried in one chunk before more of the file is read."""
RawRecord = dict[str, msgspec.Raw]
"""An object whose values are JSON text, NaN and infinities in it as they were written."""
_BOM = b"\xef\xbb\xbf"
_BEFORE = re.compile(rb"\}(\s*),\s*\Z")
"""What stands before a record's brace; the group ends where the comma stands."""
_BLANKS = 320
"""Bytes between two records, at most: an indent twice, and their braces."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
"""A pair of surrogates, a lone one, or the start of any other escape."""
_NOT_FINITE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(-?(?:NaN|Infinity))\b', re.DOTALL)
"""A string, passed over, or a token that Python and pandas write though JSON has none such."""
_MARK = b'"\\u0001not finite: '
"""Opens the string that stands for such a token while its record is cut into raw values."""
_MARKED = re.compile(re.escape(_MARK) + rb'([^"]*)"')
_LONE = 6
"""Bytes of a lone surrogate's escape, and of the one that stands for U+FFFD."""


def iter_json(path: Path, record: type[R]) -> Iterator[R]:
    """The records of a JSON array or of JSON lines, as `record`; unknown keys are skipped unread.

    An empty file, or an empty array, has none. A byte-order mark, blank lines and CRLF are fine;
    the escape of a lone surrogate, which decoders refuse, is read as U+FFFD. NaN and infinities,
    no JSON either, are null, or stay in the text of a `RawRecord`.
    Raises SourceError, naming the place, for what is not JSON or not such records.
    """
    if not Path(path).is_file():
        raise SourceError(f"no file {path}")
    with Path(path).open("rb") as stream:
        start = stream.read(len(_BOM))
        if start != _BOM:
            stream.seek(0)
        first = _first_character(stream)
        if first == b"[":
            yield from _iter_array(stream, path, record)
        elif first:
            yield from _iter_lines(stream, path, record)


def decode_json(text: str | bytes) -> Any:
    """What JSON text holds: its NaN as None, its infinities as floats.

    Raises msgspec.DecodeError where it is not JSON even so.
    """
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise msgspec.DecodeError("JSON is nested too deeply to be read") from None
    except msgspec.DecodeError:
        try:
            return json.loads(text, parse_constant=lambda name: _CONSTANTS[name])
        except (ValueError, RecursionError):
            pass
        raise


_CONSTANTS = {"NaN": None, "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Decoder(Generic[R]):
    """Decodes records; where that fails, once more without NaN and infinities."""

    def __init__(self, record: type[R], whole: Any) -> None:
        self._raw = record == RawRecord
        self._strict = msgspec.json.Decoder(whole)

    def decode(self, text: bytearray | memoryview) -> Any:
        """Raises as msgspec does; what it says is about the text as it is."""
        try:
            # a raw value is a view of what was decoded, and the buffer must stay free to grow
            return self._strict.decode(bytes(text) if self._raw else text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            written = bytes(text)
            mended = _NOT_FINITE.sub(self._stand_in, written)
            if mended == written:
                raise
        decoded = self._strict.decode(mended)
        if self._raw:
            for record in decoded if isinstance(decoded, list) else (decoded,):
                for name, value in record.items():
                    record[name] = msgspec.Raw(_MARKED.sub(rb"\1", bytes(value)))
        return decoded

    def _stand_in(self, found: re.Match[bytes]) -> bytes:
        if found[1] is None:
            return found[0]
        return _MARK + found[1] + b'"' if self._raw else b"null"


def _first_character(stream: BinaryIO) -> bytes:
    """The first byte that is no blank; the stream stands on it, or behind it where it is `[`."""
    while (character := stream.read(1)).isspace():
        pass
    if character and character != b"[":
        stream.seek(-1, 1)
    return character


def _iter_array(stream: BinaryIO, path: Path, record: type[R]) -> Iterator[R]:
    decoder = _Decoder(record, list[record])  # type: ignore[valid-type]
    buffer, held = bytearray(CHUNK_BYTES), 1
    buffer[0:1] = b"["
    separator = b""
    while read := stream.readinto(memoryview(buffer)[held:]):  # type: ignore[attr-defined]
        held += read
        _mend(buffer, held, whole=False)
        records, comma, separator = _decode_start(decoder, buffer, held, separator)
        yield from records
        if comma:  # what is behind it is the start of the next chunk
            rest = buffer[comma:held]
            rest[0:1] = b"["
            held = len(rest)
            buffer[:held] = rest
        elif held == len(buffer):
            if held > LONGEST_RECORD:
                break
            buffer.extend(bytes(len(buffer)))
    place = stream.tell() - held
    _mend(buffer, held, whole=True)
    try:
        yield from decoder.decode(memoryview(buffer)[:held])
    except (msgspec.DecodeError, RecursionError) as e:
        raise SourceError(f"{path} is malformed behind byte {place:,}: {e}") from None


def _decode_start(
    decoder: _Decoder[R], buffer: bytearray, held: int, separator: bytes
) -> tuple[list[R], int, bytes]:
    """(records, place of the comma behind them, the text around it), or no records and 0.

    The text that stood between records before is looked for first.
    """
    for comma, text in islice(_cuts_from_the_end(buffer, held, separator), CUTS_TRIED):
        buffer[comma : comma + 1] = b"]"
        try:
            return decoder.decode(memoryview(buffer)[: comma + 1]), comma, text
        except msgspec.ValidationError:
            buffer[comma : comma + 1] = b","
            break  # it parses, and holds what is no such record: the last decode says where
        except (msgspec.DecodeError, RecursionError):
            buffer[comma : comma + 1] = b","
    return [], 0, separator


def _cuts_from_the_end(
    buffer: bytearray, held: int, separator: bytes
) -> Iterator[tuple[int, bytes]]:
    """(place of the comma, text around it) at every possible cut, the last one first."""
    if separator and (found := buffer.rfind(separator, 0, held)) >= 0:
        yield found + separator.index(b","), separator
    brace = held
    while (brace := buffer.rfind(b"{", 0, brace)) > 0:
        if match := _BEFORE.search(buffer, max(0, brace - _BLANKS), brace):
            yield match.end(1), match[0] + b"{"


def _iter_lines(stream: BinaryIO, path: Path, record: type[R]) -> Iterator[R]:
    decoder = _Decoder(record, record)
    for number, line in enumerate(stream, 1):
        text = bytearray(line.strip())
        if not text:
            continue
        _mend(text, len(text), whole=True)
        try:
            yield decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            wanted = "; wanted is an array of records, or a record a line" if number == 1 else ""
            raise SourceError(f"{path}, line {number}: {e}{wanted}") from None


def _mend(buffer: bytearray, held: int, *, whole: bool) -> None:
    """Writes U+FFFD over the escapes of lone surrogates; they are equally long.

    Unless the text is `whole`, one at its end is left alone: its partner may not be read yet.
    """
    if not _SURROGATE.search(buffer, 0, held):
        return
    last = held if whole else held - _LONE
    lone = [m.start() for m in _ESCAPE.finditer(buffer, 0, held) if m.end() - m.start() == _LONE]
    for start in lone:
        if start + _LONE <= last:
            buffer[start : start + _LONE] = b"\\ufffd"
