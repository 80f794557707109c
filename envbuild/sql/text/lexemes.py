"""A query's meaningful tokens as a list that looks forward and back."""

from typing import NamedTuple

from envbuild.sql.text.tokens import Kind, iter_code


class Lexeme(NamedTuple):
    """One token that is neither blank nor comment."""

    kind: Kind
    text: str
    start: int
    """Its place in the text."""


def lexemes(sql: str) -> list[Lexeme]:
    """The tokens of `sql` that mean something, in order."""
    return [Lexeme(kind, sql[start:end], start) for kind, start, end in iter_code(sql)]


def type_places(code: list[Lexeme]) -> frozenset[int]:
    """Positions of the words, numbers and brackets of each type name in `CAST(… AS type)`."""
    places: list[int] = []
    casts: list[bool] = []  # for each open bracket: CAST's own?
    in_type = 0  # brackets open when the type began; 0: not in one
    for place, lexeme in enumerate(code):
        text = lexeme.text
        if text == "(" and lexeme.kind is Kind.OPERATOR:
            casts.append(place > 0 and code[place - 1].text.lower() == "cast")
        elif text == ")" and lexeme.kind is Kind.OPERATOR and casts:
            if in_type == len(casts):
                in_type = 0
            casts.pop()
        if in_type:
            places.append(place)
        elif lexeme.kind is Kind.WORD and casts and casts[-1] and text.lower() == "as":
            in_type = len(casts)
    return frozenset(places)
