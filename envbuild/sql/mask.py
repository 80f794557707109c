"""Masked gold SQL: literals become `?`, and with skeletons identifiers become `_` (CONTRACT 4).

A lexer's work, no parser's: text outside literals and comments is never respelled, and a query
that does not compile is masked as well as one that does.
"""

import re
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from envbuild.sql.from_names import cte_places, literal_places
from envbuild.sql.names import is_keyword_here
from envbuild.sql.tokens import (
    BLOB,
    COMMENT,
    ILLEGAL,
    NUMBER,
    OPERATOR,
    QUOTED,
    SPACE,
    STRING,
    VARIABLE,
    WORD,
    Kind,
    Token,
    iter_code,
    type_places,
)


class MaskMode(StrEnum):
    """What is masked."""

    LITERALS = "literals"
    SKELETON = "skeleton"
    """Identifiers too; function names, keywords and types stay."""


class Masked(NamedTuple):
    """A masked query and what was taken out of it."""

    text: str
    literals: tuple[str, ...]
    """As written, in order."""
    names: tuple[str, ...] = ()
    """The identifiers that a skeleton lacks, as written, in order."""

    @property
    def length(self) -> int:
        """Unicode characters of the masked text: what buckets are cut by."""
        return len(self.text)


def mask_sql(
    sql: str, *, identifiers: frozenset[str] | None = None, mode: str = MaskMode.LITERALS
) -> Masked:
    """The masked text and the literals of one query.

    `identifiers` are the database's names in any spelling: a double-quoted token that is none of
    them, and is not defined by the query itself, is a string, as it is for SQLite. Without them
    every double-quoted token counts as an identifier. Raises ValueError for an unknown mode.
    """
    mode = MaskMode(mode)
    is_skeleton = mode is MaskMode.SKELETON
    types, strings, names = frozenset[int](), frozenset[int](), frozenset[int]()
    if is_skeleton or "cast" in sql.lower() or (identifiers is not None and '"' in sql):
        code = list(iter_code(sql))
        type_words = type_places(code)
        types = frozenset(code[place].start for place in type_words)
        if identifiers is not None:
            strings = frozenset(code[at].start for at in literal_places(code, identifiers))
        if is_skeleton:
            ctes = cte_places(code)
            found = (at for at in range(len(code)) if _is_identifier(code, at, ctes))
            names = frozenset(code[at].start for at in found if at not in type_words)
    literals: list[str] = []
    taken: list[str] = []

    def stand_in(match: re.Match[str]) -> str:
        start, text = match.start(), match[0]
        if match.lastindex == _GAP:
            return " "
        if start in strings or (match.lastindex == _LITERAL and start not in types):
            literals.append(text)
            return "?"
        if start in names:
            taken.append(text)
            return "_"
        return text

    masked = _pieces(words_apart=is_skeleton).sub(stand_in, sql)
    return Masked(masked.lstrip(" ").rstrip(" ;"), tuple(literals), tuple(taken))


_GAP, _LITERAL = 1, 2


@cache
def _pieces(*, words_apart: bool) -> re.Pattern[str]:
    """A gap, a literal, or what stays, which is as long a piece as can be unless `words_apart`."""
    word = rf"(?![xX]'|\ufeff){WORD}"
    stays = rf"{word}|[*+%=<>|&~,;()!]|-(?!-)|/(?!\*)|\.(?![0-9])| (?![ \t\n\v\f\r\ufeff/-])"
    stays = word if words_apart else f"(?:{stays})+"
    return re.compile(
        f"((?:{SPACE}|{COMMENT})+)|({BLOB}|{STRING}|{NUMBER})"
        rf"|{stays}|{QUOTED}|{VARIABLE}|{OPERATOR}|{ILLEGAL}"
    )


def _is_identifier(code: list[Token], place: int, ctes: frozenset[int]) -> bool:
    """A quoted name, or a bare word that is neither a keyword nor a function's name."""
    kind = code[place].kind
    if kind is Kind.WORD:
        if is_keyword_here(code, place):
            return False
    elif kind is not Kind.QUOTED:
        return False
    calls = place + 1 < len(code) and code[place + 1].text == "("
    return not calls or place in ctes  # the name in `WITH c(a, b) AS (…` is no function's
