"""Double-quoted tokens: names where they resolve to one, else strings, as SQLite takes them."""

from collections.abc import Iterator
from functools import lru_cache

from envbuild.sql.names import fold_name
from envbuild.sql.text.keywords import ALWAYS, is_keyword_here
from envbuild.sql.text.lexemes import Lexeme, type_places
from envbuild.sql.text.tokens import Kind, unquote

ROWID_NAMES = frozenset(("rowid", "oid", "_rowid_"))
_NAME_FOLLOWS = frozenset(("as", "from", "join", "collate", "with", "recursive", "window", "over"))
"""Keywords behind which a quoted token is a name, whatever it resolves to."""
_VALUES = frozenset(("end", "null", "true", "false"))
"""Keywords that end an operand, so that a name behind them is an alias."""


def literal_places(code: list[Lexeme], identifiers: frozenset[str]) -> frozenset[int]:
    """Positions of the double-quoted tokens that are strings in a database of these names."""
    quoted = [
        place
        for place, lexeme in enumerate(code)
        if lexeme.kind is Kind.QUOTED and lexeme.text[0] == '"'
    ]
    if not quoted:
        return frozenset()
    known = _folded(identifiers)
    defined = set(_defined_names(code))
    return frozenset(
        place
        for place in quoted
        if not _must_be_a_name(code, place)
        and (name := fold_name(unquote(code[place].text))) not in known
        and name not in defined
    )


def is_cte_with_columns(code: list[Lexeme], place: int) -> bool:
    """True for the name in `WITH c(a, b) AS (…`: it stands before a bracket and is no function."""
    if not place or code[place - 1].text.lower() not in ("with", "recursive", ","):
        return False
    depth = 0
    for here in range(place + 1, len(code)):
        text = code[here].text
        depth += (text == "(") - (text == ")")
        if depth == 0:
            return opens_body(code, here + 1)
    return False


def _must_be_a_name(code: list[Lexeme], place: int) -> bool:
    """Beside a dot, before a bracket, behind AS or FROM, or where only an alias can stand."""
    before = code[place - 1].text.lower() if place else ""
    after = code[place + 1].text if place + 1 < len(code) else ""
    return after in (".", "(") or before == "." or before in _NAME_FOLLOWS or _is_alias(code, place)


def _is_alias(code: list[Lexeme], place: int) -> bool:
    """A name right behind AS or behind a finished operand: nothing else can stand there."""
    if not place:
        return False
    lexeme = code[place - 1]
    word = lexeme.text.lower()
    if lexeme.kind is Kind.WORD:
        return word == "as" or word in _VALUES or word not in ALWAYS
    return word == ")" or lexeme.kind not in (Kind.OPERATOR, Kind.ILLEGAL)


def _defined_names(code: list[Lexeme]) -> Iterator[str]:
    """Names the query itself defines: aliases, CTEs, their columns, windows; folded."""
    types = type_places(code)
    for place, lexeme in enumerate(code):
        if lexeme.text == ")" and code[place + 1 : place + 2] and opens_body(code, place + 1):
            yield from _bracketed_names(code, place)
        elif (
            _can_name(code, place)
            and place not in types
            and (_is_alias(code, place) or opens_body(code, place + 1))
        ):
            yield fold_name(unquote(lexeme.text))


def _can_name(code: list[Lexeme], place: int) -> bool:
    kind = code[place].kind
    if kind is Kind.WORD:
        return not is_keyword_here(code, place)
    return kind is Kind.QUOTED or kind is Kind.STRING


def opens_body(code: list[Lexeme], place: int) -> bool:
    """`AS (`, `AS MATERIALIZED (` or `AS NOT MATERIALIZED (` starts at `place`: a CTE or window."""
    words = [lexeme.text.lower() for lexeme in code[place : place + 3]]
    return words[:2] == ["as", "("] or (words[:1] == ["as"] and "materialized" in words[1:])


def _bracketed_names(code: list[Lexeme], close: int) -> Iterator[str]:
    """The names between a bracket that closes at `close` and its opening: a CTE's columns."""
    depth = 0
    for place in range(close, -1, -1):
        text = code[place].text
        depth += (text == ")") - (text == "(")
        if depth == 0:
            return
        if depth > 1 or code[place].kind not in (Kind.QUOTED, Kind.WORD, Kind.OPERATOR):
            return
        if code[place].kind is not Kind.OPERATOR:
            yield fold_name(unquote(code[place].text))


@lru_cache(maxsize=64)
def _folded(identifiers: frozenset[str]) -> frozenset[str]:
    return ROWID_NAMES.union(fold_name(name) for name in identifiers)
