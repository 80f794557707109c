"""Names behind FROM as a lexer reads them, quoted words that are names, whether order matters."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from envbuild.sql.names import ALWAYS, fold_name, is_keyword_here
from envbuild.sql.tokens import (
    Kind,
    Token,
    closing_brackets,
    iter_code,
    type_places,
    unquote,
)

ROWID_NAMES = frozenset(("rowid", "oid", "_rowid_"))
_NAME_FOLLOWS = frozenset(("as", "from", "join", "collate", "with", "recursive", "window", "over"))
"""Keywords behind which a quoted token is a name, whatever it resolves to."""
_VALUES = frozenset(("end", "null", "true", "false"))
"""Keywords that end an operand, so that a name behind them is an alias."""


def literal_places(code: list[Token], identifiers: frozenset[str]) -> frozenset[int]:
    """Positions of the double-quoted tokens that are strings in a database of these names."""
    quoted = [
        place
        for place, token in enumerate(code)
        if token.kind is Kind.QUOTED and token.text[0] == '"'
    ]
    if not quoted:
        return frozenset()
    known = _folded(identifiers)
    defined = set(_defined_names(code))
    return frozenset(
        place
        for place in quoted
        if not _must_be_a_name(code, place)
        and (name := fold_name(unquote(code[place].text))) not in known
        and name not in defined
    )


def _must_be_a_name(code: list[Token], place: int) -> bool:
    """Beside a dot, before a bracket, behind AS or FROM, or where only an alias can stand."""
    before = code[place - 1].text.lower() if place else ""
    after = code[place + 1].text if place + 1 < len(code) else ""
    return after in (".", "(") or before == "." or before in _NAME_FOLLOWS or _is_alias(code, place)


def _is_alias(code: list[Token], place: int) -> bool:
    """A name right behind AS or behind a finished operand: nothing else can stand there."""
    if not place:
        return False
    token = code[place - 1]
    word = token.text.lower()
    if token.kind is Kind.WORD:
        return word == "as" or word in _VALUES or word not in ALWAYS
    return word == ")" or token.kind not in (Kind.OPERATOR, Kind.ILLEGAL)


def _defined_names(code: list[Token]) -> Iterator[str]:
    """Names the query itself defines: aliases, CTEs, their columns, windows; folded."""
    types = type_places(code)
    for opening, close in closing_brackets(code).items():
        columns = code[opening + 1 : close]  # a CTE's, if its body follows
        if opens_body(code, close + 1) and "(" not in (token.text for token in columns):
            yield from (fold_name(unquote(c.text)) for c in columns if c.kind is not Kind.OPERATOR)
    for place, token in enumerate(code):
        if (
            _can_name(code, place)
            and place not in types
            and (_is_alias(code, place) or opens_body(code, place + 1))
        ):
            yield fold_name(unquote(token.text))


def _can_name(code: list[Token], place: int) -> bool:
    kind = code[place].kind
    if kind is Kind.WORD:
        return not is_keyword_here(code, place)
    return kind is Kind.QUOTED or kind is Kind.STRING


def opens_body(code: list[Token], place: int) -> bool:
    """`AS (`, `AS MATERIALIZED (` or `AS NOT MATERIALIZED (` starts at `place`: a CTE or window."""
    words = [token.text.lower() for token in code[place : place + 3]]
    return words[:2] == ["as", "("] or words in _OPEN_BODY


_OPEN_BODY = (["as", "materialized", "("], ["as", "not", "materialized"])


@lru_cache(maxsize=64)
def _folded(identifiers: frozenset[str]) -> frozenset[str]:
    return ROWID_NAMES.union(fold_name(name) for name in identifiers)


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
    """The folded names behind FROM, JOIN and a FROM clause's commas; a schema's name is dropped.

    Not a parser: whether a name is a table, a view or a CTE is for the caller to find out.
    """
    code = list(iter_code(sql))
    in_from = [False]  # for each open bracket: is this a FROM clause?
    expected = False  # a table may stand here
    for place, token in enumerate(code):
        word = token.text.lower()
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
        elif expected and token.kind in (Kind.WORD, Kind.QUOTED, Kind.STRING):
            following = code[place + 1].text if place + 1 < len(code) else ""
            if following != ".":
                expected = False
                if following != "(":
                    yield fold_name(unquote(token.text))
        elif word != ".":
            expected = False


def cte_places(code: list[Token]) -> frozenset[int]:
    """Positions of the names of the query's CTEs (and windows), wherever they are defined."""
    closing = closing_brackets(code)
    names = (Kind.WORD, Kind.QUOTED, Kind.STRING)
    return frozenset(
        place
        for place, token in enumerate(code)
        if token.kind in names and opens_body(code, closing.get(place + 1, place) + 1)
    )


def cte_names(code: list[Token]) -> frozenset[str]:
    """Folded names of the query's CTEs (and windows), wherever they are defined."""
    return frozenset(fold_name(unquote(code[place].text)) for place in cte_places(code))


def order_matters(sql: str) -> bool:
    """True where the outermost query has ORDER BY (CONTRACT 4).

    Inner ones (subqueries, CTEs, windows, aggregates) always stand in parentheses.
    """
    depth, after_order = 0, False
    for kind, text, _ in iter_code(sql):
        if kind is Kind.OPERATOR:
            depth += (text == "(") - (text == ")")
        if kind is Kind.WORD and depth == 0:
            word = text.lower()
            if after_order and word == "by":
                return True
            after_order = word == "order"
        else:
            after_order = False
    return False
