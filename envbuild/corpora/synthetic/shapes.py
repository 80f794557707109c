"""Synthetic sources: random ones in the proportions of the real corpora, and the declared demo."""

import math
import random
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.source import recognise
from envbuild.corpora.synthetic.database import (
    SampleColumn,
    SampleDatabase,
    SampleTable,
    make_database,
    parse_tables,
)
from envbuild.corpora.synthetic.layouts import WRITERS
from envbuild.corpora.synthetic.questions import SampleQuestion, make_questions
from envbuild.errors import OutputError, SourceError, UnknownNameError
from envbuild.io.files import writing

DEMO_CORPORA = ("sqale", "synsql", "bird")
DEMO_SEED = 20240607
_NOUNS = str.split(
    "account address agent aisle album asset audit badge batch bid bill board bond branch bundle "
    "cabin campaign carrier cart channel claim client clinic coach contract county course court "
    "crew crop customer dealer deposit depot device dock donor driver engine entry event exam "
    "expense factory farm fee fleet flight fund garden gate grant guest harbor hotel invoice issue "
    "journal kiosk lab lease lecture lesson license loan lot machine market meter mission model "
    "module note offer orchard outlet owner parcel park patent patient permit pilot plan plant "
    "player policy project quota quote ranger receipt recipe region rental repair review reward "
    "ride route sample school season sensor session ship shift shop site skill sponsor stadium "
    "store survey tariff team tenant terminal test ticket tour trade trail tutor unit vendor venue "
    "vessel visit voucher ward warehouse well worker zone"
)
_ATTRIBUTES = (
    ("name", "TEXT", "person"),
    ("label", "TEXT", "code:LB"),
    ("status", "TEXT", "pick:open|open|open|closed|on hold|cancelled"),
    ("kind", "TEXT", "pick:basic|standard|premium|internal"),
    ("city", "TEXT", "pick:Leeds|Porto|Lyon|Turin|Oslo|Gdansk|Izmir|Cork"),
    ("created_on", "DATE", "date:2019:2024"),
    ("updated_on", "DATE", "date:2022:2024?0.2"),
    ("amount", "REAL", "real:1:5000"),
    ("rate", "REAL", "real:0:1?0.1"),
    ("quantity", "INTEGER", "int:0:400"),
    ("score", "INTEGER", "int:1:100"),
    ("priority", "INTEGER", "pick:1|2|3|4|5"),
    ("active", "INTEGER", "flag"),
    ("notes", "TEXT", "company?0.3"),
)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The proportions of one corpus."""

    tables: tuple[int, int]
    """Fewest and most tables a database."""
    columns: tuple[int, int]
    """Fewest and most plain columns a table, beside its keys."""
    rows: float
    """Median rows a table."""
    spread: float
    """Sigma of the log-normal around it; 0 gives every table the median."""
    empty: float
    """Share of tables without rows."""
    questions: int
    """Questions a database."""


SHAPES = {
    "sqale": Shape(
        tables=(50, 100), columns=(5, 11), rows=72, spread=0.6, empty=0.05, questions=20
    ),
    "synsql": Shape(tables=(5, 10), columns=(3, 7), rows=2, spread=0, empty=0, questions=12),
    "bird": Shape(tables=(4, 12), columns=(4, 9), rows=927, spread=1.6, empty=0, questions=40),
}
MAX_ROWS = 1_000_000


class SynthSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    shape: str
    out: str
    databases: int
    tables: int
    rows: int
    questions: int


def write_shape(shape: str, out: Path, *, databases: int, seed: int) -> SynthSummary:
    """Writes `databases` databases of `shape` (sqale, synsql, bird) into `out`, by seed alone.

    Raises UnknownNameError for another shape, OutputError where `out` cannot be written or holds
    a source of another layout: in one folder the two would be read as one.
    """
    corpus = iter_shape(shape, databases=databases, seed=seed)
    try:
        there = recognise(out) if out.is_dir() else shape
    except SourceError:  # nothing that is read as a source
        there = shape
    if there != shape:
        raise OutputError(f"{out} holds a source already, read as {there}: choose another --out")
    counts = {"databases": 0, "tables": 0, "rows": 0, "questions": 0}

    def counted() -> Iterator[tuple[SampleDatabase, list[SampleQuestion]]]:
        for database, questions in corpus:
            counts["databases"] += 1
            counts["tables"] += len(database.tables)
            counts["rows"] += sum(map(len, database.rows.values()))
            counts["questions"] += len(questions)
            yield database, questions

    with writing(out):
        WRITERS[shape](counted(), out, seed=seed)
    return SynthSummary(shape=shape, out=str(out), **counts)


def write_demo_sources(out: Path) -> list[Path]:
    """Writes the three demo sources into `out`; their paths, ready for `materialize`.

    They are small corpora of our own with the flaws that real ones have, declared in `demo/`, and
    the same each time. Raises OutputError where `out` cannot be written.
    """
    sources = []
    for corpus in DEMO_CORPORA:
        text = files("envbuild.corpora.demo").joinpath(f"{corpus}.toml").read_text("utf-8")
        demo = tomllib.loads(text)
        source = Path(out) / demo["name"]
        pairs = []
        for database in demo["database"]:
            made = make_database(
                database["db_id"],
                parse_tables(database["tables"]),
                seed=f"{DEMO_SEED}/{demo['name']}/{database['db_id']}",
                orphans=database.get("orphans", ()),
            )
            asked = [q for q in demo["question"] if q["db"] == made.db_id]
            pairs.append((made, [filled for q in asked for filled in _fill(q)]))
        with writing(source):
            WRITERS[demo["layout"]](pairs, source, seed=DEMO_SEED)
        sources.append(source)
    return sources


def _fill(declared: dict[str, Any]) -> Iterator[SampleQuestion]:
    """A declared question once for every set of values that fills its blanks."""
    for values in declared.get("values", [{}]):

        def filled(name: str, values: dict[str, Any] = values) -> str:
            text: str = declared.get(name, "")
            for blank, value in values.items():
                text = text.replace("{" + blank + "}", str(value))
            return text

        yield SampleQuestion(
            db_id=declared["db"],
            text=filled("text"),
            sql=filled("sql"),
            difficulty=declared["difficulty"],
            style=declared.get("style", ""),
            evidence=filled("evidence"),
            placeholder=declared.get("placeholder", ""),
        )


def iter_shape(
    name: str, *, databases: int, seed: int
) -> Iterator[tuple[SampleDatabase, list[SampleQuestion]]]:
    """Databases of the shape `name` with their questions; each depends on (seed, number) alone.

    Raises UnknownNameError for a shape that is not known.
    """
    if name not in SHAPES:
        raise UnknownNameError("shape", name, SHAPES)
    return (_database(name, number, seed) for number in range(databases))


def _database(name: str, number: int, seed: int) -> tuple[SampleDatabase, list[SampleQuestion]]:
    shape = SHAPES[name]
    generator = random.Random(f"{seed}/{name}/{number}")
    nouns = generator.sample(_NOUNS, len(_NOUNS))
    count = generator.randint(*shape.tables)
    tables: list[SampleTable] = []
    for place in range(count):
        noun = nouns[place % len(nouns)] + ("_log" if place >= len(nouns) else "")
        tables.append(_table(noun, tables, shape, generator))
    db_id = f"{nouns[0]}_{nouns[1]}_{number:05}"
    database = make_database(db_id, tables, seed=f"{seed}/{name}/{number}/rows")
    return database, make_questions(database, shape.questions, generator)


def _table(
    noun: str, earlier: list[SampleTable], shape: Shape, generator: random.Random
) -> SampleTable:
    columns = [SampleColumn(name=f"{noun}_id", type="INTEGER", rule="pk")]
    parents = generator.sample(earlier, min(len(earlier), generator.choice((1, 1, 2, 3))))
    columns += [
        SampleColumn(name=parent.key, type="INTEGER", rule=f"fk:{parent.name}:0.03")
        for parent in parents
    ]
    wanted = generator.randint(*shape.columns)
    chosen = sorted(generator.sample(range(len(_ATTRIBUTES)), wanted))
    columns += [
        SampleColumn(name=name, type=kind, rule=rule)
        for name, kind, rule in (_ATTRIBUTES[place] for place in chosen)
    ]
    return SampleTable(name=noun, rows=_rows(shape, generator), columns=tuple(columns))


def _rows(shape: Shape, generator: random.Random) -> int:
    if generator.random() < shape.empty:
        return 0
    if not shape.spread:
        return int(shape.rows)
    drawn = generator.lognormvariate(math.log(shape.rows), shape.spread)
    return max(1, min(MAX_ROWS, round(drawn)))
