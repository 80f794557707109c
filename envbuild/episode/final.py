"""The final turn's SQL, out of whatever the policy wrote around it.

An answer may stand in a call, in a code fence, behind `Answer:`, inside `**` or `<answer>`: each
place where a statement starts is a reading, and the first that SQLite can prepare is meant. A text
that reads as SQL but names what is not there is an answer too, if a wrong one; prose is none.
"""

import re
from collections.abc import Callable, Iterator
from itertools import chain, islice, pairwise

import msgspec

from envbuild.episode.parse import Parsed
from envbuild.records.execution import Outcome, QueryResult
from envbuild.sql.text.tokens import iter_code

Prepare = Callable[[str], QueryResult]
"""What preparing a query comes to, without running it."""

MOST_READINGS = 48
"""Readings of one completion that are tried."""
_FENCE = re.compile(
    r"```[ \t]*(?:(sql\w*)\b[ \t]*\n?|(?!select\b|with\b|values\b)[\w+-]+[ \t]*\n)?"
    r"(.*?)(?:```|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_WITH = r"with\s+(?:recursive\b|(?:\"[^\"]+\"|`[^`]+`|\[[^\]]+\]|\w+)\s*(?:\([^()]*\)\s*)?as\b)"
_QUERY = re.compile(rf"(?<![\w.])(?:select\b|values\b|{_WITH})", re.IGNORECASE)
_OTHER = r"(?:explain|insert|replace|update|delete|create|drop|alter|pragma|attach)\b"
_STATEMENT = re.compile(rf"{_QUERY.pattern}|{_OTHER}", re.IGNORECASE)
_LINE_STATEMENT = re.compile(rf"(?:\A|\n)[ \t]*({_OTHER})", re.IGNORECASE)
_INSIDE_QUERY = re.compile(r"(?:\(|\b(?:union|all|except|intersect|as|explain|plan))\s*\Z", re.I)
_LINE_START = re.compile(r"(?:\A|\n)[ \t]*(?:sql\s*:\s*)?\Z", re.IGNORECASE)
_ANNOUNCED = re.compile(r"[:>=`\"'*]\s*\Z")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_CLOSING_TAG = re.compile(r"</\w")
_BEFORE = 100
"""Characters before a place that tell what it stands behind."""
_WRAPPERS = ("**", "*", "`", '"', "'")


class Reading(msgspec.Struct, frozen=True):
    """One text that may be the answer: `text[start:end]` of what was written."""

    sql: str
    start: int
    end: int
    announced: bool = True
    """It starts a line or a fence, or stands behind a colon or a mark: hardly prose."""
    certain: bool = False
    """Its place makes it the answer, even where it cannot be read as SQL."""


def final_sql(parsed: Parsed, prepare: Prepare) -> str:
    """The SQL of a final answer; empty where there is none.

    A call's `sql` argument goes before all. Else the first reading that prepares; else the first
    announced one that parses; else what stands in a fence or at a line's start as it is.
    """
    for call in reversed(parsed.calls):
        sql = call.arguments.get("sql")
        if isinstance(sql, str) and sql.strip():
            return sql.strip()
    if parsed.calls:
        return ""
    readings = islice(iter_readings(parsed.answer.strip()), MOST_READINGS)
    first, second = next(readings, None), next(readings, None)
    if first and first.certain and second is None:
        return first.sql  # it is run in any case: preparing it first would tell nothing
    parses = certain = ""
    whole = range(0)
    for reading in chain(filter(None, (first, second)), readings):
        if reading.start in whole:
            continue  # a part of a whole statement is not what was meant
        result = prepare(reading.sql)
        if result.outcome in (Outcome.OK, Outcome.TRUNCATED):
            return reading.sql
        if reading.certain and result.outcome is Outcome.INVALID:
            return reading.sql  # several statements: none of them is more meant than the others
        certain = certain or (reading.sql if reading.certain else "")
        if not parses and result.parsed and reading.announced:
            parses, whole = reading.sql, range(reading.start, reading.end)
    return parses or certain


def iter_readings(text: str) -> Iterator[Reading]:
    """The places that may hold the answer, the likeliest first.

    Fences that are tagged `sql` or start a statement, the last one first; then every place where a
    query starts, to its end; then the same places to the next blank line.
    """
    for fence in reversed(list(_FENCE.finditer(text))):
        body = fence[2].strip()
        if next(iter_code(body), None) and (fence[1] or _starts_statement(body)):
            yield Reading(body, fence.start(), fence.end(), certain=True)
    places = sorted({match.start() for match in _QUERY.finditer(text)} | _other_starts(text))
    places = [place for place in places if not _stands_behind(_INSIDE_QUERY, text, place)]
    for place in places[:MOST_READINGS]:
        certain = _stands_behind(_LINE_START, text, place)
        announced = certain or _stands_behind(_ANNOUNCED, text, place)
        start = place if next(iter_code(text[:place]), None) else 0
        certain = certain or start == 0
        for end in _ends(text, place):
            sql = text[start:end].strip()
            yield Reading(sql, start, end, announced=announced or certain, certain=certain)
    for place in places[:MOST_READINGS]:
        if blank := _BLANK_LINE.search(text, place):
            sql = text[place : blank.start()].strip()
            announced = _stands_behind(_LINE_START, text, place)
            yield Reading(sql, place, blank.start(), announced=announced)


def _stands_behind(pattern: re.Pattern[str], text: str, place: int) -> bool:
    return pattern.search(text, max(0, place - _BEFORE), place) is not None


def _starts_statement(body: str) -> bool:
    """Whether a statement starts here, comments before it allowed."""
    first = next(iter_code(body), None)
    return first is not None and _STATEMENT.match(body, first.start) is not None


def _other_starts(text: str) -> set[int]:
    """Where statements that are no queries start a line; elsewhere such a word is prose."""
    return {match.start(1) for match in _LINE_STATEMENT.finditer(text)}


def _ends(text: str, place: int) -> Iterator[int]:
    """Where a statement that starts at `place` may end: at the mark that closes the one before it,
    else at its own end."""
    fence = text.find("```", place)
    text = text if fence < 0 else text[:fence]
    for wrapper in _WRAPPERS:
        if text.endswith(wrapper, 0, place):
            closers = {text.find(wrapper, place), text.rfind(wrapper, place)}
            yield from sorted(at for at in closers if at > place)
            break
    yield place + _statement_end(text[place:])


def _statement_end(text: str) -> int:
    """Behind the semicolon that no other statement follows, before a closing tag, or the end."""
    for token, following in pairwise([*iter_code(text), None]):
        assert token is not None, "only the last of a pair can be none"
        written = text[token.start : token.end]
        if written == ";" and not (following and _STATEMENT.match(text, following.start)):
            return token.end
        if written == "<" and _CLOSING_TAG.match(text, token.start):
            return token.start
    return len(text)
