"""JSON arrays and JSON lines of any size, record by record, in a few megabytes of memory.

An array is cut where `}, {` stands between two records. That text may also lie inside a string or
a nested list; a cut there leaves JSON that does not parse, and the cut before it is tried.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from envbuild.errors import SourceError

R = TypeVar("R")

CHUNK_BYTES = 4 * 1024 * 1024
LONGEST_RECORD = 512 * 1024 * 1024
"""Bytes without a possible end of a record; beyond, the text is taken to be malformed."""
CUTS_TRIED = 16
"""Cuts tried in one chunk before more of the file is read."""
_BOM = b"\xef\xbb\xbf"
_CUT = re.compile(rb"\}(\s*),\s*\{")
_WINDOW = 64 * 1024


def iter_json(path: Path, record: type[R]) -> Iterator[R]:
    """The records of a JSON array or of JSON lines, as `record`; unknown keys are skipped unread.

    An empty file, or an empty array, has none. A byte-order mark, blank lines and CRLF are fine.
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


def _first_character(stream: BinaryIO) -> bytes:
    """The first byte that is no blank; the stream stands on it, or behind it where it is `[`."""
    while (character := stream.read(1)).isspace():
        pass
    if character and character != b"[":
        stream.seek(-1, 1)
    return character


def _iter_array(stream: BinaryIO, path: Path, record: type[R]) -> Iterator[R]:
    decoder = msgspec.json.Decoder(list[record])  # type: ignore[valid-type]
    pending = b""
    while chunk := stream.read(CHUNK_BYTES):
        pending += chunk
        records, pending = _decode_start(decoder, pending)
        yield from records
        if len(pending) > LONGEST_RECORD:
            break
    place = stream.tell() - len(pending)
    try:
        yield from decoder.decode(b"[" + pending)
    except msgspec.DecodeError as e:
        raise SourceError(f"{path} is malformed behind byte {place:,}: {e}") from None


def _decode_start(decoder: msgspec.json.Decoder[list[R]], pending: bytes) -> tuple[list[R], bytes]:
    """The records up to the last cut that parses, and the bytes behind it."""
    for tried, (end, start) in enumerate(_cuts_from_the_end(pending)):
        if tried == CUTS_TRIED:
            break
        try:
            return decoder.decode(b"".join((b"[", memoryview(pending)[:end], b"]"))), pending[
                start:
            ]
        except msgspec.ValidationError:
            break  # it parses, and holds what is no such record: the last decode says where
        except msgspec.DecodeError:
            continue
    return [], pending


def _cuts_from_the_end(pending: bytes) -> Iterator[tuple[int, int]]:
    """(end of a record, start of the next) at every possible cut, the last one first."""
    end = len(pending)
    while end > 0:
        start = max(0, end - _WINDOW)
        # a cut that begins in this window may end in the one behind it
        matches = list(_CUT.finditer(pending, start, min(len(pending), end + 256)))
        for match in reversed(matches):
            if match.start() < end:
                yield match.start() + 1, match.end() - 1
        end = start


def _iter_lines(stream: BinaryIO, path: Path, record: type[R]) -> Iterator[R]:
    decoder = msgspec.json.Decoder(record)
    for number, line in enumerate(stream, 1):
        if not (text := line.strip()):
            continue
        try:
            yield decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise SourceError(f"{path}, line {number}: {e}") from None
