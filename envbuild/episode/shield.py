"""SQL whose literals and comments hold what reads as a `<think>` tag, as a call or as a fence.

All are text where a statement stands around them, as a query's words are there. They are hidden
from whoever looks for tags, calls, fences and queries: their characters are replaced by ones that
the text does not hold, until the text has been taken apart.
"""

import re
from bisect import bisect
from collections.abc import Iterator
from itertools import chain

import msgspec

from envbuild.episode.objects import MOST_PROSE, UnreadableError, read_object, starts_object
from envbuild.episode.parse import CLOSE, OPEN
from envbuild.episode.readings import most_places
from envbuild.episode.statement_ends import QUERY, iter_ends, paragraph_end, tokens_of
from envbuild.episode.tries import Tries, prepares
from envbuild.sql.text.tokens import Kind, iter_code

_MARK = re.compile(r"</?think>|\{|`{3,}|(?<![^\n])~{3,}")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_ASCII = 128
_PRIVATE = range(0xE000, 0xF900, _ASCII)
"""Where characters may be hidden: Unicode's private ones, which mean nothing by themselves."""
_NEXT = re.compile(rf"{OPEN}|\{{|{QUERY.pattern}", re.IGNORECASE)
_QUOTING = (Kind.STRING, Kind.QUOTED, Kind.COMMENT)


class Shielded(msgspec.Struct, frozen=True):
    """A text of which some characters may be hidden."""

    text: str
    block: int = 0
    """What was added to each hidden character; 0 where there is none."""

    def shown(self, part: str) -> str:
        """A part of the text, as it was written."""
        if not self.block:
            return part
        return part.translate({self.block + code: code for code in range(_ASCII)})


def shielded(text: str, tries: Tries) -> Shielded:
    """The text with such marks hidden, where there are any that can be."""
    block = _free_block(text)
    if not block or not _MARK.search(text) or not QUERY.search(text):
        return Shielded(text)
    characters = list(text)
    hidden = False
    for at in _marks(text, tries):
        characters[at] = chr(block + ord(text[at]))
        hidden = True
    return Shielded("".join(characters), block) if hidden else Shielded(text)


def _free_block(text: str) -> int:
    """The first private characters that the text does not hold, escaped neither; 0: it has all."""
    written = {ord(character) for character in set(text)}
    written |= {int(escaped, 16) for escaped in _ESCAPED.findall(text)}
    blocks = {code // _ASCII * _ASCII for code in written}
    return next((block for block in _PRIVATE if block not in blocks), 0)


def _marks(text: str, tries: Tries) -> Iterator[int]:
    """Where marks stand that are a statement's text. Outside a statement the first thing that
    opens holds the rest: a block of thinking, an object, or a statement."""
    first = next(iter_code(text), None)
    position = places = prose = 0
    if first and QUERY.match(text, first.start):
        position = first.start  # before it are comments of its own
    while (match := _NEXT.search(text, position)) and places < most_places(text):
        start = match.start()
        if match[0].lower() == OPEN:
            end = text.find(CLOSE, start)
            position = len(text) if end < 0 else end
        elif match[0] == "{":
            end = _object_end(text, start) if prose < MOST_PROSE else start + 1
            prose += end == start + 1
            position = end
        else:
            places += 1
            begin = 0 if first and start == first.start else start
            end, marks = _statement(text, begin, start, tries)
            yield from marks
            position = max(end, match.end())


def _object_end(text: str, start: int) -> int:
    try:
        return read_object(text, start).end if starts_object(text, start) else start + 1
    except UnreadableError:
        return start + 1


def _statement(text: str, begin: int, place: int, tries: Tries) -> tuple[int, list[int]]:
    """The end of a statement that holds marks in literals only, and where they stand."""
    for end in (*iter_ends(text, place), paragraph_end(text, place)):
        if end is None:
            continue
        marks = [begin + at for at in _quoted_marks(text[begin:end])]
        if marks:
            result = tries.prepare(text[begin:end].strip())
            if result is None:
                break
            leads = begin == 0 or text[:begin].rstrip(" \t").endswith("\n")
            if prepares(result) or (leads and result.parsed):
                return end, marks
    return place, []


def _quoted_marks(sql: str) -> list[int]:
    """Where marks and queries stand in literals and comments; none where no mark does, or one
    stands outside."""
    found = list(_MARK.finditer(sql))
    if not found:
        return []
    tokens = tokens_of(sql)
    starts = [token.start for token in tokens]
    marks: list[int] = []
    for match in chain(found, QUERY.finditer(sql)):
        token = tokens[bisect(starts, match.start()) - 1]
        if token.kind in _QUOTING and token.start < match.start():
            marks += range(match.start(), match.end() if match.re is _MARK else match.start() + 1)
        elif match.re is _MARK:
            return []
    return marks
