"""Gold SQL whose windows are ordered to the end: rows that tie get the order in which they arrive.

`ROW_NUMBER() OVER (ORDER BY amount)` numbers rows of one amount as SQLite meets them. With a last
term `random()` behind the window's own ones the tied rows stand in the order that this function
gives, and nothing else changes; run in several orders (`conditions.ReorderedSession`), a query
that the data determine gives one result. The text is spliced, not rendered anew.
"""

from collections.abc import Iterator
from typing import NamedTuple

from envbuild.sql.names import fold_name
from envbuild.sql.text.tokens import Kind, Token, iter_code, unquote

_BY_POSITION = frozenset(("row_number", "ntile", "lag", "lead"))
"""Functions of a row's position: they know neither frame nor peers."""
_BY_PEERS = frozenset(("rank", "dense_rank", "percent_rank", "cume_dist"))
"""Functions that count rows which tie as one place, whatever the frame says."""
_STARTS = frozenset(("partition", "order", "rows", "range", "groups"))
_FRAMES = frozenset(("rows", "range", "groups"))


def break_window_ties(sql: str) -> str | None:
    """`sql` with ties broken inside its windows by `random()`; None where no window allows it.

    Left alone is a window under which rows that tie count as peers (`RANK`, a RANGE or GROUPS
    frame): one more term would change what the query means.
    """
    windows = _Windows(sql)
    places = sorted({place for place in windows.places() if place}, reverse=True)
    for position, ordered in places:
        lead = ", " if ordered else " ORDER BY "
        sql = f"{sql[:position]}{lead}random() {sql[position:]}"
    return sql if places else None


class _Place(NamedTuple):
    """Where a term of a window's ORDER BY may be added."""

    position: int
    ordered: bool
    """Other terms stand before it."""


class _Window(NamedTuple):
    """One window definition between its parentheses."""

    base: str
    """The folded name of the window it is built on; empty without one."""
    place: _Place
    frame: str
    """The folded words of the frame; empty without one."""


class _Windows:
    """The window definitions of one text, and the functions that use them."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = list(iter_code(sql))
        self._words = [self._word(token) for token in self._tokens]

    def places(self) -> Iterator[_Place | None]:
        """Where every use of a window bears one term more; None where one does not."""
        named = dict(self._named())
        uses: dict[str, list[bool]] = {name: [] for name in named}
        for number, word in enumerate(self._words[:-1]):
            function = self._function_before(number) if word == "over" else ""
            if not function:
                continue
            if self._words[number + 1] != "(":
                name = self._name(number + 1)
                if name in named:
                    uses[name].append(_bears_more(function, named[name].frame))
                continue
            window = self._window(number + 1)
            bears = _bears_more(function, window.frame)
            if window.base in named:
                uses[window.base].append(bears)
                bears = bears and not named[window.base].place.ordered
            yield window.place if bears and not window.base else None
        for name, window in named.items():
            yield window.place if uses[name] and all(uses[name]) and not window.base else None

    def _named(self) -> Iterator[tuple[str, _Window]]:
        """`WINDOW a AS (…), b AS (…)`: every definition by its folded name."""
        number = 0
        while number < len(self._words) - 3:
            listed = self._words[number] == "window"
            number += 1
            while listed and self._words[number + 1 : number + 3] == ["as", "("]:
                yield self._name(number), self._window(number + 2)
                closing = self._closing(number + 2)
                listed = self._words[closing + 1 : closing + 2] == [","]
                number = closing + 2

    def _window(self, opening: int) -> _Window:
        closing = self._closing(opening)
        place = self._tokens[closing].start if closing < len(self._tokens) else len(self._sql)
        inner = self._level(opening, closing)
        words = [self._words[number] for number in inner]
        based = bool(inner) and words[0] not in _STARTS
        frame = next((at for at, word in enumerate(words) if at and word in _FRAMES), len(words))
        if words[:1] and words[0] in _FRAMES:
            frame = 0
        if frame < len(words):
            place = self._tokens[inner[frame]].start
        return _Window(
            base=self._name(inner[0]) if based else "",
            place=_Place(place, "order" in words[:frame]),
            frame=" ".join(words[frame:]),
        )

    def _function_before(self, over: int) -> str:
        """The folded name of the function that an OVER belongs to; empty where it is no such."""
        closing = over - 1
        opening = self._opening(closing)
        if opening > 0 and self._words[opening - 1] == "filter":
            closing = opening - 2
            opening = self._opening(closing)
        return self._name(opening - 1) if opening > 0 else ""

    def _level(self, opening: int, closing: int) -> list[int]:
        """The tokens between two parentheses that stand in no further ones."""
        depth, found = 0, []
        for number in range(opening + 1, closing):
            depth += self._words[number] == "("
            if depth == 0:
                found.append(number)
            depth -= self._words[number] == ")"
        return found

    def _closing(self, opening: int) -> int:
        depth = 0
        for number in range(opening, len(self._words)):
            depth += (self._words[number] == "(") - (self._words[number] == ")")
            if depth == 0:
                return number
        return len(self._words)

    def _opening(self, closing: int) -> int:
        """The parenthesis that a closing one closes; 0 where the token is none."""
        depth = 0
        for number in range(closing, 0, -1):
            depth += (self._words[number] == ")") - (self._words[number] == "(")
            if depth == 0:
                return number if number < closing else 0
        return 0

    def _word(self, token: Token) -> str:
        text = self._sql[token.start : token.end]
        return text.lower() if token.kind in (Kind.WORD, Kind.OPERATOR) else ""

    def _name(self, number: int) -> str:
        token = self._tokens[number]
        return fold_name(unquote(self._sql[token.start : token.end]))


def _bears_more(function: str, frame: str) -> bool:
    """Whether one more term of its window's ORDER BY only orders what ties for this function."""
    if function in _BY_POSITION:
        return True
    if function in _BY_PEERS or "exclude group" in frame or "exclude ties" in frame:
        return False
    from_first = not frame or "unbounded preceding" in frame
    return frame.startswith("rows") or (function == "first_value" and from_first)
