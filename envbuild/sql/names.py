"""Names as SQLite matches them, keywords, and what `"x"` may resolve to."""

from collections.abc import Iterable

import apsw

from envbuild.sql.connect import quote_name
from envbuild.sql.tokens import Kind, Token

_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold_name(name: str) -> str:
    """The form in which two names are equal for SQLite: A-Z become a-z, nothing else changes."""
    return name.lower() if name.isascii() else name.translate(_FOLD)


def declared_spelling(names: Iterable[str]) -> dict[str, str]:
    """Folded name -> the name as declared; the first one wins."""
    spelling: dict[str, str] = {}
    for name in names:
        spelling.setdefault(fold_name(name), name)
    return spelling


_ALWAYS = """all and as asc between by case cast collate cross current_date current_time
current_timestamp desc distinct else end escape except exists false filter from full glob
group having in indexed inner intersect is isnull join left like limit match materialized
natural not notnull null offset on or order outer over partition recursive regexp returning
right select then true union unique using values when where window with within"""
ALWAYS = frozenset(_ALWAYS.split())
"""Words that a SELECT reads as keywords wherever a name does not have to stand."""

_FRAME_WORDS = frozenset(["between", "unbounded", "current"])
_FRAME = frozenset(["rows", "range", "groups"])
_BOUNDS = frozenset(["preceding", "following", "unbounded", "exclude", "ties", "others", "no"])
_BESIDE = _BOUNDS | _FRAME | {"between", "and", "current", "row", "group", ")"}


def is_keyword_here(code: list[Token], place: int) -> bool:
    """True where the bare word at `place` acts as a keyword.

    SQLite lets many keywords be names (`key`, `first`, `rows`, …); those are told by what stands
    beside them. A word next to a dot is a name.
    """
    word = code[place].text.lower()
    before = code[place - 1].text.lower() if place else ""
    following = code[place + 1] if place + 1 < len(code) else Token(Kind.ILLEGAL, "", 0)
    after = following.text.lower()
    if before == "." or after == ".":
        return False
    if word in ALWAYS:
        return True
    if word in ("nulls", "first", "last"):
        return "nulls" in (word, before) and {word, after} & {"first", "last"} != set()
    if word in _FRAME:
        return after in _FRAME_WORDS or following.kind in (Kind.NUMBER, Kind.VARIABLE)
    if word in ("current", "row"):
        return (word, after) == ("current", "row") or (word == "row" and before == "current")
    return word in _BOUNDS and (after in _BESIDE or before in _BESIDE)


_TABLES = "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY rowid"
_COLUMNS = """SELECT c.name FROM sqlite_schema AS s CROSS JOIN pragma_table_xinfo(s.name) AS c
WHERE s.type = 'table'"""


def read_identifiers(connection: apsw.Connection) -> frozenset[str]:
    """Names of tables, views and their columns, folded as SQLite compares them.

    A view that no longer compiles gives its name alone.
    """
    names: set[str] = set()
    views: list[str] = []
    for name, kind in connection.execute(_TABLES):
        names.add(fold_name(name))
        if kind == "view":
            views.append(name)
    for (column,) in connection.execute(_COLUMNS):
        names.add(fold_name(column))
    for view in views:
        try:
            columns = connection.execute(f"PRAGMA table_xinfo({quote_name(view)})").fetchall()
        except apsw.SQLError:
            continue
        names.update(fold_name(str(column[1])) for column in columns)
    return frozenset(names)
