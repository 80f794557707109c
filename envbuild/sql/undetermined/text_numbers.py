"""Numbers stored as text, read as numbers: as text '95' follows '150', and 'null' counts as 0."""

import re
from collections import Counter
from pathlib import Path

from envbuild.records.corpus import Schema
from envbuild.records.execution import Limits, Row, Rows, Value
from envbuild.sql.connect import Connection, iter_rows, open_read_only, quote_name
from envbuild.sql.executor import Session
from envbuild.sql.names import fold_name

PLACEHOLDERS = ("", "null", "na", "n/a", "none", "nan", "-", "?", ".")
"""Texts that stand for no value in a column of numbers."""
_NUMBER = re.compile(r"-?[0-9]*\.?[0-9]+")


def number_columns(connection: Connection, schema: Schema) -> dict[str, tuple[str, ...]]:
    """Table -> its columns of text whose every value is a number or stands for none.

    A number with leading zeros is a code. A column needs two numbers of which one is text.
    """
    found: dict[str, tuple[str, ...]] = {}
    for table in schema.tables:
        named = [c.name for c in table.columns if _holds_numbers(connection, table.name, c.name)]
        if named:
            found[table.name] = tuple(named)
    return found


def open_as_numbers(
    path: Path, schema: Schema, columns: dict[str, tuple[str, ...]], *, limits: Limits
) -> Session:
    """A session that reads these columns as numbers, and what stands for none as NULL."""
    connection = open_read_only(path)
    for table in schema.tables:
        if named := columns.get(table.name):
            listed = ", ".join(
                _as_number(quote_name(c.name)) if c.name in named else quote_name(c.name)
                for c in table.columns
            )
            name = quote_name(table.name)
            connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {listed} FROM main.{name}")
    return Session(connection, limits=limits)


def same_numbers(one: Rows, other: Rows) -> bool:
    """Whether two results are equal as multisets once their texts of numbers are numbers."""
    return Counter(map(_read, one)) == Counter(map(_read, other))


def named_columns(columns: dict[str, tuple[str, ...]]) -> frozenset[str]:
    """The folded names of all these columns."""
    return frozenset(fold_name(name) for named in columns.values() for name in named)


def _holds_numbers(connection: Connection, table: str, column: str) -> bool:
    name, source = quote_name(column), quote_name(table)
    number = (
        f"({name} NOT GLOB '*[^0-9.-]*' AND {name} GLOB '*[0-9]' AND {name} NOT GLOB '*.*.*'"
        f" AND {name} NOT GLOB '?*-*' AND {name} NOT GLOB '0[0-9]*' AND {name} NOT GLOB '-0[0-9]*')"
    )
    text = f"typeof({name}) = 'text'"
    other = (
        f"SELECT 1 FROM {source} WHERE typeof({name}) = 'blob'"
        f" OR {text} AND NOT {_stands_for_none(name)} AND NOT {number} LIMIT 1"
    )
    if list(iter_rows(connection, other)):
        return False
    some = f"SELECT DISTINCT {name} FROM {source} WHERE {text} AND {number} LIMIT 2"
    return len(list(iter_rows(connection, some))) > 1


def _stands_for_none(name: str) -> str:
    listed = ", ".join(f"'{text}'" for text in PLACEHOLDERS)
    return f"lower(trim({name})) IN ({listed})"


def _as_number(name: str) -> str:
    read = f"CASE WHEN {_stands_for_none(name)} THEN NULL ELSE {name} END"
    return f"CAST({read} AS NUMERIC) AS {name}"


def _read(row: Row) -> Row:
    return tuple(map(_number, row))


def _number(value: Value) -> Value:
    if isinstance(value, str):
        if _NUMBER.fullmatch(value):
            return float(value)
        return None if value.strip().lower() in PLACEHOLDERS else value
    return round(value, 9) if isinstance(value, float) else value
