"""Synthetic databases: a small language of tables, rows drawn by seed alone, a SQLite file.

loan 2600                       a table and its number of rows
  loan_id INTEGER pk            1, 2, 3, …
  copy_id INTEGER fk:copy       a row of that table (`fk:copy:0.1`: a tenth of them NULL)
  days INTEGER int:1:70?0.2     a number of this range, a fifth of them NULL
"""

import random
import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path

import msgspec

from envbuild.records.execution import Value
from envbuild.sql.connect import quote_name
from envbuild.sql.files.create import finish, insert_rows, insert_sql, open_new, run_statement

_COLUMN = re.compile(r'\s*(?:"(?P<quoted>[^"]+)"|(?P<bare>\w+))\s+(?P<type>\w+)\s+(?P<rule>.+)')
_FIRST_NAMES = str.split(
    "Ada Bela Carlo Dina Emil Fatou Goran Hana Ines Jonas Kaya Lena Marek Nadia Olav Priya Rosa "
    "Sami Tove Ugo Vera Wanda Yara Zeno"
)
_LAST_NAMES = str.split(
    "Ahlberg Brandt Castro Dube Eriksen Ferri Grant Holm Ivanov Jansen Keller Lindqvist Moretti "
    "Novak Okoye Petrov Quist Rossi Silva Tanaka Ueda Varga Weber Zimmer"
)
_TRADES = str.split("Foods Trading Works Supply Logistics Textiles Metals Energy Stores Partners")
Draw = Callable[[random.Random, int], Value]
"""A column's value for a 0-based row."""


class SampleColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column and the rule behind its values."""

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


class SampleDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """One database before it is written in some layout."""

    db_id: str
    tables: tuple[SampleTable, ...]
    rows: dict[str, list[dict[str, Value]]]
    """Table -> its rows."""

    @property
    def statements(self) -> list[str]:
        """One CREATE TABLE statement a table."""
        keys = {table.name: table.key for table in self.tables}
        return [_create_table(table, keys) for table in self.tables]


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
        columns = (*tables[-1].columns, column)
        tables[-1] = msgspec.structs.replace(tables[-1], columns=columns)
    return tables


def make_database(
    db_id: str, tables: Sequence[SampleTable], *, seed: str, orphans: Sequence[str] = ()
) -> SampleDatabase:
    """The database with rows drawn by `seed`; each of `orphans` is `table.column count`.

    That many of the column's cells point past the last row of the parent.
    """
    generator = random.Random(seed)
    sizes = {table.name: table.rows for table in tables}
    rows: dict[str, list[dict[str, Value]]] = {}
    for table in tables:
        draws = [(column.name, _draw_of(column.rule, sizes)) for column in table.columns]
        rows[table.name] = [
            {name: draw(generator, row) for name, draw in draws} for row in range(table.rows)
        ]
    for orphan in orphans:
        place, count = orphan.split()
        name, column = place.split(".")
        for row in generator.sample(rows[name], min(int(count), len(rows[name]))):
            row[column] = 900_000 + generator.randrange(1000)
    return SampleDatabase(db_id=db_id, tables=tuple(tables), rows=rows)


def write_sqlite(database: SampleDatabase, path: Path) -> None:
    """Writes the database as a SQLite file, orphans and all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    connection = open_new(path)
    try:
        for statement in database.statements:
            run_statement(connection, statement)
        for table in database.tables:
            insert = insert_sql(table.name, [column.name for column in table.columns])
            rows = [tuple(row.values()) for row in database.rows[table.name]]
            for refusal in insert_rows(connection, insert, rows, mend=lambda row: row):
                raise ValueError(f"{table.name}: {refusal.detail}")
        finish(connection)
    finally:
        connection.close()


def _draw_of(rule: str, sizes: dict[str, int]) -> Draw:
    """The function behind a rule; what stands after `?` is the share of NULL."""
    plain, _, missing = rule.partition("?")
    draw = _plain_draw_of(plain, sizes)
    if not missing:
        return draw
    share = float(missing)
    return lambda generator, row: None if generator.random() < share else draw(generator, row)


def _plain_draw_of(rule: str, sizes: dict[str, int]) -> Draw:
    word, _, argument = rule.partition(":")
    words = argument.split("|")
    match word:
        case "pk":
            return lambda generator, row: row + 1
        case "fk":
            parent, _, missing = argument.partition(":")
            share, size = float(missing or 0), sizes[parent]

            def draw_key(generator: random.Random, row: int) -> Value:
                absent = not size or (share and generator.random() < share)
                return None if absent else generator.randrange(size) + 1

            return draw_key
        case "int":
            least, greatest = map(int, argument.split(":"))
            return lambda generator, row: generator.randint(least, greatest)
        case "real":
            low, high = map(float, argument.split(":"))
            return lambda generator, row: round(low + (high - low) * generator.random(), 2)
        case "flag":
            return lambda generator, row: int(generator.random() < 0.3)
        case "pick":
            numbers = all(word.isdigit() for word in words)
            values: list[Value] = [int(word) if numbers else word for word in words]
            return lambda generator, row: generator.choice(values)
        case "cycle":
            return lambda generator, row: words[row % len(words)]
        case "uniq":
            return lambda generator, row: (
                words[row] if row < len(words) else f"{words[row % len(words)]} {row}"
            )
        case "code":
            return lambda generator, row: f"{argument}-{row + 1:04}"
        case "date":
            first, last = (int(year) for year in argument.split(":"))
            start = date(first, 1, 1)
            days = (date(last, 12, 31) - start).days
            return lambda generator, row: (
                start + timedelta(generator.randint(0, days))
            ).isoformat()
        case "person":
            return lambda generator, row: (
                f"{generator.choice(_FIRST_NAMES)} {generator.choice(_LAST_NAMES)}"
            )
        case "company":
            return lambda generator, row: (
                f"{generator.choice(_LAST_NAMES)} {generator.choice(_TRADES)}"
            )
    raise ValueError(f"no rule {word!r} for a column")


def _create_table(table: SampleTable, keys: dict[str, str]) -> str:
    lines = [
        f"{quote_name(c.name)} {c.type}" + (" PRIMARY KEY" if c.rule == "pk" else "")
        for c in table.columns
    ]
    lines += [
        f"FOREIGN KEY ({quote_name(c.name)}) "
        f"REFERENCES {quote_name(c.parent)} ({quote_name(keys[c.parent])})"
        for c in table.columns
        if c.parent
    ]
    return f"CREATE TABLE {quote_name(table.name)} (\n  " + ",\n  ".join(lines) + "\n)"
