"""The quick way through ordinary SQL: a few regular expressions, no scanner.

Strings, quoted names and comments are taken out first and leave a hole. A text is plain when
nothing is left that only the scanner can judge: unfinished quotes, variables, blobs, numbers with
letters, type arguments, non-ASCII names. Whatever stands before the first such mark is plain, so
the tokens before it are found rightly and the mark is never overlooked.
"""

import re

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


def mask_plain(sql: str, *, keep_double: bool) -> tuple[str, tuple[str, ...]] | None:
    """(masked text, literals) of a plain text with literals masked; None where it is not plain.

    A text with double-quoted tokens counts as plain only if all of them are names: `keep_double`.
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
    if "cast" in bare.lower() and _TYPE_ARGUMENT.search(bare):
        return None
    # what str.split cuts at is now what SQLite skips: the rest of Unicode's blanks are marks
    masked = " ".join(_NUMBER.sub("?", bare).split()).rstrip(" ;").replace(HOLE, "?")
    found = _LITERAL.findall(bare)
    if strings:
        left = iter(strings)
        found = [next(left) if text == HOLE else text for text in found]
    return (_put_back(masked, names) if names else masked), tuple(found)


def _put_back(masked: str, names: list[str]) -> str:
    pieces = masked.split(NAME)
    return "".join(piece + name for piece, name in zip(pieces, [*names, ""], strict=True))
