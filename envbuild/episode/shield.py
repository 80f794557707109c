"""SQL whose literals and comments hold what reads as a `<think>` tag or as a call.

Both are text where a statement stands around them, as a query's words are there. They are hidden
from whoever looks for tags, calls and queries: the first character of each is replaced by one that
the text does not hold, until the text has been taken apart.
"""

import re
from collections.abc import Callable, Iterator

from envbuild.episode.objects import MOST_PROSE, UnreadableError, read_object, starts_object
from envbuild.episode.parse import CLOSE, OPEN
from envbuild.episode.readings import QUERY, blank_line, iter_ends, most_places
from envbuild.records.execution import Outcome, QueryResult
from envbuild.sql.text.tokens import Kind, iter_code, iter_tokens

Prepare = Callable[[str], QueryResult]
"""What preparing a query comes to, without running it."""
PREPARED = (Outcome.OK, Outcome.TRUNCATED)
_MARK = re.compile(r"</?think>|\{")
_PRIVATE = 0xE000
_SHOWN = {_PRIVATE + code: chr(code) for code in range(128)}
_IS_HIDDEN = re.compile("[\ue000-\ue07f]")
_NEXT = re.compile(rf"{OPEN}|\{{|{QUERY.pattern}", re.IGNORECASE)
_QUOTING = (Kind.STRING, Kind.QUOTED, Kind.COMMENT)


def shielded(text: str, prepare: Prepare) -> str | None:
    """The text with such marks hidden; None where there are none, or they cannot be hidden."""
    if not _MARK.search(text) or not QUERY.search(text):
        return None
    if _IS_HIDDEN.search(text):
        return None
    characters = list(text)
    for at in _marks(text, prepare):
        characters[at] = chr(_PRIVATE + ord(characters[at]))
    hidden = "".join(characters)
    return None if hidden == text else hidden


def unshielded(text: str) -> str:
    """The text as it was written."""
    return text.translate(_SHOWN)


def _marks(text: str, prepare: Prepare) -> Iterator[int]:
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
            end, marks = _statement(text, begin, start, prepare)
            yield from marks
            position = max(end, match.end())


def _object_end(text: str, start: int) -> int:
    try:
        return read_object(text, start).end if starts_object(text, start) else start + 1
    except UnreadableError:
        return start + 1


def _statement(text: str, begin: int, place: int, prepare: Prepare) -> tuple[int, list[int]]:
    """The end of a statement that holds marks in literals only, and where they stand."""
    for end in (*iter_ends(text, place), blank_line(text, place)):
        if end is None:
            continue
        marks = [begin + at for at in _quoted_marks(text[begin:end])]
        if marks:
            result = prepare(text[begin:end].strip())
            leads = begin == 0 or text[:begin].rstrip(" \t").endswith("\n")
            if result.outcome in PREPARED or (leads and result.parsed):
                return end, marks
    return place, []


def _quoted_marks(sql: str) -> list[int]:
    """Where marks and queries stand in literals and comments; none where no mark does, or one
    stands outside."""
    marks: list[int] = []
    marked = False
    for token in iter_tokens(sql):
        found = [match.start() for match in _MARK.finditer(sql, token.start, token.end)]
        if token.kind in _QUOTING:
            marked = marked or bool(found)
            marks += found
            marks += (match.start() for match in QUERY.finditer(sql, token.start, token.end))
        elif found or _MARK.match(sql, token.start):
            return []
    return marks if marked else []
