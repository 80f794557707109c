"""Planted schema leaks: 70 published schemas, each changed in one of ten ways by a seed.

The set was fixed before any threshold was chosen. What it is made from is the shared data: the
schemas of Spider dev, BIRD dev and KaggleDBQA, twelve of them with rows, and MachineSpider's own
German translations of four.
"""

import json
import random
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from envbuild.engine.seeds import derived_random
from envbuild.schema.read import read_schema_of
from envbuild.sql.connect import open_read_only, quote_name
from tests.shared import shared_data

_WORDS: Any = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
A_SHAPE = 7
MAX_ROWS = 400
"""Rows of a table that a planted copy keeps."""
SPIDER_DEV: list[str] = _WORDS["sets"]["spider_dev"]
KNOWN = (
    ("formula_1", "formula_1"),
    ("soccer_1", "european_football_2"),
    ("baseball_1", "TheHistoryofBaseball"),
)
"""Real pairs of Spider's training side and BIRD dev or KaggleDBQA: one database, two names."""
SHARED_STUDENTS = tuple((name, "pets_1") for name in _WORDS["sets"]["same_students_as_pets_1"])
"""Real pairs of Spider's training side and Spider dev: the same table of the same students."""


class Planted(NamedTuple):
    """One schema: its tables with columns and rows."""

    shape: str
    db_id: str
    source: str
    """The schema it was made from."""
    tables: dict[str, dict[str, str]]
    """Table -> column -> declared type."""
    keys: dict[str, tuple[str, ...]]
    """Table -> primary key."""
    links: tuple[tuple[str, str], ...]
    """Child and parent tables of foreign keys."""
    rows: dict[str, list[tuple[object, ...]]]

    def script(self) -> str:
        """The statements that make it."""
        said = []
        for table, columns in self.tables.items():
            parts = [f"{quote_name(name)} {kind}" for name, kind in columns.items()]
            if own := self.keys.get(table):
                parts.append(f"PRIMARY KEY ({', '.join(map(quote_name, own))})")
            said.append(f"CREATE TABLE {quote_name(table)} ({', '.join(parts)})")
            for row in self.rows.get(table, ()):
                values = ", ".join(map(_literal, row))
                said.append(f"INSERT OR IGNORE INTO {quote_name(table)} VALUES ({values})")
        return ";\n".join(said) + ";"


def planted_schemas() -> list[Planted]:
    """The 70, in the order of SHAPES."""
    plain = [from_record(record) for record in benchmark_records()]
    filled = [_from_file(path) for path in files_with_rows()]
    found = []
    for shape, change in SHAPES.items():
        chance = derived_random(14, shape, "planted")
        pool = filled if shape in WITH_ROWS else plain
        able = [one for one in pool if _is_able(shape, one)]
        german = _german() if shape == "translated" else []
        chosen = chance.sample(able, A_SHAPE - len(german))
        made = german + [change(one, chance) for one in chosen]
        found += [
            one._replace(shape=shape, db_id=f"{shape}_{number}") for number, one in enumerate(made)
        ]
    return found


def benchmark_records() -> list[dict[str, Any]]:
    """The 39 records of tables.json that the planted ones are made from."""
    spider = [one for one in _records("spider_tables.json") if one["db_id"] in SPIDER_DEV]
    return [*spider, *_records("bird_dev_tables.json"), *_records("kaggledbqa_tables.json")]


def training_records() -> list[dict[str, Any]]:
    """Spider's other 146 records: the same fields of life, but for KNOWN and SHARED_STUDENTS."""
    return [one for one in _records("spider_tables.json") if one["db_id"] not in SPIDER_DEV]


def _records(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(shared_data("leaks", name).read_text())
    return sorted(found, key=lambda record: str(record["db_id"]))


def files_with_rows() -> list[Path]:
    spider = sorted(shared_data("spider", "database").glob("*/*.sqlite"))
    return [*spider, *sorted(shared_data("bird", "dev_databases").glob("*/*.sqlite"))]


def _german() -> list[Planted]:
    return [
        _from_file(path)
        for path in sorted(shared_data("machinespider_de", "database").glob("*/*.sqlite"))
    ]


def from_record(record: dict[str, Any]) -> Planted:
    names = record["table_names_original"]
    columns = record["column_names_original"]
    tables: dict[str, dict[str, str]] = {name: {} for name in names}
    keys: dict[str, tuple[str, ...]] = {}
    for (table, column), kind in zip(columns, record["column_types"], strict=True):
        if table >= 0:
            tables[names[table]][column] = {"number": "INTEGER", "time": "DATE"}.get(kind, kind)
    for key in record["primary_keys"]:
        places = key if isinstance(key, list) else [key]
        keys[names[columns[places[0]][0]]] = tuple(columns[place][1] for place in places)
    tables.pop("sqlite_sequence", None)
    links = {(names[columns[c][0]], names[columns[p][0]]) for c, p in record["foreign_keys"]}
    return Planted("", "", record["db_id"], tables, keys, tuple(sorted(links)), {})


def _from_file(path: Path) -> Planted:
    schema = read_schema_of(path)
    with open_read_only(path) as connection:
        rows = {
            table.name: connection.execute(
                f"SELECT * FROM {quote_name(table.name)} LIMIT {MAX_ROWS}"
            ).fetchall()
            for table in schema.tables
        }
    return Planted(
        "",
        "",
        path.stem,
        {table.name: {c.name: c.type for c in table.columns} for table in schema.tables},
        {table.name: table.primary_key for table in schema.tables},
        tuple(sorted({(key.child, key.parent) for key in schema.foreign_keys})),
        rows,
    )


def _is_able(shape: str, one: Planted) -> bool:
    if shape == "subset":
        return len(one.tables) >= 3
    if shape == "merged":
        return any(child != parent for child, parent in one.links)
    if shape == "split":
        return any(len(columns) >= 6 for columns in one.tables.values())
    return True


# The ten ways.


def rename_tables(one: Planted, chance: random.Random) -> Planted:
    """Every table called otherwise, its columns as they were."""
    return _renamed(one, lambda table: _words(table, SYNONYMS, "_info"), lambda _, column: column)


def rename_columns(one: Planted, chance: random.Random) -> Planted:
    """Every column called otherwise, and the rows as they were."""
    return _renamed(
        one,
        lambda table: table,
        lambda _, column: _words(column, SYNONYMS, "_field"),
    )


def take_subset(one: Planted, chance: random.Random) -> Planted:
    """Three fifths of the tables."""
    count = max(2, round(0.6 * len(one.tables)))
    kept = sorted(chance.sample(sorted(one.tables), count))
    return one._replace(tables={name: one.tables[name] for name in kept})


def merge_tables(one: Planted, chance: random.Random) -> Planted:
    """Child tables joined with their parents: one table of both's columns."""
    tables, keys, gone = dict(one.tables), dict(one.keys), set()
    for child, parent in one.links:
        if child == parent or child in gone or parent in gone:
            continue
        tables[f"{child}_{parent}"] = {**tables.pop(parent), **tables.pop(child)}
        gone |= {child, parent}
    return one._replace(tables=tables, keys={name: keys[name] for name in tables if name in keys})


def retype(one: Planted, chance: random.Random) -> Planted:
    """Other types, and no keys."""
    kinds = ("VARCHAR(255)", "BIGINT", "DOUBLE PRECISION", "TIMESTAMP")
    tables = {
        table: {column: chance.choice(kinds) for column in columns}
        for table, columns in one.tables.items()
    }
    return one._replace(tables=tables, keys={})


def split_tables(one: Planted, chance: random.Random) -> Planted:
    """Every table of six columns and more as two, its first column in both."""
    tables = {}
    for table, columns in one.tables.items():
        names = list(columns)
        if len(names) < 6:
            tables[table] = columns
            continue
        middle = len(names) // 2
        tables[f"{table}_main"] = {name: columns[name] for name in names[:middle]}
        tables[f"{table}_detail"] = {name: columns[name] for name in [names[0], *names[middle:]]}
    return one._replace(tables=tables, keys={})


def translate(one: Planted, chance: random.Random) -> Planted:
    """German names of tables and columns, and the rows as they were."""
    return _renamed(
        one,
        lambda table: _words(table, GERMAN, "_tabelle"),
        lambda _, column: _words(column, GERMAN, "_feld"),
    )


def restyle(one: Planted, chance: random.Random) -> Planted:
    """snake_case as camelCase and the other way round; tables in the plural, or no longer."""

    def plural(name: str) -> str:
        return name[:-1] if name.endswith("s") and not name.endswith("ss") else f"{name}s"

    def style(name: str) -> str:
        words = split_words(name)
        if "_" in name:
            return words[0] + "".join(word.title() for word in words[1:])
        return "_".join(words)

    return _renamed(one, lambda table: plural(style(table)), lambda _, column: style(column))


def add_prefixes(one: Planted, chance: random.Random) -> Planted:
    """tbl_ before every table, and the table's first letters before its columns."""
    return _renamed(
        one,
        lambda table: f"tbl_{table}",
        lambda table, column: f"{split_words(table)[0][:4]}_{column}",
    )


def add_columns(one: Planted, chance: random.Random) -> Planted:
    """Half as many columns again, and a table that was not there."""
    tables = {}
    for table, columns in one.tables.items():
        extra = chance.sample(EXTRA_COLUMNS, min(len(EXTRA_COLUMNS), 1 + len(columns) // 2))
        tables[table] = {**columns, **{name: "TEXT" for name in extra if name not in columns}}
    tables["audit_log"] = {"log_id": "INTEGER", "actor": "TEXT", "action": "TEXT", "at": "TEXT"}
    return one._replace(tables=tables)


SHAPES: dict[str, Callable[[Planted, random.Random], Planted]] = {
    "renamed_tables": rename_tables,
    "renamed_columns": rename_columns,
    "subset": take_subset,
    "merged": merge_tables,
    "retyped": retype,
    "split": split_tables,
    "translated": translate,
    "restyled": restyle,
    "prefixed": add_prefixes,
    "extra_columns": add_columns,
}
WITH_ROWS = ("renamed_columns", "translated")


def _renamed(
    one: Planted, table_name: Callable[[str], str], column_name: Callable[[str, str], str]
) -> Planted:
    names = _distinct(one.tables, table_name)
    tables, keys = {}, {}
    for table, columns in one.tables.items():
        own = _distinct(columns, lambda column, table=table: column_name(table, column))
        tables[names[table]] = {own[column]: kind for column, kind in columns.items()}
        keys[names[table]] = tuple(own[column] for column in one.keys.get(table, ()))
    rows = {names[table]: found for table, found in one.rows.items()}
    links = tuple((names[child], names[parent]) for child, parent in one.links)
    return one._replace(tables=tables, keys=keys, rows=rows, links=links)


def _distinct(names: dict, rename: Callable[[str], str]) -> dict[str, str]:
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        new = rename(name)
        while new.lower() in taken:
            new += "_2"
        taken.add(new.lower())
        found[name] = new
    return found


def split_words(name: str) -> list[str]:
    """`Student_ID` as student, id; `zipCode` as zip, code."""
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+", name)
    return [word.lower() for word in found] or [name.lower()]


def _words(name: str, table: dict[str, str], ending: str) -> str:
    """The name in other words; with an ending where no word of it is in the table."""
    words = split_words(name)
    others = [table.get(word) or table.get(word.rstrip("s")) or word for word in words]
    return "_".join(others) if others != words else "_".join(words) + ending


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + str(value).replace("'", "''") + "'"


EXTRA_COLUMNS = (
    "created_at", "updated_at", "created_by", "updated_by", "is_deleted", "remarks", "version",
    "external_ref", "import_batch", "row_hash", "tenant_code", "approved_on", "archived",
    "display_order", "locale", "checksum", "source_system", "sync_state", "owner_team",
    "legacy_code", "review_state", "valid_from", "valid_to", "tags_json", "priority_level",
)  # fmt: skip
SYNONYMS: dict[str, str] = _WORDS["schema_english"]
"""Word -> another English word for it."""
GERMAN: dict[str, str] = _WORDS["schema_german"]
"""Word -> a German word for it."""
