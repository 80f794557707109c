"""SQL text as SQLite's own tokenizer cuts it: tokens, statements, differences; no parser.

An unterminated string or bracket runs to the end as one illegal token, an unterminated `/*` comment
to the end as a comment, and nothing is ever lost: the tokens' texts joined are the text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from itertools import pairwise, takewhile
from typing import NamedTuple


class Kind(StrEnum):
    """What a token is."""

    SPACE = "space"
    """Blanks, or a byte-order mark where a token starts."""
    COMMENT = "comment"
    STRING = "string"
    """`'…'`; `''` inside is one quote."""
    BLOB = "blob"
    """`x'…'`."""
    NUMBER = "number"
    """Decimal, hex or with an exponent; `_` may separate digits. Never signed."""
    WORD = "word"
    """A bare identifier or a keyword."""
    QUOTED = "quoted"
    """`"…"`, backticks or `[…]`: an identifier, or a string where `"…"` resolves to nothing."""
    VARIABLE = "variable"
    """`?`, `?1`, `:a`, `@a`, `$a`, `#a`, `$a::b(c)`."""
    OPERATOR = "operator"
    ILLEGAL = "illegal"
    """What no rule takes: the statement cannot compile."""


class Token(NamedTuple):
    """One token."""

    kind: Kind
    text: str
    start: int
    """Its place in the text it was cut from."""

    @property
    def end(self) -> int:
        """The place behind it."""
        return self.start + len(self.text)


ID_CHARACTER = r"[0-9A-Za-z_$\x80-\U0010ffff]"
"""What may follow in a bare identifier."""
# Python 3.11.0 to 3.11.2 misread possessive quantifiers and atomic groups: a lookahead says where
# a token ends, wherever a shorter match would be another token.
SPACE = r"[ \t\n\f\r][ \t\n\v\f\r]*|\ufeff"
COMMENT = r"--[^\n]*(?![^\n])|/\*(?=[\s\S])[^*]*(?:\*(?!/)[^*]*)*(?:\*/|\Z)"
BLANKS = " \t\n\v\f\r\ufeff"
GAP = rf"[{BLANKS}]*(?:(?:{COMMENT})[{BLANKS}]*)*"
"""Blanks and comments; no part of it also matches less, which would look into a comment."""
STRING = r"'[^']*(?:''[^']*)*'(?!')"
BLOB = r"[xX]'(?:[0-9a-fA-F]{2})*'"
_DIGITS = (
    r"(?:0[xX][0-9a-fA-F][0-9a-fA-F_]*"
    r"|(?:[0-9][0-9_]*(?:\.[0-9_]*|(?!\.))|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9][0-9_]*)?)"
)
NUMBER = rf"{_DIGITS}(?!{ID_CHARACTER})"
WORD = rf"[A-Za-z_\x80-\U0010ffff]{ID_CHARACTER}*"
QUOTED = r'"[^"]*(?:""[^"]*)*"(?!")|`[^`]*(?:``[^`]*)*`(?!`)|\[[^\]]*\]'
VARIABLE = (
    rf"\?[0-9]*|[@#:$](?:::)*{ID_CHARACTER}(?:{ID_CHARACTER}|::)*"
    rf"(?:\([^) \t\n\v\f\r]*\)|(?!\(|::|{ID_CHARACTER}))"
)
OPERATOR = r"->>?|\|\||<[=>]|<<|>[=>]|==|!=|[-+*/%=<>|&~,;()]|\.(?![0-9])"
# What remains, as far as SQLite takes it: a malformed blob to its quote, a number with letters
# behind it, an unfinished quote to the end, a variable without a name, any other character.
ILLEGAL = (
    r"[xX]'[^']*'?"
    rf"|{_DIGITS}{ID_CHARACTER}+"
    r"|['\"`\[][\s\S]*"
    rf"|[@#:$](?:::)*(?:{ID_CHARACTER}(?:{ID_CHARACTER}|::)*\([^) \t\n\v\f\r]*)?"
    r"|[\s\S]"
)
PATTERNS = {
    Kind.SPACE: SPACE,
    Kind.COMMENT: COMMENT,
    Kind.BLOB: BLOB,
    Kind.STRING: STRING,
    Kind.NUMBER: NUMBER,
    Kind.QUOTED: QUOTED,
    Kind.VARIABLE: VARIABLE,
    Kind.OPERATOR: OPERATOR,
}
"""Every legal kind but WORD, which must come after BLOB and be kept from a malformed one."""
_MALFORMED_BLOB = r"(?![xX]')"


def iter_tokens(sql: str) -> Iterator[Token]:
    """The tokens of `sql` in order, blanks and comments included."""
    for match in _scanner().finditer(sql):
        yield Token(_KINDS[match.lastindex or 0], match[0], match.start())


def iter_code(sql: str) -> Iterator[Token]:
    """The tokens that mean something: no blanks, no comments."""
    # not by way of iter_tokens: every view's DDL and every masked query comes through here
    for match in _scanner().finditer(sql):
        if match.lastindex not in _BLANK_GROUPS:
            yield Token(_KINDS[match.lastindex or 0], match[0], match.start())


def unquote(text: str) -> str:
    """The name or value inside a quoted token; a bare word is returned as it is."""
    quote = text[:1]
    if quote == "[":
        return text[1:-1]
    if quote in ('"', "`", "'") and quote:
        return text[1:-1].replace(quote * 2, quote)
    return text


_ORDER = (Kind.WORD, *PATTERNS, Kind.ILLEGAL)
_KINDS = (Kind.ILLEGAL, *_ORDER)
_BLANK_GROUPS = (_KINDS.index(Kind.SPACE), _KINDS.index(Kind.COMMENT))


@cache
def _scanner() -> re.Pattern[str]:
    patterns = {Kind.WORD: _MALFORMED_BLOB + r"(?!\ufeff)" + WORD, **PATTERNS}
    patterns[Kind.ILLEGAL] = ILLEGAL
    return re.compile("|".join(f"({patterns[kind]})" for kind in _ORDER))


def closing_brackets(code: list[Token]) -> dict[int, int]:
    """Position of each opening bracket -> that of its closing one; those never closed left out."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for place, token in enumerate(code):
        if token.text == "(":
            opened.append(place)
        elif token.text == ")" and opened:
            closing[opened.pop()] = place
    return closing


def type_places(code: list[Token]) -> frozenset[int]:
    """Positions of the words, numbers and brackets of each type name in `CAST(… AS type)`."""
    places: list[int] = []
    casts: list[bool] = []  # for each open bracket: CAST's own?
    in_type = 0  # brackets open when the type began; 0: not in one
    for place, token in enumerate(code):
        text = token.text
        if text == "(" and token.kind is Kind.OPERATOR:
            casts.append(place > 0 and code[place - 1].text.lower() == "cast")
        elif text == ")" and token.kind is Kind.OPERATOR and casts:
            if in_type == len(casts):
                in_type = 0
            casts.pop()
        if in_type:
            places.append(place)
        elif token.kind is Kind.WORD and casts and casts[-1] and text.lower() == "as":
            in_type = len(casts)
    return frozenset(places)


_MARKS = re.compile(
    r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)"""
    rf"|{COMMENT}|;"
)
_NO_CODE = re.compile(GAP)
_WORD_ENDS = rf"(?!{ID_CHARACTER}){GAP}"
_TRIGGER = re.compile(
    rf"{GAP}(?:explain{_WORD_ENDS})?create{_WORD_ENDS}(?:temp(?:orary)?{_WORD_ENDS})*"
    rf"trigger(?!{ID_CHARACTER})",
    re.IGNORECASE,
)
_TRIGGER_END = re.compile(rf"{GAP}end{GAP}", re.IGNORECASE)


def split_statements(text: str) -> list[str]:
    """The statements of `text` in order, without their closing `;`, comments kept.

    A trigger's body holds semicolons: it ends at `; END ;`. Comments stand with the statement they
    precede; pieces of nothing but comments are left out. A "trigger" that never ends (another
    dialect's) is cut at its first `;`, so that what follows it is not lost.
    """
    ends = [mark.start() for mark in _MARKS.finditer(text) if mark[0] == ";"] + [len(text)]
    trigger_ends: list[int] = []
    if "trigger" in text.lower():
        pieces = enumerate(pairwise(ends), 1)
        trigger_ends = [n for n, (a, b) in pieces if _TRIGGER_END.fullmatch(text, a + 1, b)]
    statements = []
    start = place = 0
    while place < len(ends):
        following = bisect_right(trigger_ends, place)
        if following < len(trigger_ends) and _TRIGGER.match(text, start):
            place = trigger_ends[following]
        if not _NO_CODE.fullmatch(text, start, ends[place]):
            statements.append(text[start : ends[place]].strip())
        start, place = ends[place] + 1, place + 1
    return statements


_OPTIONAL = frozenset(("as", "inner", "outer"))
"""Words whose presence changes nothing."""
_SAME = {"!=": "<>", "==": "="}


def changed_stretch(before: str, after: str) -> tuple[int, int]:
    """(start, end) in `after` of what differs from `before`, token by token.

    Case, spacing, comments, quotes around names and optional words do not count. An empty
    stretch stands where something was only left out.
    """
    old, new = _words(before), _words(after)
    sides = [[word for word, _ in side] for side in (old, new)]
    same = _shared(*sides)
    tail = _shared(*(side[same:][::-1] for side in sides))
    changed = [token for _, token in new[same : len(new) - tail]]
    if changed:
        return changed[0].start, changed[-1].end
    place = new[same][1].start if same < len(new) else len(after)
    return place, place


def _shared(one: list[str], other: list[str]) -> int:
    """How many words both begin with."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _words(sql: str) -> list[tuple[str, Token]]:
    folded = (
        (unquote(token.text).casefold(), token) for token in iter_code(sql.rstrip().rstrip(";"))
    )
    return [(_SAME.get(word, word), token) for word, token in folded if word not in _OPTIONAL]
