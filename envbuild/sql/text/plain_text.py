"""The quick way through ordinary SQL: a few regular expressions, no scanner.

Strings, quoted names and comments are taken out first and leave a hole. A text is plain when
nothing is left that only the scanner can judge: unfinished quotes, variables, blobs, numbers with
letters, type arguments, non-ASCII names. Whatever stands before the first such mark is plain, so
the tokens before it are found rightly and the mark is never overlooked.
"""

import re

from envbuild.sql.text.keywords import ALWAYS, BESIDE_OTHERS

STRING = r"'[^']*(?:''[^']*)*'"
COMMENT = r"--[^\n]*|/\*(?:[^*]|\*+[^*/])*\*+/"
QUOTED = r'"[^"]*(?:""[^"]*)*"|`[^`]*(?:``[^`]*)*`|\[[^\]]*\]'
HOLE, NAME = "\x01", "\x02"
"""Stand for a string and for a quoted name; a text that holds one itself is not plain."""

UNJUDGED = r"""["'`\[?:@#$]|/\*|[xX]\x01|[^\t\n\f\r\x01\x02\x20-\x7e]"""
"""Marks that make a text odd, once strings, quoted names and comments are out."""
TYPE_ARGUMENT = (
    r"[aA][sS][ \t\n\f\r]+[A-Za-z_][A-Za-z0-9_]*(?:[ \t\n\f\r]+[A-Za-z0-9_]+){0,4}"
    r"[ \t\n\f\r]*\([ \t\n\f\r]*[-+]?[0-9]"
)
# a leading character class lets `re` skip quickly; the lookbehind then wants a number's own start
_START = r"[.0-9](?<![0-9A-Za-z_][0-9])"
NUMBER = rf"{_START}(?:(?<=[0-9])[0-9_]*(?:\.[0-9_]*)?|[0-9][0-9_]*)"

_OPAQUE = re.compile(f"({STRING}|{QUOTED}|{COMMENT})")
_NUMBER = re.compile(NUMBER)
_LITERAL = re.compile(f"{NUMBER}|{HOLE}")
_UNJUDGED = re.compile(UNJUDGED)
_LETTERS = re.compile(rf"{_START}(?:(?<=[0-9])|[0-9])[0-9_.]*[A-Za-z_]")
_TYPE_ARGUMENT = re.compile(TYPE_ARGUMENT)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# a quoted function's name, a CTE with columns: what stands before a bracket is then to be judged
_BRACKETED = re.compile(r"\x02 ?\(|\) ?as (?:(?:not )?materialized )?\(|\) ?as\(", re.IGNORECASE)


def mask_plain(
    sql: str, *, keep_double: bool, skeleton: bool = False
) -> tuple[str, tuple[str, ...]] | None:
    """(masked text, literals) of a plain text; None where it is not plain.

    A text with double-quoted tokens counts as plain only if all of them are names: `keep_double`.
    With `skeleton` identifiers are masked too, and a text is plain only where every word alone
    tells what it is.
    """
    if HOLE in sql or NAME in sql:
        return None
    pieces = _OPAQUE.split(sql)
    strings: list[str] = []
    names: list[str] = []
    for place in range(1, len(pieces), 2):
        piece = pieces[place]
        first = piece[0]
        if first == "'":
            strings.append(piece)
            pieces[place] = HOLE
        elif first in "-/":
            pieces[place] = " "
        elif first == '"' and not keep_double:
            return None
        else:
            names.append(piece)
            pieces[place] = NAME
    bare = "".join(pieces)
    if _UNJUDGED.search(bare) or _LETTERS.search(bare):
        return None
    has_cast = "cast" in bare.lower()
    if has_cast and (skeleton or _TYPE_ARGUMENT.search(bare)):
        return None
    # what str.split cuts at is now what SQLite skips: the rest of Unicode's blanks are marks
    masked = " ".join(_NUMBER.sub("?", bare).split()).rstrip(" ;")
    if skeleton:
        try:
            masked = _mask_words(masked)
        except _NeedsNeighboursError:
            return None
    masked = masked.replace(HOLE, "?")
    found = _LITERAL.findall(bare)
    if strings:
        left = iter(strings)
        found = [next(left) if text == HOLE else text for text in found]
    if names:
        masked = masked.replace(NAME, "_") if skeleton else _put_back(masked, names)
    return masked, tuple(found)


def _put_back(masked: str, names: list[str]) -> str:
    pieces = masked.split(NAME)
    return "".join(piece + name for piece, name in zip(pieces, [*names, ""], strict=True))


class _NeedsNeighboursError(Exception):
    """A word is there that only its neighbours explain."""


def _mask_words(folded: str) -> str:
    """The text with its identifiers masked; blanks are single spaces by now."""
    if " ." in folded or ". " in folded or _BRACKETED.search(folded):
        raise _NeedsNeighboursError
    return _WORD.sub(_mask_word, folded)


def _mask_word(match: re.Match[str]) -> str:
    word, text, end = match[0], match.string, match.end()
    if text.startswith(("(", " ("), end):
        return word
    dotted = text[match.start() - 1 : match.start()] == "." or text[end : end + 1] == "."
    lowered = word.lower()
    if dotted or lowered not in ALWAYS:
        if lowered in BESIDE_OTHERS:
            raise _NeedsNeighboursError
        return "_"
    return word
