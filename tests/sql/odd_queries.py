"""Seeded queries that join in every way people and models write, and in many that they do not."""

import random
from collections.abc import Iterator

from envbuild.records.schema import ForeignKey, Schema

_JOINS = (
    *(
        "JOIN",
        "JOIN",
        "JOIN",
        "INNER JOIN",
        "LEFT JOIN",
        "LEFT OUTER JOIN",
        "CROSS JOIN",
        "join",
        "Left Join",
    ),
    *("NATURAL JOIN", "NATURAL LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN", ",", ","),
)
_ALIASES = (
    "a",
    "T1",
    "T2",
    "x",
    "key",
    "date",
    "full",
    "cross",
    "end",
    "semi",
    "o",
    '"o"',
    "[b c]",
)
_COMPARISONS = ("=", "=", "=", "==", " IS ", "<>", " IS NOT ", " LIKE ", "<", " >= ")
_BLANKS = (*" " * 30, "\n", "\t", "  ", "\r\n", " /* JOIN x */ ", " -- and\n")
_LITERALS = (
    *("1", "2", "3.25", "'north'", "'JOIN'", "'x = y'", "0"),
    *("1", "2.5", "'it''s'", "'a AND b = c'", '"blue"', "NULL", "-3", "x'ab'", "1e3", "''"),
)
_TESTS = (
    "{c} BETWEEN 1 AND {c}",
    "{c} NOT BETWEEN {l} AND {l}",
    "{c} IN ({l}, {l})",
    "{c} NOT IN (SELECT {c} FROM {t})",
    "{c} IS NOT NULL",
    "{c} NOTNULL",
    "EXISTS (SELECT 1 FROM {t}, {t} AS z WHERE {c} = {c})",
    "CASE WHEN {c} = {c} AND {c} = {c} THEN 1 ELSE 0 END = 1",
    "CASE {c} WHEN {l} THEN {c} END = {c}",
    "NOT {c} = {c}",
    "{c} = {c} = {c}",
    "({c}) = {c}",
    "({c}, {c}) = ({c}, {c})",
    "{c} = {c} + 0",
    "{c} + {c} = {c}",
    "+{c} = {c}",
    "{c} = {c} COLLATE NOCASE",
    "lower({c}) = lower({c})",
    "{c} = (SELECT max({c}) FROM {t} JOIN {t} y ON {c} = y.id)",
    "coalesce({c}, {l}) > {l}",
    "CAST({c} AS REAL) = {c}",
    "{c} IS NOT DISTINCT FROM {c}",
    "{c} LIKE {l} ESCAPE '!'",
    "{c} GLOB {l}",
    "main.{t}.id = {c}",
    "true",
    *("{c} > {l}", "{c} < 3", "{c} IS NULL", "{c} IN (1, 2)", "{c} LIKE 'a%'") * 3,
)
_RESULTS = (
    *("*", "{c}", "{c}, {c}", "count(*)", "id", "name AS n", "avg({c}) AS mean"),
    *("*", "count(*)", "{c}", "{c} AS k", "DISTINCT {c}", "{c}, {c}", "max({c}) AS best, {c}"),
    *("{t}.*", "{c} 'named'", "{c} k", "1", "sum({c} > 1) * 1.0 / count(*)", "({c}) AS id"),
    *("rank() OVER (PARTITION BY {c} ORDER BY {c} DESC) AS r", "count(*) FILTER (WHERE {c})"),
    *("count(DISTINCT {c}) AS n", "group_concat({c}, ',')", "CASE WHEN {c} THEN {l} END"),
)
_ENDS = (
    *("", "", "", "", "", "", ";", " LIMIT 5", " GROUP BY {c}", " ORDER BY {c}"),
    *("", "", "", ";", " ;; ", " GROUP BY {c}", " GROUP BY {c}, {c} HAVING count(*) = {c}"),
    *(" ORDER BY {c} DESC, {c} LIMIT 3", " LIMIT 3, 4", " ORDER BY {c} NULLS LAST", " LIMIT -1"),
    *(
        " UNION SELECT {c} FROM {t}, {t} AS u WHERE u.id = {c}",
        " EXCEPT SELECT 1",
        " WINDOW w AS ()",
    ),
)


def odd_queries(schema: Schema, *, count: int, seed: int) -> Iterator[str]:
    """`count` queries over the schema's tables, most but not all of them SQL."""
    chance = random.Random(f"odd joins/{seed}")
    for _ in range(count):
        yield _Writer(schema, chance).query()


class _Writer:
    """One query's writing: the names it may use for a table so far."""

    def __init__(self, schema: Schema, chance: random.Random) -> None:
        self.schema = schema
        self.chance = chance
        self.names: list[str] = []
        self.tables: list[str] = []
        """The table that each name stands for."""

    def query(self) -> str:
        body = self._select()
        if self._one_in(6):
            body = f"WITH c AS ({self._select()}), d AS ({self._select()}) {body}"
        elif self._one_in(12):
            body = f"SELECT * FROM ({body}) AS f JOIN {self._table()} ON f.id = {self._column()}"
        text = "".join(
            self.chance.choice(_BLANKS) if sign == " " and self._one_in(5) else sign
            for sign in body
        )
        return text.replace(" (", "(") if self._one_in(4) else text

    def _one_in(self, many: int) -> bool:
        return self.chance.randrange(many) == 0

    def _select(self) -> str:
        sources = self._source()
        for _ in range(self.chance.choice((0, 1, 1, 1, 2, 2, 3, 4))):
            kind = self.chance.choice(_JOINS)
            sources += f" {kind} {self._source()}"
            sort = self.chance.randrange(8)
            if sort == 0:
                names = ", ".join(self._own() for _ in range(self.chance.choice((1, 1, 2, 3))))
                sources += f" USING ({names})"
            elif sort < 6 and kind != ",":
                sources += f" ON {self._condition(2)}"
            elif sort < 7:
                sources += f" ON({self._equality()})"
        where = f" WHERE {self._condition(2)}" if self.chance.randrange(2) else ""
        results = self._fill(self.chance.choice(_RESULTS))
        return f"SELECT {results} FROM {sources}{where}{self._fill(self.chance.choice(_ENDS))}"

    def _source(self) -> str:
        table = self._table()
        self.tables.append(table)
        sort = self.chance.randrange(30)
        if sort < 7:
            self.names.append(table)
            return table
        alias = self.chance.choice((*_ALIASES, self._table()))
        self.names.append(alias)
        if sort == 7:
            return f"(SELECT {self._own()}, {self._own()} AS k FROM {table}) {alias}"
        if sort == 8:
            return f"({table} {alias})"
        if sort == 9:
            return f"{table} {alias} {self.chance.choice(('INDEXED BY i', 'NOT INDEXED'))}"
        return f"{table} {self.chance.choice(('AS ', '', 'as '))}{alias}"

    def _condition(self, depth: int) -> str:
        parts = []
        for _ in range(self.chance.choice((1, 1, 1, 2, 2, 3))):
            sort = self.chance.randrange(10)
            if sort < 6:
                parts.append(self._equality())
            elif sort < 7 or not depth:
                parts.append(self._fill(self.chance.choice(_TESTS)))
            else:
                parts.append(f"({self._condition(depth - 1)})")
        glue = self.chance.choice((" AND ", " AND ", " and ", " AND ", " OR "))
        return glue.join(parts)

    def _equality(self) -> str:
        edges = [
            edge
            for edge in self.schema.foreign_keys
            if edge.child in self.tables and edge.parent in self.tables
        ]
        if edges and self.chance.randrange(5):
            return self._along(self.chance.choice(edges))
        other = self._column() if self.chance.randrange(5) else self.chance.choice(_LITERALS)
        return f"{self._column()}{self.chance.choice(_COMPARISONS)}{other}"

    def _along(self, edge: ForeignKey) -> str:
        """Equalities along a foreign key, mostly between names that stand for its tables."""
        sides = []
        for table, columns in (
            (edge.child, edge.child_columns),
            (edge.parent, edge.parent_columns),
        ):
            named = [
                name for name, its in zip(self.names, self.tables, strict=True) if its == table
            ]
            name = self.chance.choice(named or self.names)
            sides.append([f"{name}.{self._quoted(column)}" for column in columns])
        sign = self.chance.choice((*_COMPARISONS, *[" = "] * 20))
        return " AND ".join(f"{one}{sign}{other}" for one, other in zip(*sides, strict=True))

    def _fill(self, form: str) -> str:
        while "{" in form:
            form = form.replace("{c}", self._column(), 1).replace("{t}", self._table(), 1)
            form = form.replace("{l}", self.chance.choice(_LITERALS), 1)
        return form

    def _column(self) -> str:
        if self.names and self.chance.randrange(4):
            dot = " . " if self.chance.randrange(30) == 0 else "."
            return f"{self.chance.choice(self.names)}{dot}{self._own()}"
        return self._own()

    def _own(self) -> str:
        table = self.chance.choice(self.schema.tables)
        names = [column.name for column in table.columns]
        return self._quoted(self.chance.choice((*names, *names, "id", "id", "rowid", "no_such")))

    def _table(self) -> str:
        names = self.schema.table_names
        return self._quoted(self.chance.choice((*names * 4, *self.tables, "nowhere", "c", "d")))

    def _quoted(self, name: str) -> str:
        sort = self.chance.randrange(60)
        forms = {0: f'"{name}"', 1: f"`{name}`", 2: f"[{name}]", 3: f"'{name}'", 4: name.upper()}
        return forms.get(sort, name)
