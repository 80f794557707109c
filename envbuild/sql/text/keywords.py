"""Which bare words are keywords of a query, as opposed to names that merely look like one."""

from envbuild.sql.text.lexemes import Lexeme
from envbuild.sql.text.tokens import Kind

_ALWAYS = """all and as asc between by case cast collate cross current_date current_time
current_timestamp desc distinct else end escape except exists false filter from full glob
group having in indexed inner intersect is isnull join left like limit match materialized
natural not notnull null offset on or order outer over partition recursive regexp returning
right select then true union unique using values when where window with within"""
ALWAYS = frozenset(_ALWAYS.split())
"""Words that a SELECT reads as keywords wherever a name does not have to stand."""

_FRAME_WORDS = frozenset(["between", "unbounded", "current"])
_FRAME = frozenset(["rows", "range", "groups"])
_BOUNDS = frozenset(["preceding", "following", "unbounded", "exclude", "ties", "others"])


def is_keyword_here(code: list[Lexeme], place: int) -> bool:
    """True where the bare word at `place` acts as a keyword.

    SQLite lets many keywords be names (`key`, `first`, `rows`, …); those are told by what stands
    beside them. A word next to a dot is a name.
    """
    word = code[place].text.lower()
    before = code[place - 1].text.lower() if place else ""
    following = code[place + 1] if place + 1 < len(code) else Lexeme(Kind.ILLEGAL, "", 0)
    after = following.text.lower()
    if before == "." or after == ".":
        return False
    if word in ALWAYS:
        return True
    if word in ("first", "last"):
        return before == "nulls"
    if word == "nulls":
        return after in ("first", "last")
    if word == "row":
        return before == "current" or after == ")"
    if word == "current":
        return after == "row"
    if word in _FRAME:
        return after in _FRAME_WORDS or following.kind in (Kind.NUMBER, Kind.VARIABLE)
    if word in _BOUNDS or word == "no":
        return _beside_a_bound(before, after)
    return False


def _beside_a_bound(before: str, after: str) -> bool:
    words = _BOUNDS | _FRAME | {"between", "and", "no", "current", "row", "group", ")", "exclude"}
    return after in words or before in words
