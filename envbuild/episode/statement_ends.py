"""Where a statement ends that starts somewhere in what a policy wrote.

At the mark that closes the one before it (quotes, brackets, a fence), at its semicolon, before a
closing tag, at a blank line or a line of prose, or where the text ends; marks in the statement's
own literals and comments are its text.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, pairwise

from envbuild.sql.text.tokens import Kind, Token, iter_tokens

_FENCE_MARK = re.compile(r"```|\n~~~")
_WITH = r"with\s+(?:recursive\b|(?:\"[^\"]+\"|`[^`]+`|\[[^\]]+\]|\w+)\s*(?:\([^()]*\)\s*)?as\b)"
QUERY = re.compile(rf"(?<![\w.])(?:select\b|values\b|{_WITH})", re.IGNORECASE)
"""Where a query starts."""
OTHER = r"(?:explain|insert|replace|update|delete|create|drop|alter|pragma|attach)\b"
"""How a statement starts that is no query."""
STATEMENT = re.compile(rf"{QUERY.pattern}|{OTHER}", re.IGNORECASE)
OPENED = re.compile(r"(?:\\?\b\w*[({\[]\s*|[({\[]\s*)+\Z")
"""Brackets that stand open, a word or a LaTeX command before each."""
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_PROSE = re.compile(
    r"\*\*|#|(?!(?i:from|where|and|or|order|group|having|limit|offset|union|except|intersect|join"
    r"|left|right|full|inner|outer|cross|natural|on|using|as|when|then|else|end|not|in|is|between"
    r"|like|collate|window|desc|asc|select|values)\b)[A-Z][a-z']*(?:[:,]| [a-z])"
)
"""How a line starts that no statement goes on with."""
_CLOSING_TAG = re.compile(r"</\w")
_NO_CODE = (Kind.SPACE, Kind.COMMENT)
_BEFORE = 100
"""Characters before a place that tell what it stands behind."""
WRAPPERS = {
    **{same: same for same in ('"""', "'''", "**", "*", "`", '"', "'", "$$", "$")},
    **{"“": "”", "‘": "’", "«": "»"},
}
"""Marks around a statement, and what closes each."""
_BRACKETS = {"(": ")", "{": "}", "[": "]"}


def iter_ends(text: str, place: int) -> Iterator[int]:
    """Where a statement that starts at `place` may end: at the mark that closes the one before it,
    else at its own end."""
    for stop in _fence_marks(text, place):
        yield from _ends_before(text[:stop], place)


def paragraph_end(text: str, place: int) -> int | None:
    """Where a blank line or a line of prose first follows `place`, in no literal."""
    for token in tokens_of(text[place:]):
        start, end = place + token.start, place + token.end
        if token.kind is Kind.SPACE and "\n" in text[start:end]:
            if blank := _BLANK_LINE.search(text, start, end):
                return blank.start()
            if _PROSE.match(text, end):
                return start
    return None


def closing_bracket(text: str, place: int, opener: str) -> int | None:
    """Where the bracket closes that stands open before `place`; None where it does not."""
    depth, closer = 0, _BRACKETS[opener]
    for token in _code_of(text[place:]):
        written = text[place + token.start : place + token.end]
        if written == closer and depth == 0:
            return place + token.start
        depth += (written == opener) - (written == closer)
    return None


def is_closed(text: str, place: int, token: Token) -> bool:
    """Whether this is a literal or a comment, with an end of its own."""
    if token.kind is Kind.COMMENT:
        written = text[place + token.start : place + token.end]
        return written.startswith("--") or written.endswith("*/")
    return token.kind in (Kind.STRING, Kind.QUOTED)


def search_before(pattern: re.Pattern[str], text: str, place: int) -> re.Match[str] | None:
    """The pattern in the few words before a place."""
    return pattern.search(text, max(0, place - _BEFORE), place)


@lru_cache(maxsize=4)
def tokens_of(text: str) -> tuple[Token, ...]:
    """A text's tokens; several look at the same one after the other."""
    return tuple(iter_tokens(text))


def _fence_marks(text: str, place: int) -> Iterator[int]:
    """Where the fence ends that a statement may stand in: at the first mark that is in none of its
    literals and comments, else at the text's end; then at the first mark."""
    first = None
    for token in tokens_of(text[place:]) if _FENCE_MARK.search(text, place) else ():
        start, end = place + token.start, place + token.end
        if (mark := _FENCE_MARK.search(text, start, end + 3)) and mark.start() < end:
            first = mark.start() if first is None else first
            if mark.start() == start or not is_closed(text, place, token):
                yield mark.start()
                break
    else:
        yield len(text)
    if first is not None:
        yield first


def _ends_before(text: str, place: int) -> Iterator[int]:
    opened = search_before(OPENED, text, place)
    if opened and (end := closing_bracket(text, place, opened[0].rstrip()[-1])) is not None:
        yield end
    for wrapper, closer in WRAPPERS.items():
        if text.endswith(wrapper, 0, place):
            closers = {text.find(closer, place), text.rfind(closer, place)}
            yield from sorted(at for at in closers if at > place)
            break
    yield place + _statement_end(text[place:])


def _code_of(text: str) -> Iterator[Token]:
    return (token for token in tokens_of(text) if token.kind not in _NO_CODE)


def _statement_end(text: str) -> int:
    """Behind the semicolon that no other statement follows, before a closing tag, or the end."""
    for token, following in pairwise(chain(_code_of(text), (None,))):
        assert token is not None, "only the last of a pair can be none"
        written = text[token.start : token.end]
        if written == ";" and not (following and STATEMENT.match(text, following.start)):
            return token.end
        if written == "<" and _CLOSING_TAG.match(text, token.start):
            return token.start
    return len(text)
