"""Rows and names as an agent reads them.

A row is its cells joined by ` | `. NULL is `None`, a blob `X'00FF'`, an infinity `9e999`, all
as bare words. Text stands as it is unless it could be taken for something else or break the
layout: then it stands in single quotes, a quote doubled, with `\\n`, `\\r`, `\\t` and `\\xNN` for
control characters and `\\\\` for a backslash. Text is quoted where it is empty, begins or ends with
a blank, begins with a quote, is `None` or `NULL` in any case, looks like a blob, ends as a cell
does that was cut, or holds ` | `'s bar or a control character; and where it opens a row that would
read as a line of the protocol's own: `(no rows)`, `Error: …`, `columns: …`.
"""

import math
import re
from collections.abc import Iterable

from envbuild.records.execution import Row, Value

SEPARATOR = " | "
_NEEDS_QUOTES = re.compile(
    r"(?:null|none|x'.*|'.*|-?9e999|.*… \(\d+ (?:characters|bytes)\)|)\Z"
    r"|\s|.*(?:\s\Z|[|\x00-\x1f\x7f\x85\u2028\u2029])",
    re.IGNORECASE | re.DOTALL,
)
_OWN_WORDS = re.compile(
    r"\((?:no rows\)|the first \d+ row|some text is not|cut: \d)|columns: |Error: |Tool result\b"
    r"|\[\d+ tool turn|Exploration is over"
)
"""How lines begin that the protocol writes among or behind rows."""
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "''"}
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\\']")


def render_rows(rows: Iterable[Row], *, cell_characters: int) -> str:
    """One line a row."""
    return "\n".join(_render_row(row, characters=cell_characters) for row in rows)


def render_cell(cell: Value, *, characters: int, quoted: bool = False) -> str:
    """One cell, at most about `characters` long; a cut says how long the whole is.

    `quoted`: text is quoted in any case.
    """
    if cell is None:
        return "None"
    if isinstance(cell, bytes):
        shown = f"X'{cell[: characters // 2].hex().upper()}'"
        left = len(cell) > characters // 2
        return f"{shown}… ({len(cell)} bytes)" if left else shown
    if isinstance(cell, float) and not math.isfinite(cell):
        return "9e999" if cell > 0 else "-9e999"  # what SQLite reads back as the infinity
    if not isinstance(cell, str):
        return repr(cell)
    shown = cell[:characters]
    if quoted or _NEEDS_QUOTES.match(shown):
        shown = "'" + _ESCAPED.sub(_escape, shown) + "'"
    return f"{shown}… ({len(cell)} characters)" if len(cell) > characters else shown


def _render_row(row: Row, *, characters: int) -> str:
    cells = [render_cell(cell, characters=characters) for cell in row]
    if cells and _OWN_WORDS.match(cells[0]):
        cells[0] = render_cell(row[0], characters=characters, quoted=True)
    return SEPARATOR.join(cells)


def cap_text(text: str, characters: int) -> str:
    """`text`, cut at a line end where it is too long, with a sentence that says so."""
    if len(text) <= characters:
        return text
    cut = text.rfind("\n", characters // 2, characters)
    kept = text[: cut if cut > 0 else characters]
    return f"{kept}\n(cut: {len(kept)} of {len(text)} characters shown)"


def storable(text: str) -> str:
    """`text` with U+FFFD for each lone surrogate: what UTF-8, and so every file, can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _ESCAPES.get(character) or (
        f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"
    )
