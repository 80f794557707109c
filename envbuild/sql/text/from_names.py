"""Names that stand where a FROM clause wants a table: a lexer's reading, for what SQLite hides.

SQLite tells nobody of the columns that USING and NATURAL match, so a table read only through them
goes unmentioned; these names fill that gap. Not a parser: whether a name is a table, a view or a
CTE is for the caller to find out.
"""

from collections.abc import Iterator

from envbuild.sql.names import fold_name
from envbuild.sql.text.lexemes import Lexeme, lexemes
from envbuild.sql.text.quoted import opens_body
from envbuild.sql.text.tokens import Kind, unquote

_ENDS_FROM = frozenset(
    ("where", "group", "having", "order", "limit", "window", "union", "except", "intersect")
)


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
