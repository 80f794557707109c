"""CREATE TABLE statements without the foreign keys that point outside a view.

Only the clause goes: everything else stays as written, comments too. The clause's grammar is
SQLite's (`REFERENCES parent (columns) ON … MATCH … DEFERRABLE …`, or the same behind
`FOREIGN KEY (columns)`, either one with its `CONSTRAINT name`). Opening an episode waits for this,
so that one regular expression does the walk, made of the tokenizer's own parts.
"""

import re
from collections.abc import Collection
from functools import cache, lru_cache
from typing import NamedTuple

from envbuild.sql.names import fold_name
from envbuild.sql.text.tokens import COMMENT, ID_CHARACTER, QUOTED, SPACE, STRING, WORD, unquote

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
    plain = _find_in_plain(sql)
    return _walk(sql) if plain is None else plain


def _walk(sql: str) -> tuple[_Clause, ...]:
    return tuple(
        _Clause(m.start("lead"), m.end("clause"), _lead_left(m), unquote(m["parent"]))
        for m in _patterns().walk.finditer(sql)
        if m["clause"] is not None
    )


def _find_in_plain(sql: str) -> tuple[_Clause, ...] | None:
    """What `_walk` finds, for DDL as most write it and a third of the time; None for other DDL.

    Without comments, strings and named constraints, only FOREIGN KEY (…), blanks and a comma can
    stand between the word REFERENCES and what its clause follows.
    """
    lower = sql.lower()
    at = lower.find("references")
    if at < 0:
        return ()
    if "'" in sql or "[" in sql or "--" in sql or "/*" in sql or not sql.isascii():
        return None
    patterns = _patterns()
    words = [word for word in patterns.before if word[0] in lower]
    has_quotes = '"' in sql or "`" in sql
    found: list[_Clause] = []
    done = 0
    while at >= 0:
        behind = patterns.behind.match(sql, at)
        start = _start_of_clause(sql, lower, done, at, words)
        if behind is None or start is None:
            return None
        if has_quotes and (sql.count('"', done, start) % 2 or sql.count("`", done, start) % 2):
            return None
        code = start
        while sql[code - 1] in BLANKS:
            code -= 1
        follows_comma = sql[code - 1] == ","
        done = behind.end()
        if follows_comma:
            left = "," if sql[done:].lstrip(BLANKS)[:1] not in (",", ")") else ""
        else:
            left = _blank_before(sql, done)
        found.append(_Clause(code - follows_comma, done, left, unquote(behind["parent"])))
        at = lower.find("references", done)
    return tuple(found)


_ENDS = BLANKS + ',)"`'
"""What a word may follow."""


def _start_of_clause(
    sql: str, lower: str, done: int, at: int, words: list[tuple[str, re.Pattern[str]]]
) -> int | None:
    """Where the clause of a REFERENCES begins, its name and FOREIGN KEY (…) included.

    `words`: those that the text has at all. None where only a walk can tell.
    """
    start = at
    for word, pattern in words:
        if sql[start - 1] not in _ENDS:
            return None
        found = lower.rfind(word, done, start)
        if found >= 0 and pattern.fullmatch(sql, found, start):
            start = found
        elif found >= 0 and word == "foreign":
            return None
    return start if sql[start - 1] in _ENDS else None


def _lead_left(match: re.Match[str]) -> str:
    """What stays of the comma, blanks and comments before a clause that goes.

    A comment keeps its blanks, since a line comment needs its line end. SQLite lets constraints
    follow each other without a comma, and then it must stay for the next.
    """
    lead = match["lead"]
    next_code = _code_behind(match.string, match.end("clause"))
    gap = lead.removeprefix(",")
    kept_gap = gap if gap.strip(BLANKS) else ""
    if lead.startswith(","):
        return ("," if next_code not in (",", ")") else "") + kept_gap
    return kept_gap or _blank_before(match.string, match.end("clause"))


def _blank_before(sql: str, at: int) -> str:
    """What keeps the token at `at` from growing together with the one before the clause."""
    return "" if sql[at : at + 1] in ("", ",", ")", *BLANKS) else " "


def _code_at(sql: str, at: int) -> int:
    """Where the first token from `at` on stands that is neither blank nor comment."""
    gap = _gap().match(sql, at)
    return gap.end() if gap else at


def _code_behind(sql: str, at: int) -> str:
    """The character that `_code_at` finds; empty at the end."""
    start = _code_at(sql, at)
    return sql[start : start + 1]


def _is_kept(parent: str, kept: Collection[str]) -> bool:
    folded = fold_name(parent)
    return folded in kept or folded.rpartition(".")[2] in kept


_GAP = rf"(?:{SPACE}|{COMMENT})*+"


@cache
def _gap() -> re.Pattern[str]:
    return re.compile(_GAP)


class _Patterns(NamedTuple):
    """Compiled at the first use: it takes a while."""

    walk: re.Pattern[str]
    """One foreign-key clause and whatever stands before it, token by token."""
    before: tuple[tuple[str, re.Pattern[str]], ...]
    """What may stand before it, nearest first, each by its first word: FOREIGN KEY (…), a name."""
    behind: re.Pattern[str]
    """From REFERENCES on."""


@cache
def _patterns() -> _Patterns:
    name = f"(?:{WORD}|{QUOTED}|{STRING})"
    columns = rf"\((?:{COMMENT}|{QUOTED}|{STRING}|[^()'\"`\[\]])*+\)"
    action = "|".join(
        _words(what) for what in ("set null", "set default", "no action", "cascade", "restrict")
    )
    event = "|".join(_words(f"on {what}") for what in ("delete", "update", "insert"))
    when = "|".join(_words(f"initially {when}") for when in ("deferred", "immediate"))
    tail = (
        f"(?:{event}){_GAP}(?:{action})|{_words('match')}{_GAP}{name}"
        f"|(?:{_words('not')}{_GAP})?{_words('deferrable')}(?:{_GAP}(?:{when}))?"
    )
    key = f"{_words('foreign key')}{_GAP}{columns}{_GAP}"
    behind = (
        f"{_words('references')}{_GAP}(?P<parent>{name})(?:{_GAP}{columns})?(?:{_GAP}(?:{tail}))*+"
    )
    named = f"{_words('constraint')}{_GAP}{name}{_GAP}"
    clause = f"(?:{named})?(?:{key})?{behind}"
    plain = clause.replace("?P<parent>", "?:")
    lead = f",?{_GAP}"
    before = (
        rf"[^A-Za-z_$0-9\x80-\U0010ffff'\"`\[/,{BLANKS}-]++"
        rf"|[ABD-EG-QS-Zabd-eg-qs-z_$0-9\x80-\U0010ffff]{ID_CHARACTER}*+"
        rf"|(?!{lead}{plain})(?:[{BLANKS}]++|,|{COMMENT}|[CFRcfr]{ID_CHARACTER}*+)"
        rf"|{QUOTED}|{STRING}|[/\-]|[^A-Za-z_$0-9\x80-\U0010ffff,{BLANKS}]"
    )
    return _Patterns(
        # Optional, so that the rest of the text is walked once and not again from each position.
        walk=re.compile(f"(?:{before})*+(?:(?P<lead>{lead})(?P<clause>{clause}))?"),
        before=(("foreign", re.compile(key)), ("constraint", re.compile(named))),
        behind=re.compile(behind),
    )


def _words(keywords: str) -> str:
    """Keywords in either case; re.IGNORECASE would take half a second to compile."""
    return _GAP.join(
        "".join(f"[{letter}{letter.upper()}]" for letter in word) + f"(?!{ID_CHARACTER})"
        for word in keywords.split()
    )
