"""Names that stand where a FROM clause wants a table: a lexer's reading, for what SQLite hides.

SQLite tells nobody of the columns that USING and NATURAL match, so a table read only through them
goes unmentioned; these names fill that gap. Not a parser: whether a name is a table, a view or a
CTE is for the caller to find out.
"""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from envbuild.sql.names import fold_name
from envbuild.sql.text.lexemes import Lexeme, lexemes
from envbuild.sql.text.quoted import opens_body
from envbuild.sql.text.tokens import Kind, unquote

_ENDS_FROM = frozenset(
    ("where", "group", "having", "order", "limit", "window", "union", "except", "intersect")
)

MAX_VIEW_READS = 1000
"""Reads of tables that one view may stand for, counted through the views it reads."""


def oversized_views(views: Mapping[str, str]) -> frozenset[str]:
    """Of views (name -> CREATE VIEW), the folded names of those past MAX_VIEW_READS.

    SQLite copies a view into each place that reads it: fourteen views that each read the one
    before twice are 8,192 reads, and no limit of SQLite's ends their compilation early.
    """
    known = {fold_name(name) for name in views}
    reads = {fold_name(name): list(iter_from_names(sql)) for name, sql in views.items()}
    inside = {name: known.intersection(found) for name, found in reads.items()}
    while True:
        try:
            order = list(TopologicalSorter(inside).static_order())
        except CycleError as e:  # SQLite refuses such views where they are read
            inside.update((name, set()) for name in e.args[1])
        else:
            break
    counts: dict[str, int] = {}
    for name in order:
        counts[name] = max(1, sum(counts.get(read, 1) for read in reads[name]))
    return frozenset(name for name, count in counts.items() if count > MAX_VIEW_READS)


def iter_from_names(sql: str) -> Iterator[str]:
    """The folded names behind FROM, JOIN and a FROM clause's commas; a schema's name is dropped."""
    code = lexemes(sql)
    in_from = [False]  # for each open bracket: is this a FROM clause?
    expected = False  # a table may stand here
    for place, lexeme in enumerate(code):
        word = lexeme.text.lower()
        if word == "(":
            in_from.append(expected)
        elif word == ")":
            in_from[-2:] = in_from[-2:-1] or [False]
            expected = False
        elif word in ("from", "join"):
            in_from[-1], expected = True, True
        elif word == ",":
            expected = in_from[-1]
        elif word in _ENDS_FROM or word == "select":
            in_from[-1], expected = False, False
        elif expected and lexeme.kind in (Kind.WORD, Kind.QUOTED, Kind.STRING):
            following = code[place + 1].text if place + 1 < len(code) else ""
            if following != ".":
                expected = False
                if following != "(":
                    yield fold_name(unquote(lexeme.text))
        elif word != ".":
            expected = False


def cte_names(code: list[Lexeme]) -> frozenset[str]:
    """Folded names of the query's CTEs (and windows), wherever they are defined."""
    names = set()
    for place, lexeme in enumerate(code):
        if lexeme.kind not in (Kind.WORD, Kind.QUOTED, Kind.STRING):
            continue
        after = place + 1
        if after < len(code) and code[after].text == "(":
            after = _behind_bracket(code, after)
        if opens_body(code, after):
            names.add(fold_name(unquote(lexeme.text)))
    return frozenset(names)


def _behind_bracket(code: list[Lexeme], opening: int) -> int:
    depth = 0
    for place in range(opening, len(code)):
        depth += (code[place].text == "(") - (code[place].text == ")")
        if depth == 0:
            return place + 1
    return len(code)
