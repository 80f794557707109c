"""CREATE TABLE statements without the foreign keys that point outside a view.

Only the clause goes: everything else stays as written, comments too. The clause's grammar is
SQLite's (`REFERENCES parent (columns) ON … MATCH … DEFERRABLE …`, or the same behind
`FOREIGN KEY (columns)`, either one with its `CONSTRAINT name`).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from envbuild.sql.names import fold_name
from envbuild.sql.tokens import (
    COMMENT,
    ID_CHARACTER,
    QUOTED,
    SPACE,
    STRING,
    WORD,
    unquote,
)

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
    return tuple(_iter_clauses(sql))


_NO_COLUMN = frozenset("(['\"`]")
"""Another bracket, or a quote that never ends."""
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


_MARKS = re.compile(
    f"{COMMENT}|{STRING}|{QUOTED}|constraint(?!{ID_CHARACTER})"
    f"|foreign(?!{ID_CHARACTER})|references(?!{ID_CHARACTER})"
)
"""Comments, what else may hide a word, and the words that a clause starts with: of a folded text.

No groups, so that every branch starts with a literal and `re` can skip to the next one.
"""
_IN_WORD = re.compile(ID_CHARACTER)


def _iter_clauses(sql: str) -> Iterator[_Clause]:
    done = 0
    comments: dict[int, int] = {}  # where one ends -> where it starts
    for mark in _MARKS.finditer(fold_name(sql)):
        start, first = mark.start(), mark[0][0]
        if first in "-/":
            comments[mark.end()] = start
        if first not in "cfr" or start < done or (start and _IN_WORD.match(sql, start - 1)):
            continue
        found = _Reading(sql, start).clause()
        if found is None:
            continue
        parent, end = found
        lead = _lead_start(sql, start, comments)
        left = _lead_left(sql[lead:start], _code_behind(sql, end))
        if sql[lead] != "," and left[-1:] not in tuple(BLANKS):
            left += _blank_before(sql, end)
        yield _Clause(lead, end, left, parent)
        done = end


def _lead_start(sql: str, start: int, comments: Mapping[int, int]) -> int:
    """Where the comma, blanks and comments before `start` begin."""
    while start:
        if start in comments:
            start = comments[start]
        elif sql[start - 1] in BLANKS:
            start -= 1
        else:
            break
    return start - (sql[start - 1 : start] == ",")


_NEXT = re.compile(rf"(?:{SPACE}|{COMMENT})*(?:({WORD}|{STRING}|{QUOTED})|([\s\S])|\Z)")
"""The next token: a name, any other character, or none at the end."""


class _Reading:
    """The tokens from some place of a statement on, read as far as they are asked for.

    By one expression of its own: opening an episode waits for this.
    """

    def __init__(self, sql: str, start: int) -> None:
        self.sql = sql
        self.ends = [start]
        """Where the clause starts, then where each token ends."""
        self.names: list[bool] = []
        self.texts: list[str] = []
        self.words: list[str] = []

    def clause(self) -> tuple[str, int] | None:
        """(parent, where it ends) of the clause that starts here, if one does."""
        place = 0
        if self._is(0, "constraint") and self._names(1):
            place = 2
        if self._is(place, "foreign", "key"):
            place = self._columns(place + 2)
        if not self._is(place, "references") or not self._names(place + 1):
            return None
        parent = unquote(self.texts[place + 1])
        place = self._columns(place + 2) or place + 2
        while behind := self._tail(place):
            place = behind
        return parent, self.ends[place]

    def _reaches(self, place: int) -> bool:
        """Is there a token at `place`? It is read now at the latest."""
        while len(self.words) <= place:
            token = _NEXT.match(self.sql, self.ends[-1])
            if token is None or token.lastindex is None:
                return False
            text = token[token.lastindex]
            self.names.append(token.lastindex == 1)
            self.texts.append(text)
            self.words.append(text.lower())
            self.ends.append(token.end())
        return True

    def _is(self, place: int, *words: str) -> bool:
        for at, word in enumerate(words, place):
            if (at >= len(self.words) and not self._reaches(at)) or self.words[at] != word:
                return False
        return True

    def _names(self, place: int) -> bool:
        return self._reaches(place) and self.names[place]

    def _columns(self, place: int) -> int:
        """The place behind a bracket of names that opens at `place`; 0 where none does."""
        if not self._is(place, "("):
            return 0
        while self._reaches(place := place + 1):
            if self.words[place] == ")":
                return place + 1
            if self.words[place] in _NO_COLUMN:
                break
        return 0

    def _tail(self, place: int) -> int:
        """The place behind what stands at `place` of a clause's rest; 0 where nothing does."""
        if self._is(place, "match") and self._names(place + 1):
            return place + 2
        if not self._reaches(place) or self.words[place] not in ("on", "not", "deferrable"):
            return 0
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
