"""The SELECTs of a plainly written query: their tables, equalities and results, without a tree.

Not a parser: what `plain_grammar` does not know is not plain, and a parser has to decide.
"""

import re
from dataclasses import dataclass

from envbuild.sql.names import fold_name
from envbuild.sql.text import plain_grammar as grammar

Reference = tuple[str, str]
"""A column as written: its table's name or "", and its own; folded."""


@dataclass(slots=True)
class PlainSource:
    """One table or derived table of a FROM clause; names are folded."""

    table: str
    """Empty for a derived table or a CTE."""
    alias: str
    """What the query calls it: the table's name where it gives no alias."""
    natural: bool = False
    using: tuple[str, ...] = ()
    query: "list[PlainSelect] | None" = None
    """The SELECTs that a derived table or CTE unites."""


@dataclass(slots=True)
class PlainSelect:
    """One SELECT."""

    sources: list[PlainSource]
    equalities: list[tuple[Reference, Reference]]
    """Columns that ON and WHERE set equal, in conditions that must all hold."""
    results: list[tuple[str, Reference | None]] | None = None
    """Name and column (None: a computed one) of each result; `*` and `t.*` have the name "*".

    Itself None where a result's name is not sure, and read only where a derived table needs it."""


class NotPlainError(Exception):
    """The query is not plain; always caught here."""


def plain_selects(sql: str) -> list[PlainSelect] | None:
    """The query's SELECTs that join or that others trace; None where the query is not plain."""
    tokens = grammar.TOKEN.findall(fold_name(sql).rstrip(" \t\n\r"))
    if "--" in sql or "/*" in sql:
        tokens = _without_comments(tokens)
    known, other = grammar.KNOWN.get, grammar.OTHERS.get
    signs = "".join([known(token) or other(token[0], "?") for token in tokens])
    if "?" in signs or "S" not in signs:
        return None
    if '"' in sql or "`" in sql or "[" in sql:
        tokens = [token[1:-1] if token[0] in _QUOTES else token for token in tokens]
    return _Reading(tokens).selects(signs)


_QUOTES = frozenset(('"', "`", "["))


def _without_comments(tokens: list[str]) -> list[str]:
    """The other tokens; sqlglot wants no comment before BY, and none that never ends."""
    kept = []
    commented = False
    for token in tokens:
        if not token.startswith(("--", "/*")):
            kept.append("?" if commented and token == "by" else token)
            commented = False
        else:
            commented = True
            if "\r" in token or (token[0] == "/" and not token.endswith("*/", 2)):
                kept.append("?")
    return kept


_COLUMNS = re.compile(grammar.COLUMN)
_JOINS = frozenset("NluIxJ,")
_HOLDS_ALONE = frozenset(("", *"&)WGHOLXNluIxJ,;"))
"""What may follow a bracket that stands for a whole condition."""
_MOST_NESTED = 12


class _Reading:
    """One text's reading: its tokens, and what its brackets hold."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.found: list[PlainSelect] = []
        self.queries: dict[int, list[PlainSelect]] = {}
        """Queries in brackets by the bracket's place."""
        self.tables: list[tuple[int, PlainSource]] = []
        """Each table with the place of its name."""
        self.ctes: dict[str, tuple[int, int, int, int]] = {}
        """The place of each CTE's bracket, its end, and those of the query that may use it."""

    def selects(self, signs: str) -> list[PlainSelect] | None:
        try:
            for _ in range(_MOST_NESTED):
                if "(" not in signs and "K" not in signs:
                    break
                signs = grammar.INNERMOST.sub(self._reduced, signs)
            if not grammar.STATEMENT.fullmatch(signs):
                return None
            self._read(signs, 0, len(signs))
            if self.ctes:
                self._place_ctes()
        except NotPlainError:
            return None
        return self.found

    def _reduced(self, match: re.Match[str]) -> str:
        """The bracket or CASE as its sign, padded; a sign that nothing takes where it is odd."""
        signs, start, end = match.string, match.start(), match.end()
        first = signs[start]
        if first == "(":
            sign = self._bracket(signs, start, end)
        elif first == "f":
            sign = "h" if self._calls(signs, start, end) else "?"
        elif first == "K":
            sign = "g" if grammar.CASE.fullmatch(signs, start, end) else "?"
        elif first == "U":
            sign = "Ur" if grammar.NAMES.fullmatch(signs, start + 2, end - 1) else "?"
        elif first == "V":
            sign = "Vg" if grammar.WINDOW.fullmatch(signs, start + 2, end - 1) else "?"
        else:
            casts = grammar.CAST.fullmatch(signs, start + 2, end - 1)
            sign = "g" if casts and self.tokens[end - 2] in grammar.TYPES else "?"
        return sign.ljust(end - start, "_")

    def _calls(self, signs: str, start: int, end: int) -> bool:
        """Whether the function takes these arguments."""
        name = self.tokens[start]
        least, most = grammar.FUNCTIONS[name]
        commas = signs.count(",", start, end)
        if not least <= commas + (end - start > 3) <= most:
            return False
        if name not in grammar.AGGREGATES:
            return bool(grammar.ARGUMENTS.fullmatch(signs, start + 2, end - 1))
        if commas and signs[start + 2] == "D":
            return False
        return bool(grammar.AGGREGATED.fullmatch(signs, start + 2, end - 1))

    def _bracket(self, signs: str, start: int, end: int) -> str:
        before, after = signs[start - 1 : start], signs[end : end + 1]
        inner = signs[start + 1 : end - 1]
        if inner.startswith(("S", "R")):
            if not grammar.QUERY.fullmatch(inner):
                return "?"
            self.queries[start] = self._read(signs, start + 1, end - 1, passed_on=before in "F,JA")
            return "q"
        if "," in inner:
            return "v" if grammar.LIST.fullmatch(inner) else "?"
        if not grammar.CONDITIONS.fullmatch(inner):
            return "?"
        if (before in "oW&(=i" or after == "A") and _COLUMNS.fullmatch(inner):
            return "?"  # a column still, which the bracket would hide
        if before not in "oW&(" or "|" in inner or ("=" not in inner and "i" not in inner):
            return "g"
        return f" {inner} " if after in _HOLDS_ALONE else "g"

    def _read(
        self, signs: str, start: int, end: int, *, passed_on: bool = False
    ) -> list[PlainSelect]:
        """The SELECTs that the query in `signs[start:end]` unites, its own brackets reduced."""
        place = signs.index("S", start, end)
        for match in grammar.CTE.finditer(signs, start, place):
            name = self.tokens[match.start()]
            if name in self.ctes:
                raise NotPlainError
            self.ctes[name] = (*match.span(1), start, end)
        selects = []
        while place >= 0:
            following = signs.find("S", place + 1, end)
            closes = following if following > 0 else end
            if passed_on:
                select = self._select(signs, place, closes)
                select.results = self._results(signs, place, closes)
                selects.append(select)
            elif grammar.JOINED.search(signs, place, closes):
                selects.append(self._select(signs, place, closes))
            place = following
        self.found += selects
        return selects

    def _select(self, signs: str, start: int, end: int) -> PlainSelect:
        select = PlainSelect([], [])
        place = signs.find("F", start, end)
        joined = place >= 0
        while joined:
            source = grammar.SOURCE.match(signs, place, end)
            assert source
            self._add(source, select)
            place = source.end()
            joined = signs[place : place + 1] in _JOINS
        if len(select.sources) > 1 and signs[place : place + 1] == "W":
            condition = grammar.CONDITIONS.match(signs, place + 1, end)
            assert condition
            self._equalities(signs, *condition.span(), select)
        return select

    def _add(self, found: re.Match[str], select: PlainSelect) -> None:
        """One source of the FROM clause, and what its ON states."""
        tokens = self.tokens
        _, natural, (place, _), (alias, _), on, (using, closes) = found.regs
        if found.string[place] == "q":
            source = PlainSource("", tokens[alias] if alias > 0 else "", query=self.queries[place])
        else:
            table = tokens[place]
            source = PlainSource(table, tokens[alias] if alias > 0 else table)
            self.tables.append((place, source))
            if not source.alias or not table:
                raise NotPlainError
        source.natural = natural[0] < natural[1]
        if on[0] > 0:
            self._equalities(found.string, *on, select)
        elif using > 0:
            source.using = tuple(tokens[using + 1 : closes - 1 : 2])
        select.sources.append(source)

    def _equalities(self, signs: str, start: int, end: int, select: PlainSelect) -> None:
        if signs.find("|", start, end) >= 0:
            return
        for match in grammar.EQUALITY.finditer(signs, start, end):
            _, one, other = match.regs
            select.equalities.append((self._reference(*one), self._reference(*other)))

    def _results(
        self, signs: str, start: int, end: int
    ) -> list[tuple[str, Reference | None]] | None:
        """Name and column of each result of the SELECT that starts at `start`."""
        tokens = self.tokens
        results: list[tuple[str, Reference | None]] = []
        place = start + 1 + (signs[start + 1] == "D")
        while found := grammar.RESULT.match(signs, place, end):
            _, star, (of, _), column, (alias, _) = found.regs
            if star[0] > 0 or of > 0:
                results.append(("*", (tokens[of] if of > 0 else "", "*")))
            else:
                reference = self._reference(*column) if column[0] > 0 else None
                name = reference[1] if reference else ""
                if alias > 0:
                    name = tokens[alias] if signs[alias] != "s" else tokens[alias][1:-1]
                if name in ("", "*") or "''" in name:
                    return None
                results.append((name, reference))
            place = found.end() + 1
            if signs[place - 1 : place] != ",":
                break
        return results

    def _place_ctes(self) -> None:
        """Gives every use of a CTE its query."""
        for place, source in self.tables:
            if source.table in self.ctes:
                opens, closes, start, end = self.ctes[source.table]
                if not start <= place < end or opens <= place < closes:
                    raise NotPlainError
                source.table, source.query = "", self.queries[opens]

    def _reference(self, start: int, end: int) -> Reference:
        tokens = self.tokens
        return "" if end - start == 1 else tokens[start], tokens[end - 1]
