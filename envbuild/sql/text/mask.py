"""Masked gold SQL: literals become `?`, and with skeletons identifiers become `_` (CONTRACT 4).

A lexer's work, no parser's: text outside literals and comments is never respelled, and a query
that does not compile is masked as well as one that does. `mask_column` does the same for a
whole column; its texts must come out equal.
"""

import re
from enum import StrEnum
from typing import NamedTuple

from envbuild.sql.text import plain_text
from envbuild.sql.text.keywords import is_keyword_here
from envbuild.sql.text.lexemes import Lexeme, lexemes, type_places
from envbuild.sql.text.quoted import is_cte_with_columns, literal_places
from envbuild.sql.text.tokens import Kind


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

    @property
    def length(self) -> int:
        """Unicode characters of the masked text: what buckets are cut by."""
        return len(self.text)


LITERAL_KINDS = (Kind.STRING, Kind.NUMBER, Kind.BLOB)


def mask_sql(
    sql: str, *, identifiers: frozenset[str] | None = None, mode: str = MaskMode.LITERALS
) -> Masked:
    """The masked text and the literals of one query.

    `identifiers` are the database's names in any spelling: a double-quoted token that is none of
    them, and is not defined by the query itself, is a string, as it is for SQLite. Without them
    every double-quoted token counts as an identifier. Raises ValueError for an unknown mode.
    """
    mode = MaskMode(mode)
    masked = plain_text.mask_plain(
        sql, keep_double=identifiers is None, skeleton=mode is MaskMode.SKELETON
    )
    if masked is not None:
        return Masked(*masked)
    return scan_mask(sql, identifiers=identifiers, mode=mode)


def scan_mask(sql: str, *, identifiers: frozenset[str] | None, mode: MaskMode) -> Masked:
    """What `mask_sql` returns, by the scanner alone: the reference for every faster way."""
    code = lexemes(sql)
    types = type_places(code)
    strings = literal_places(code, identifiers) if identifiers is not None else frozenset()
    out: list[str] = []
    literals: list[str] = []
    for place, lexeme in enumerate(code):
        if lexeme.gap and out:
            out.append(" ")
        if place in strings or (lexeme.kind in LITERAL_KINDS and place not in types):
            literals.append(lexeme.text)
            out.append("?")
        elif mode is MaskMode.SKELETON and place not in types and _is_identifier(code, place):
            out.append("_")
        else:
            out.append(lexeme.text)
    return Masked(_ENDS.sub("", "".join(out)), tuple(literals))


_ENDS = re.compile(r"[ ;]+\Z")


def _is_identifier(code: list[Lexeme], place: int) -> bool:
    """A quoted name, or a bare word that is neither a keyword nor a function's name."""
    kind = code[place].kind
    if kind is Kind.WORD:
        if is_keyword_here(code, place):
            return False
    elif kind is not Kind.QUOTED:
        return False
    calls = place + 1 < len(code) and code[place + 1].text == "("
    return not calls or is_cte_with_columns(code, place)
