"""SQL text as SQLite's own tokenizer cuts it: a lexer, not a parser.

The rules are those of SQLite's tokenizer: an unterminated string or bracket runs to the end as one
illegal token, an unterminated `/*` comment to the end as a comment, and nothing is ever lost: the
tokens' texts joined are the text.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
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
    """One token: `text[start:end]`."""

    kind: Kind
    start: int
    end: int


ID_CHARACTER = r"[0-9A-Za-z_$\x80-\U0010ffff]"
"""What may follow in a bare identifier."""
# Python 3.11.0 to 3.11.2 misread possessive quantifiers and atomic groups: a lookahead says where
# a token ends, wherever a shorter match would be another token.
SPACE = r"[ \t\n\f\r][ \t\n\v\f\r]*|\ufeff"
COMMENT = r"--[^\n]*|/\*(?=[\s\S])[\s\S]*?(?:\*/|\Z)"
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
        yield Token(_KINDS[match.lastindex or 0], match.start(), match.end())


def iter_code(sql: str) -> Iterator[Token]:
    """The tokens that mean something: no blanks, no comments."""
    for token in iter_tokens(sql):
        if token.kind is not Kind.SPACE and token.kind is not Kind.COMMENT:
            yield token


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


@cache
def _scanner() -> re.Pattern[str]:
    patterns = {Kind.WORD: _MALFORMED_BLOB + r"(?!\ufeff)" + WORD, **PATTERNS}
    patterns[Kind.ILLEGAL] = ILLEGAL
    return re.compile("|".join(f"({patterns[kind]})" for kind in _ORDER))
