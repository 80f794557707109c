"""The places in a text where a statement may stand, whatever stands around it.

Fences, quotes, brackets, `**`, tags, `Answer:`, a LaTeX box, JSON that is cut off: each place
where a statement starts is a reading, from there to where its wrapping, its semicolon, a tag, a
fence, a blank line or the text ends.
"""

import re
from collections.abc import Iterator
from itertools import islice

import msgspec

from envbuild.episode.objects import UnreadableError, read_json
from envbuild.episode.statement_ends import (
    OPENED,
    OTHER,
    QUERY,
    STATEMENT,
    WRAPPERS,
    closing_bracket,
    is_closed,
    iter_ends,
    paragraph_end,
    search_before,
)
from envbuild.sql.text.tokens import iter_code, iter_tokens

MOST_PLACES = 48
"""Places of one text that are read."""
MOST_CHARACTERS = 300_000
"""Characters that all readings of a text may have together: each is cut into tokens."""
_FENCE = re.compile(
    r"(?P<fence>```|(?<![^\n])~~~)[ \t]*"
    r"(?:(?P<tag>sql\w*)\b[ \t]*\n?|(?!select\b|with\b|values\b)[\w+-]+[ \t]*\n)?"
    r"(?P<body>.*?)(?:(?P=fence)|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_LINE_STATEMENT = re.compile(rf"(?:\A|\n)[ \t]*({OTHER})", re.IGNORECASE)
_INSIDE_QUERY = re.compile(r"\b(?:union|all|except|intersect|as|explain|plan)\s*\Z", re.I)
_IN_PARENTHESES = re.compile(r"\(\s*\Z")
_COMPOUND = re.compile(r"\)\s*(?:union|except|intersect|order|limit)\b", re.IGNORECASE)
_LINE_START = re.compile(r"(?:\A|\n)[ \t]*(?:sql\s*:\s*)?\Z", re.IGNORECASE)
_ANNOUNCED = re.compile(r"[:>=`\"'*$“‘«]\s*\Z")
_ANSWER = re.compile(
    r"(?<!wrong )(?<!first )(?<!not the )\b(?:answer|final(?:\s+(?:sql|query|statement))*)"
    r"(?:\s+is\b(?:\s+as\s+follows)?|[\"'*]*\s*[:>=\n])[\s:*]*"
    r"(?:```\w*\s*|\\\w+\{|[`\"'$“‘«({\[])*\Z",
    re.IGNORECASE,
)
_JSON_STRING = re.compile(r"(?:[^\"\\]|\\.)*", re.DOTALL)
_JSON_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\.", re.DOTALL)
_MOST_COMMENTS = 8


class Reading(msgspec.Struct, frozen=True):
    """One text that may be the answer: `text[start:end]` of what was written."""

    sql: str
    start: int
    end: int
    announced: bool = True
    """It starts a line or a fence, or stands behind a colon or a mark: hardly prose."""
    certain: bool = False
    """Its place makes it the answer, even where it cannot be read as SQL."""


def iter_readings(text: str) -> Iterator[Reading]:
    """The places that may hold the answer, the likeliest first.

    What stands behind `Answer:`, the last one first; then fences that are tagged `sql` or start a
    statement, the last one first; then every place where a query starts, to its end; then the same
    places to the next blank line or line of prose; then those in a literal of the one before.
    """
    free, quoted = _parted(text, list(islice(_places(text), most_places(text))))
    answers = [place for place in free if _stands_behind(_ANSWER, text, place)]
    for place in reversed(answers):
        yield from _whole_readings(text, place)
        yield from _paragraph(text, place)
    for fence in reversed(list(_FENCE.finditer(text))):
        body = fence["body"].strip()
        if next(iter_code(body), None) and (fence["tag"] or starts_statement(body)):
            yield Reading(body, fence.start(), fence.end(), certain=True)
    others = [place for place in free if place not in answers]
    for place in _last_wrapped_first(text, others):
        yield from _whole_readings(text, place)
    for place in others:
        yield from _paragraph(text, place)
    for place in quoted:
        yield from _whole_readings(text, place)


def most_places(text: str) -> int:
    """How many places of this text are read: fewer of a long one."""
    return max(4, min(MOST_PLACES, MOST_CHARACTERS // (len(text) + 1)))


def starts_statement(text: str) -> bool:
    """Whether a statement starts here, comments before it allowed."""
    first = next(iter_code(text), None)
    return first is not None and STATEMENT.match(text, first.start) is not None


def _places(text: str) -> Iterator[int]:
    """Where statements start that stand in no other one, as far as the words before them tell.

    Statements that are no queries start a line: elsewhere such a word is prose. In parentheses a
    query is part of another, unless it is the text's first and nothing goes on behind them.
    """
    found = {match.start() for match in QUERY.finditer(text)}
    found |= {match.start(1) for match in _LINE_STATEMENT.finditer(text)}
    for number, place in enumerate(sorted(found)):
        before = _before_comments(text, place) if number else place
        if _stands_behind(_INSIDE_QUERY, text, before):
            continue
        if _stands_behind(_IN_PARENTHESES, text, before):
            end = closing_bracket(text, place, "(") if number == 0 else None
            if end is None or _COMPOUND.match(text, end):
                continue
        yield place


def _before_comments(text: str, place: int) -> int:
    """Where the comments start that stand directly before a place; the place where none do."""
    for _ in range(_MOST_COMMENTS):
        before = text[:place].rstrip()
        start = before.rfind("/*") if before.endswith("*/") else -1
        if start < 0 and "\n" in text[len(before) : place]:
            start = before.find("--", before.rfind("\n") + 1)
        if start < 0:
            break
        place = start
    return place


def _is_quoted(text: str, place: int, at: int) -> bool:
    """Whether a literal or comment of the statement from `place` on holds this character."""
    for token in iter_tokens(text[place:]):
        if place + token.end > at:
            return place + token.start < at and is_closed(text, place, token)
    return False


def _parted(text: str, places: list[int]) -> tuple[list[int], list[int]]:
    """The places that stand in no literal or comment of the one before, and those that do."""
    free: list[int] = []
    quoted: list[int] = []
    for place in places:
        (quoted if free and _is_quoted(text, free[-1], place) else free).append(place)
    return free, quoted


def _last_wrapped_first(text: str, places: list[int]) -> list[int]:
    """The places, but those in quotes or backticks in turned order: a draft stands before what it
    is given up for."""
    wrapped = [place for place in places if text.endswith(tuple(WRAPPERS), 0, place)]
    turned = dict(zip(wrapped, reversed(wrapped), strict=True))
    return [turned.get(place, place) for place in places]


def _paragraph(text: str, place: int) -> Iterator[Reading]:
    """What stands there up to a blank line or prose, if any follows."""
    if (stop := paragraph_end(text, place)) is not None:
        announced = _stands_behind(_LINE_START, text, place)
        yield Reading(text[place:stop].strip(), place, stop, announced=announced)


def _whole_readings(text: str, place: int) -> Iterator[Reading]:
    opened = search_before(OPENED, text, place)
    anchor = opened.start() if opened else place
    certain = _stands_behind(_LINE_START, text, anchor)
    announced = certain or bool(opened) or _stands_behind(_ANNOUNCED, text, anchor)
    start = place if next(iter_code(text[:place]), None) else 0
    certain = certain or start == 0
    if sql := _unescaped(text, place):
        yield Reading(sql, start, place + len(sql), certain=certain)
    for end in iter_ends(text, place):
        sql = text[start:end].strip()
        yield Reading(sql, start, end, announced=announced or certain, certain=certain)


def _stands_behind(pattern: re.Pattern[str], text: str, place: int) -> bool:
    return search_before(pattern, text, place) is not None


def _unescaped(text: str, place: int) -> str:
    """The rest of a JSON string whose object cannot be read; empty where nothing is escaped."""
    if not text.endswith('"', 0, place):
        return ""
    written = _JSON_STRING.match(text, place)
    if written is None or "\\" not in written[0]:
        return ""
    return _JSON_ESCAPE.sub(_json_character, written[0]).strip()


def _json_character(escape: re.Match[str]) -> str:
    try:
        return str(read_json(f'"{escape[0]}"'))
    except UnreadableError:
        return escape[0][1:]
