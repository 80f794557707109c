"""CREATE TABLE statements without the foreign keys that point outside a view.

Only the clause goes: everything else stays as written, comments too. The clause's grammar is
SQLite's (`REFERENCES parent (columns) ON … MATCH … DEFERRABLE …`, or the same behind
`FOREIGN KEY (columns)`, either one with its `CONSTRAINT name`).
"""

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import NamedTuple

from envbuild.sql.names import fold_name
from envbuild.sql.text.tokens import COMMENT, SPACE, Kind, iter_code, unquote

BLANKS = " \t\n\f\r"


def drop_references(sql: str, kept: Collection[str]) -> str:
    """`sql`, a CREATE TABLE statement, without foreign keys to tables other than `kept`.

    `kept` holds folded names. A key whose parent is written with a schema in front
    (`"public.companies"`) is taken by its last part, as the schema reader does.
    """
    clauses = _find_clauses(sql)
    if not clauses:
        return sql
    pieces: list[str] = []
    done, comma = 0, -1
    for clause in clauses:
        if not _is_kept(clause.parent, kept):
            if clause.left.startswith(","):
                comma = len(pieces) + 1
            elif comma > 0 and _code_at(sql, done) < clause.start:
                comma = -1
            elif comma > 0 and _code_behind(sql, clause.end) in (",", ")"):
                pieces[comma] = pieces[comma][1:]  # it stood there for a clause that goes as well
                comma = -1
            pieces += [sql[done : clause.start], clause.left]
            done = clause.end
    return "".join((*pieces, sql[done:]))


class _Clause(NamedTuple):
    """One foreign-key clause, the comma and blanks before it included."""

    start: int
    end: int
    left: str
    """What stands in its place when it goes."""
    parent: str


@lru_cache(maxsize=8192)  # a database's tables come up in view after view
def _find_clauses(sql: str) -> tuple[_Clause, ...]:
    if "references" not in sql.lower():
        return ()
    return tuple(_Reading(sql).clauses())


_NAMES = (Kind.WORD, Kind.QUOTED, Kind.STRING)
_TAILS = (
    *(
        tuple(f"on {event} {action}".split())
        for event in ("delete", "update", "insert")
        for action in ("set null", "set default", "no action", "cascade", "restrict")
    ),
    *(
        tuple(f"{deferrable} {when}".split())
        for deferrable in ("not deferrable", "deferrable")
        for when in ("initially deferred", "initially immediate", "")
    ),
)
"""What may follow the parent's columns, the longer one first; besides MATCH and a name."""


class _Reading:
    """One statement's tokens, walked once."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.code = list(iter_code(sql))
        self.words = [sql[token.start : token.end].lower() for token in self.code]

    def clauses(self) -> Iterator[_Clause]:
        place = before = 0  # `before`: where the token in front of `place` ends
        while place < len(self.code):
            found = self._clause(place)
            if found is None:
                before = self.code[place].end
                place += 1
                continue
            parent, behind = found
            start = before
            if place and self.words[place - 1] == ",":
                start = self.code[place - 1].start
            before = self.code[behind - 1].end
            following = self.words[behind][0] if behind < len(self.code) else ""
            lead = self.sql[start : self.code[place].start]
            left = _lead_left(lead, following)
            if lead[:1] != "," and left[-1:] not in tuple(BLANKS):
                left += _blank_before(self.sql, before)
            yield _Clause(start, before, left, parent)
            place = behind

    def _clause(self, place: int) -> tuple[str, int] | None:
        """(parent, the place behind) of the clause that starts at `place`, if one does."""
        if self._is(place, "constraint") and self._names(place + 1):
            place += 2
        if self._is(place, "foreign", "key"):
            place = self._columns(place + 2)
        if not self._is(place, "references") or not self._names(place + 1):
            return None
        parent = self.code[place + 1]
        place = self._columns(place + 2) or place + 2
        while behind := self._tail(place):
            place = behind
        return unquote(self.sql[parent.start : parent.end]), place

    def _is(self, place: int, *words: str) -> bool:
        return self.words[place : place + len(words)] == list(words)

    def _names(self, place: int) -> bool:
        return place < len(self.code) and self.code[place].kind in _NAMES

    def _columns(self, place: int) -> int:
        """The place behind a bracket of names that opens at `place`; 0 where none does."""
        if not self._is(place, "("):
            return 0
        for here in range(place + 1, len(self.code)):
            if self.words[here] == ")":
                return here + 1
            if self.words[here] == "(" or self.code[here].kind is Kind.ILLEGAL:
                break
        return 0

    def _tail(self, place: int) -> int:
        """The place behind what stands at `place` of a clause's rest; 0 where nothing does."""
        if self._is(place, "match") and self._names(place + 1):
            return place + 2
        return next((place + len(tail) for tail in _TAILS if self._is(place, *tail)), 0)


def _lead_left(lead: str, following: str) -> str:
    """What stays of the comma, blanks and comments before a clause that goes.

    A comment keeps its blanks, since a line comment needs its line end. SQLite lets constraints
    follow each other without a comma, and then it must stay for the next. `following`: the first
    character of the next token.
    """
    gap = lead.removeprefix(",")
    kept_gap = gap if gap.strip(BLANKS) else ""
    comma = lead.startswith(",") and following not in (",", ")")
    return "," + kept_gap if comma else kept_gap


def _blank_before(sql: str, at: int) -> str:
    """What keeps the token at `at` from growing together with the one before the clause."""
    return "" if sql[at : at + 1] in ("", ",", ")", *BLANKS) else " "


def _code_at(sql: str, at: int) -> int:
    """Where the first token from `at` on stands that is neither blank nor comment."""
    gap = _GAP.match(sql, at)
    return gap.end() if gap else at


def _code_behind(sql: str, at: int) -> str:
    """The character that `_code_at` finds; empty at the end."""
    start = _code_at(sql, at)
    return sql[start : start + 1]


def _is_kept(parent: str, kept: Collection[str]) -> bool:
    folded = fold_name(parent)
    return folded in kept or folded.rpartition(".")[2] in kept


_GAP = re.compile(rf"(?:{SPACE}|{COMMENT})*")
