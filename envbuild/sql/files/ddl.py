"""CREATE TABLE statements without the foreign keys that point outside a view.

Only the clause goes: everything else stays as written, comments too. The clause's grammar is
SQLite's (`REFERENCES parent (columns) ON … MATCH … DEFERRABLE …`, or the same behind
`FOREIGN KEY (columns)`, either one with its `CONSTRAINT name`).
"""

from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from envbuild.sql.names import fold_name
from envbuild.sql.tokens import Kind, lexemes, unquote

_BLANKS = " \t\n\f\r"
_NAMES = (Kind.WORD, Kind.STRING, Kind.QUOTED)
_STARTS = ("references", "foreign", "constraint")
_TAILS = [
    *(
        f"on {event} {action}".split()
        for event in ("delete", "update", "insert")
        for action in ("set null", "set default", "no action", "cascade", "restrict")
    ),
    *(
        f"{deferrable} {when}".split()
        for deferrable in ("not deferrable", "deferrable")
        for when in ("initially deferred", "initially immediate", "")
    ),
]
"""What may follow the parent's columns, the longer one first; besides MATCH and a name."""


class _Key(NamedTuple):
    """One foreign-key clause."""

    lead: int
    """Where the comma before it starts, else the blanks and comments before it."""
    start: int
    end: int
    parent: str
    following: str
    """The next token behind it."""


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
    left = "," if has_comma and following not in (",", ")") else ""
    gaps = (sql[key.lead : key.start].removeprefix(",") for key in keys)
    left += "".join(gap for gap in gaps if gap.strip(_BLANKS))
    ends_apart = left[-1:] in tuple(_BLANKS) or sql[end : end + 1] in ("", ",", ")", *_BLANKS)
    return left if sql[keys[0].lead] == "," or ends_apart else left + " "


@lru_cache(maxsize=8192)  # a database's tables come up in view after view
def _find_keys(sql: str) -> tuple[_Key, ...]:
    if "references" not in sql.lower():
        return ()
    code = lexemes(sql)
    words = [lexeme.text.lower() for lexeme in code]
    names = [lexeme.kind in _NAMES for lexeme in code]
    found: list[_Key] = []
    done = 1
    for place, word in enumerate(words):
        if word not in _STARTS or place < done or code[place].kind is not Kind.WORD:
            continue
        if (clause := _behind_key(words, names, place)) is None:
            continue
        parent_at, done = clause
        before, last = code[place - 1], code[done - 1]
        lead = before.start if before.text == "," else before.start + len(before.text)
        following = words[done] if done < len(words) else ""
        parent, end = unquote(code[parent_at].text), last.start + len(last.text)
        found.append(_Key(lead, code[place].start, end, parent, following))
    return tuple(found)


def _behind_key(words: list[str], names: list[bool], place: int) -> tuple[int, int] | None:
    """The parent's place, and the one behind the clause that starts at `place`, if one does."""
    if words[place] == "constraint" and names[place + 1 : place + 2] == [True]:
        place += 2
    if words[place : place + 2] == ["foreign", "key"]:
        place = _behind_columns(words, place + 2)
        if not place:
            return None
    if words[place : place + 1] != ["references"] or names[place + 1 : place + 2] != [True]:
        return None
    behind = _behind_columns(words, place + 2) or place + 2
    while True:
        if words[behind : behind + 1] == ["match"] and names[behind + 1 : behind + 2] == [True]:
            behind += 2
            continue
        tail = next((t for t in _TAILS if words[behind : behind + len(t)] == t), None)
        if tail is None:
            return place + 1, behind
        behind += len(tail)


def _behind_columns(words: list[str], place: int) -> int:
    """The place behind a bracket of names that opens at `place`; 0 where none does."""
    if words[place : place + 1] != ["("]:
        return 0
    for at in range(place + 1, len(words)):
        if words[at] == ")":
            return at + 1
        if words[at] == "(":
            break
    return 0


def _is_kept(parent: str, kept: Collection[str]) -> bool:
    folded = fold_name(parent)
    return folded in kept or folded.rpartition(".")[2] in kept
