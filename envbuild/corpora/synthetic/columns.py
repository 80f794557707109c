"""The small language of synthetic tables: how each column's values come about, by seed alone.

loan 2600                       a table and its number of rows
  loan_id INTEGER pk            1, 2, 3, …
  copy_id INTEGER fk:copy       a row of that table (`fk:copy:0.1`: a tenth of them NULL)
  days INTEGER int:1:70?0.2     a number of this range, a fifth of them NULL
"""

import random
import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta

import msgspec

from envbuild.records.execution import Value

_COLUMN = re.compile(r'\s*(?:"(?P<quoted>[^"]+)"|(?P<bare>\w+))\s+(?P<type>\w+)\s+(?P<rule>.+)')
_FIRST_NAMES = (
    "Ada Bela Carlo Dina Emil Fatou Goran Hana Ines Jonas Kaya Lena Marek Nadia Olav Priya Rosa "
    "Sami Tove Ugo Vera Wanda Yara Zeno"
)
_LAST_NAMES = (
    "Ahlberg Brandt Castro Dube Eriksen Ferri Grant Holm Ivanov Jansen Keller Lindqvist Moretti "
    "Novak Okoye Petrov Quist Rossi Silva Tanaka Ueda Varga Weber Zimmer"
)
_TRADE_NAMES = "Foods Trading Works Supply Logistics Textiles Metals Energy Stores Partners"
_FIRST, _LAST, _TRADES = _FIRST_NAMES.split(), _LAST_NAMES.split(), _TRADE_NAMES.split()
Draw = Callable[[random.Random, int], Value]
"""A column's value for a 0-based row."""


class SampleColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column and its rule."""

    name: str
    type: str
    rule: str

    @property
    def parent(self) -> str:
        """The table a foreign key points at; empty for any other column."""
        return self.rule.split(":")[1].split("?")[0] if self.rule.startswith("fk:") else ""


class SampleTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table, its columns and how many rows it gets."""

    name: str
    rows: int
    columns: tuple[SampleColumn, ...]

    @property
    def key(self) -> str:
        """The primary key's column."""
        return next(column.name for column in self.columns if column.rule == "pk")


def parse_tables(text: str) -> list[SampleTable]:
    """The tables that `text` describes. Raises ValueError for a line that says nothing."""
    tables: list[SampleTable] = []
    for line in filter(str.strip, text.splitlines()):
        if not line[0].isspace():
            name, rows = line.split()
            tables.append(SampleTable(name=name, rows=int(rows), columns=()))
            continue
        found = _COLUMN.fullmatch(line)
        if not found or not tables:
            raise ValueError(f"not a table or a column: {line!r}")
        column = SampleColumn(
            name=found["quoted"] or found["bare"], type=found["type"], rule=found["rule"]
        )
        last = tables[-1]
        tables[-1] = msgspec.structs.replace(last, columns=(*last.columns, column))
    return tables


def iter_rows(
    table: SampleTable, sizes: dict[str, int], generator: random.Random
) -> Iterator[dict[str, Value]]:
    """The table's rows as objects; `sizes` holds the number of rows of every table."""
    draws = [(column.name, draw_of(column.rule, sizes)) for column in table.columns]
    for row in range(table.rows):
        yield {name: draw(generator, row) for name, draw in draws}


def draw_of(rule: str, sizes: dict[str, int]) -> Draw:
    """The function behind a rule. Raises ValueError for a rule that is not in the table."""
    plain, _, missing = rule.partition("?")
    word, *arguments = plain.split(":", 1)
    if word not in _RULES:
        raise ValueError(f"no rule {word!r}; known: {', '.join(sorted(_RULES))}")
    draw = _RULES[word](arguments[0] if arguments else "", sizes)
    if not missing:
        return draw
    share = float(missing)
    return lambda generator, row: None if generator.random() < share else draw(generator, row)


def _key(argument: str, sizes: dict[str, int]) -> Draw:
    return lambda generator, row: row + 1


def _foreign_key(argument: str, sizes: dict[str, int]) -> Draw:
    parent, _, missing = argument.partition(":")
    share, size = float(missing or 0), sizes[parent]

    def draw(generator: random.Random, row: int) -> Value:
        absent = not size or (share and generator.random() < share)
        return None if absent else generator.randrange(size) + 1

    return draw


def _integer(argument: str, sizes: dict[str, int]) -> Draw:
    low, high = map(int, argument.split(":"))
    return lambda generator, row: generator.randint(low, high)


def _real(argument: str, sizes: dict[str, int]) -> Draw:
    low, high = map(float, argument.split(":"))
    return lambda generator, row: round(low + (high - low) * generator.random(), 2)


def _flag(argument: str, sizes: dict[str, int]) -> Draw:
    return lambda generator, row: int(generator.random() < 0.3)


def _pick(argument: str, sizes: dict[str, int]) -> Draw:
    words = argument.split("|")
    numbers = all(word.isdigit() for word in words)
    values: list[Value] = [int(word) if numbers else word for word in words]
    return lambda generator, row: generator.choice(values)


def _cycle(argument: str, sizes: dict[str, int]) -> Draw:
    words = argument.split("|")
    return lambda generator, row: words[row % len(words)]


def _unique(argument: str, sizes: dict[str, int]) -> Draw:
    words = argument.split("|")

    def draw(generator: random.Random, row: int) -> Value:
        return words[row] if row < len(words) else f"{words[row % len(words)]} {row}"

    return draw


def _code(argument: str, sizes: dict[str, int]) -> Draw:
    return lambda generator, row: f"{argument}-{row + 1:04}"


def _date(argument: str, sizes: dict[str, int]) -> Draw:
    first, last = (int(year) for year in argument.split(":"))
    start = date(first, 1, 1)
    days = (date(last, 12, 31) - start).days
    return lambda generator, row: (start + timedelta(generator.randint(0, days))).isoformat()


def _person(argument: str, sizes: dict[str, int]) -> Draw:
    return lambda generator, row: f"{generator.choice(_FIRST)} {generator.choice(_LAST)}"


def _company(argument: str, sizes: dict[str, int]) -> Draw:
    return lambda generator, row: f"{generator.choice(_LAST)} {generator.choice(_TRADES)}"


_RULES: dict[str, Callable[[str, dict[str, int]], Draw]] = {
    "pk": _key,
    "fk": _foreign_key,
    "int": _integer,
    "real": _real,
    "flag": _flag,
    "pick": _pick,
    "cycle": _cycle,
    "uniq": _unique,
    "code": _code,
    "date": _date,
    "person": _person,
    "company": _company,
}
