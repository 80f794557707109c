"""CREATE TABLE statements without the foreign keys that point outside a view.

Only the clause goes: everything else stays as written, comments too. The clause's grammar is
SQLite's (`REFERENCES parent (columns) ON … MATCH … DEFERRABLE …`, or the same behind
`FOREIGN KEY (columns)`, either one with its `CONSTRAINT name`).
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from envbuild.sql.names import fold_name
from envbuild.sql.tokens import (
    BLANKS,
    COMMENT,
    GAP,
    ID_CHARACTER,
    QUOTED,
    STRING,
    WORD,
    unquote,
)


class _Key(NamedTuple):
    """One foreign-key clause."""

    lead: int
    """Where the comma before it starts, else the blanks and comments before it."""
    start: int
    end: int
    parent: str
    following: str
    """The comma or bracket behind it, if one is the next token."""


def drop_references(sql: str, kept: Collection[str]) -> str:
    """`sql`, a CREATE TABLE statement, without foreign keys to tables other than `kept`.

    `kept` holds folded names. A key whose parent is written with a schema in front
    (`"public.companies"`) is taken by its last part, as the schema reader does.
    """
    pieces: list[str] = []
    done = 0
    gone = [key for key in _find_keys(sql) if not _is_kept(key.parent, kept)]
    while gone:
        keys = [gone.pop(0)]
        while gone and gone[0].lead == keys[-1].end:
            keys.append(gone.pop(0))
        pieces += [sql[done : keys[0].lead], _left_of(sql, keys)]
        done = keys[-1].end
    return "".join((*pieces, sql[done:]))


def _left_of(sql: str, keys: list[_Key]) -> str:
    """What stays of clauses that follow each other, with the commas and gaps before them.

    A comment keeps its blanks, since a line comment needs its line end. SQLite lets constraints
    follow each other without a comma, and then it must stay for the next.
    """
    end, following = keys[-1].end, keys[-1].following
    has_comma = any(sql[key.lead] == "," for key in keys)
    left = "," if has_comma and not following else ""
    gaps = (sql[key.lead : key.start].removeprefix(",") for key in keys)
    left += "".join(gap for gap in gaps if gap.strip(BLANKS))
    ends_apart = left[-1:] in tuple(BLANKS) or sql[end : end + 1] in ("", ",", ")", *BLANKS)
    return left if sql[keys[0].lead] == "," or ends_apart else left + " "


_END = rf"(?!{ID_CHARACTER})"
_NAME = rf"(?:{WORD}{_END}|{STRING}|{QUOTED})"
_COLUMNS = rf"\((?:{COMMENT}|{STRING}|{QUOTED}|[^()'\"`\[/-]|-(?!-)|/(?!\*))*\)"


def _words(text: str) -> str:
    """The pattern of these words, with gaps between them."""
    return rf"{_END}{GAP}".join(text.split()) + _END


_ACTION = "|".join(map(_words, ("set null", "set default", "no action", "cascade", "restrict")))
_WHEN = "|".join(map(_words, ("initially deferred", "initially immediate")))
_TAIL = (
    rf"on{_END}{GAP}(?:delete|update|insert){_END}{GAP}(?:{_ACTION})"
    rf"|match{_END}{GAP}{_NAME}"
    rf"|(?:not{_END}{GAP})?deferrable{_END}(?:{GAP}(?:{_WHEN}))?"
)
_CLAUSE = (
    rf"(?:constraint{_END}{GAP}{_NAME}{GAP})?(?:{_words('foreign key')}{GAP}{_COLUMNS}{GAP})?"
    rf"references{_END}{GAP}(?P<parent>{_NAME})(?:{GAP}{_COLUMNS})?(?:{GAP}(?:{_TAIL}))*"
)
_KEY = re.compile(
    rf"(?=[,cfr'\"`\[/{BLANKS}-])(?:{STRING}|{QUOTED}"
    rf"|,?{GAP}(?<!{ID_CHARACTER})(?=[cfr])(?P<clause>{_CLAUSE})(?={GAP}(?P<following>[,)]?))"
    rf"|{COMMENT})"
)
"""A clause with what leads to it, or what may hide the words of one; of folded text.

Both lookaheads only save time: opening an episode waits for this.
"""


@lru_cache(maxsize=8192)  # a database's tables come up in view after view
def _find_keys(sql: str) -> tuple[_Key, ...]:
    folded = fold_name(sql)
    if "references" not in folded:
        return ()
    found = []
    for match in _KEY.finditer(folded):
        if match["clause"] is not None:
            start, end = match.span("clause")
            parent = unquote(sql[slice(*match.span("parent"))])
            found.append(_Key(match.start(), start, end, parent, match["following"]))
    return tuple(found)


def _is_kept(parent: str, kept: Collection[str]) -> bool:
    folded = fold_name(parent)
    return folded in kept or folded.rpartition(".")[2] in kept
