"""Synthetic sources by seed alone: random ones in the real corpora's proportions, and the demo's.

Tables are described in a small language:

loan 2600                       a table and its number of rows
  loan_id INTEGER pk            1, 2, 3, …
  copy_id INTEGER fk:copy       a row of that table (`fk:copy:0.1`: a tenth of them NULL)
  days INTEGER int:1:70?0.2     a number of this range, a fifth of them NULL
"""

import csv
import json
import random
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date
from importlib.resources import files
from itertools import chain, count, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from envbuild.corpora.source import recognise
from envbuild.errors import OutputError, SourceError, UnknownNameError
from envbuild.io.files import atomic_path, writing
from envbuild.io.parquet import write_batches
from envbuild.records.execution import Value
from envbuild.sql.connect import quote_name
from envbuild.sql.execution.session import Session
from envbuild.sql.files.create import finish, insert_rows, insert_sql, open_new, run_statement
from envbuild.sql.names import fold_name
from envbuild.sql.tokens import iter_code, unquote

DEMO_CORPORA = ("sqale", "synsql", "bird")
DEMO_SEED = 20240607
STORED_ROWS = 50
STYLES = (
    "verbose",
    "evidence_supported",
    "structured",
    "requirements_list",
    "short_ambiguous",
    "short_high_level",
    "casual",
    "spelling_grammar_mistakes",
)
_NOUNS = str.split(
    "account agent album asset badge batch bid branch cabin cargo channel claim clinic coach "
    "course crew crop depot donor engine exam farm fleet fund garden grant harbor hotel invoice "
    "lab lease machine meter mission offer orchard parcel patient permit pilot plant project"
)
_FIRST_NAMES = str.split(
    "Ada Bela Carlo Dina Emil Fatou Goran Hana Ines Jonas Kaya Lena Marek Nadia Olav Priya Rosa "
    "Sami Tove Ugo Vera Wanda Yara Zeno"
)
_LAST_NAMES = str.split(
    "Ahlberg Brandt Castro Dube Eriksen Ferri Grant Holm Ivanov Jansen Keller Lindqvist Moretti "
    "Novak Okoye Petrov Quist Rossi Silva Tanaka Ueda Varga Weber Zimmer"
)
_TRADES = str.split("Foods Trading Works Supply Logistics Textiles Metals Energy Stores Partners")
_ATTRIBUTES = """\
  name TEXT person
  status TEXT pick:open|open|open|closed|on hold|cancelled
  kind TEXT pick:basic|standard|premium|internal
  city TEXT pick:Leeds|Porto|Lyon|Turin|Oslo|Gdansk|Izmir|Cork
  created_on DATE date:2019:2024
  due_on DATE date:2022:2024?0.2
  amount REAL real:1:5000
  quantity INTEGER int:0:400
  score INTEGER int:1:100
  active INTEGER flag
  notes TEXT company?0.3
""".splitlines()
_COLUMN = re.compile(r'\s+(?:"(?P<quoted>[^"]+)"|(?P<bare>\w+))\s+(?P<type>\w+)\s+(?P<rule>.+)')


class Shape(NamedTuple):
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
    """Questions a database, at most: those that were drawn twice count once."""


SHAPES = {
    "sqale": Shape((50, 100), (5, 11), rows=72, spread=0.6, empty=0.05, questions=20),
    "synsql": Shape((5, 10), (3, 7), rows=2, spread=0, empty=0, questions=12),
    "bird": Shape((4, 12), (4, 9), rows=927, spread=1.6, empty=0, questions=40),
}


class SampleColumn(NamedTuple):
    """One column and the rule behind its values."""

    name: str
    type: str
    rule: str

    @property
    def parent(self) -> str:
        """The table a foreign key points at; empty for any other column."""
        return re.split("[:?]", self.rule)[1] if self.rule.startswith("fk:") else ""


class SampleTable(NamedTuple):
    """One table, its columns and how many rows it gets; the first column is its key."""

    name: str
    rows: int
    columns: list[SampleColumn]


class SampleDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """One database before it is written in some layout."""

    db_id: str
    tables: list[SampleTable]
    rows: dict[str, list[dict[str, Value]]]
    """Table -> its rows."""

    @property
    def statements(self) -> list[str]:
        """One CREATE TABLE statement a table."""
        keys = {table.name: quote_name(table.columns[0].name) for table in self.tables}
        statements = []
        for table in self.tables:
            named = [(quote_name(column.name), column) for column in table.columns]
            lines = [f"{n} {c.type}{' PRIMARY KEY' * (c.rule == 'pk')}" for n, c in named]
            lines += [
                f"FOREIGN KEY ({n}) REFERENCES {quote_name(c.parent)} ({keys[c.parent]})"
                for n, c in named
                if c.parent
            ]
            listed = ",\n  ".join(lines)
            statements.append(f"CREATE TABLE {quote_name(table.name)} (\n  {listed}\n)")
        return statements


class SampleQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question about a sample database, in no layout yet."""

    text: str
    sql: str
    difficulty: str = ""
    style: str = ""
    evidence: str = ""
    placeholder: str = ""
    """A SQaLe phrasing that was never written: it reads `...`."""


Corpus = Iterable[tuple[SampleDatabase, Sequence[SampleQuestion]]]
"""Databases one by one, each with the questions about it."""


class SynthSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    shape: str
    out: str
    databases: int = 0
    tables: int = 0
    rows: int = 0
    questions: int = 0


def write_shape(shape: str, out: Path, *, databases: int, seed: int) -> SynthSummary:
    """Writes `databases` databases of `shape` (sqale, synsql, bird) into `out`, by seed alone.

    One database is in memory at a time. Raises UnknownNameError for another shape, OutputError
    where `out` cannot be written or holds a source of another layout: in one folder the two would
    be read as one.
    """
    if shape not in SHAPES:
        raise UnknownNameError("shape", shape, SHAPES)
    try:
        there = recognise(out) if out.is_dir() else shape
    except SourceError:  # nothing that is read as a source
        there = shape
    if there != shape:
        raise OutputError(f"{out} holds a source already, read as {there}: choose another --out")
    counts: Counter[str] = Counter()

    def counted() -> Corpus:
        for database, questions in iter_shape(shape, databases=databases, seed=seed):
            rows = sum(map(len, database.rows.values()))
            counts.update(
                databases=1, tables=len(database.tables), rows=rows, questions=len(questions)
            )
            yield database, questions

    with writing(out):
        WRITERS[shape](counted(), out)
    return SynthSummary(shape=shape, out=str(out), **counts)


def write_demo_sources(out: Path) -> list[Path]:
    """Writes the three demo sources into `out`; their paths, ready for `materialize`.

    They are small corpora of our own with the flaws that real ones have, declared in `demo/`, and
    the same each time. Raises OutputError where `out` cannot be written.
    """
    sources = []
    for corpus in DEMO_CORPORA:
        text = files("envbuild.corpora").joinpath(f"demo/{corpus}.toml").read_text("utf-8")
        demo = tomllib.loads(text)
        source = Path(out) / demo["name"]
        pairs = []
        for declared in demo["database"]:
            db_id = declared["db_id"]
            database = make_database(
                db_id,
                parse_tables(declared["tables"]),
                seed=f"{DEMO_SEED}/{demo['name']}/{db_id}",
                orphans=declared.get("orphans", ()),
            )
            asked = [question for question in demo["question"] if question["db"] == db_id]
            pairs.append((database, [filled for each in asked for filled in _fill_declared(each)]))
        with writing(source):
            WRITERS[demo["layout"]](pairs, source)
        sources.append(source)
    return sources


def _fill_declared(declared: dict[str, Any]) -> Iterator[SampleQuestion]:
    """A declared question once for every set of values that fills its blanks."""
    for values in declared.get("values", [{}]):
        filled = {k: v for k, v in declared.items() if k in SampleQuestion.__struct_fields__}
        for name in filled.keys() & {"text", "sql", "evidence"}:
            for blank, value in values.items():
                filled[name] = filled[name].replace("{" + blank + "}", str(value))
        yield SampleQuestion(**filled)


# Databases.


def iter_shape(shape: str, *, databases: int, seed: int) -> Corpus:
    """Databases of a shape with their questions; each depends on (seed, number) alone."""
    for number in range(databases):
        generator = random.Random(f"{seed}/{shape}/{number}")
        tables = parse_tables("\n".join(_draw_tables(SHAPES[shape], generator)))
        db_id = f"{tables[0].name}_{tables[1].name}_{number:05}"
        questions = _ask(tables, SHAPES[shape].questions, generator)
        yield make_database(db_id, tables, seed=f"{seed}/{shape}/{number}/rows"), questions


def _draw_tables(shape: Shape, generator: random.Random) -> Iterator[str]:
    """The lines that describe one database: a table has keys to one to three of those before it."""
    nouns = generator.sample(_NOUNS, len(_NOUNS))
    names = [noun + suffix for suffix in ("", "_log", "_item") for noun in nouns]
    for place, name in enumerate(names[: generator.randint(*shape.tables)]):
        rows = round(shape.rows * generator.lognormvariate(0, shape.spread))
        yield f"{name} {0 if generator.random() < shape.empty else max(1, rows)}"
        yield f"  {name}_id INTEGER pk"
        parents = generator.sample(names[:place], min(place, generator.choice((1, 1, 2, 3))))
        yield from (f"  {parent}_id INTEGER fk:{parent}:0.03" for parent in parents)
        yield from generator.sample(_ATTRIBUTES, generator.randint(*shape.columns))


def parse_tables(text: str) -> list[SampleTable]:
    """The tables that `text` describes. Raises ValueError for a line that says nothing."""
    tables: list[SampleTable] = []
    for line in filter(str.strip, text.splitlines()):
        if not line[0].isspace():
            name, rows = line.split()
            tables.append(SampleTable(name, int(rows), []))
        elif tables and (found := _COLUMN.fullmatch(line)):
            name = found["quoted"] or found["bare"]
            tables[-1].columns.append(SampleColumn(name, found["type"], found["rule"]))
        else:
            raise ValueError(f"not a table or a column: {line!r}")
    return tables


def make_database(
    db_id: str, tables: list[SampleTable], *, seed: str, orphans: Sequence[str] = ()
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
        place, number = orphan.split()
        name, column = place.split(".")
        for row in generator.sample(rows[name], int(number)):
            row[column] = 900_000 + generator.randrange(1000)
    return SampleDatabase(db_id=db_id, tables=tables, rows=rows)


_RULES: dict[str, Callable[[random.Random, int, list[Any]], Value]] = {
    "pk": lambda rng, row, given: row + 1,
    "fk": lambda rng, row, given: rng.randrange(*given) + 1,
    "int": lambda rng, row, given: rng.randint(*given),
    "real": lambda rng, row, given: round(given[0] + (given[1] - given[0]) * rng.random(), 2),
    "flag": lambda rng, row, given: int(rng.random() < 0.3),
    "pick": lambda rng, row, given: rng.choice(given),
    "cycle": lambda rng, row, given: given[row % len(given)],
    "uniq": lambda rng, row, given: (
        given[row] if row < len(given) else f"{given[row % len(given)]} {row}"
    ),
    "code": lambda rng, row, given: f"{given[0]}-{row + 1:04}",
    "date": lambda rng, row, given: date.fromordinal(
        rng.randint(date(given[0], 1, 1).toordinal(), date(given[1], 12, 31).toordinal())
    ).isoformat(),
    "person": lambda rng, row, given: f"{rng.choice(_FIRST_NAMES)} {rng.choice(_LAST_NAMES)}",
    "company": lambda rng, row, given: f"{rng.choice(_LAST_NAMES)} {rng.choice(_TRADES)}",
}
"""A column's value from its rule's name, for a 0-based row and what stands behind the name."""


def _draw_of(rule: str, sizes: dict[str, int]) -> Callable[[random.Random, int], Value]:
    """The function behind a rule; what stands after `?` is the share of NULL."""
    plain, _, missing = rule.partition("?")
    word, *words = re.split("[:|]", plain)
    given: list[Any] = [int(w) if w.isdigit() else float(w) if word == "real" else w for w in words]
    if word == "fk":  # `fk:copy:0.1`, or a parent without rows
        parent, missing = words[0], "".join(words[1:])
        given, missing = [sizes[parent]], missing if sizes[parent] else "1"
    share, draw = float(missing or 0), _RULES[word]
    if not share:
        return lambda rng, row: draw(rng, row, given)
    return lambda rng, row: None if rng.random() < share else draw(rng, row, given)


_TEMPLATES = (
    (
        "simple",
        "How many {child} entries belong to {parent} number {number}?",
        "SELECT COUNT(*) FROM {child} WHERE {parent}_id = {number}",
    ),
    (
        "moderate",
        "Which {parent}s other than number {number} have {child} entries? Give their id and how "
        "many these are, the largest first.",
        "SELECT p.{parent}_id, COUNT(*) AS entries FROM {child} AS c JOIN {parent} AS p "
        "ON c.{parent}_id = p.{parent}_id WHERE p.{parent}_id <> {number} GROUP BY p.{parent}_id "
        "ORDER BY entries DESC, p.{parent}_id",
    ),
    (
        "hard",
        "Which {parent}s up to number {number} have at least as many {child} entries as a {parent} "
        "has on average? Give their id and the number of entries.",
        "WITH counted AS (SELECT p.{parent}_id, COUNT(c.{child}_id) AS entries FROM {parent} AS p "
        "LEFT JOIN {child} AS c ON c.{parent}_id = p.{parent}_id GROUP BY p.{parent}_id), overall "
        "AS (SELECT AVG(entries) AS mean FROM counted) SELECT x.{parent}_id, x.entries FROM "
        "counted AS x CROSS JOIN overall AS o WHERE x.entries >= o.mean AND x.{parent}_id <= "
        "{number} ORDER BY x.entries DESC, x.{parent}_id",
    ),
)
"""Difficulty, question and gold SQL, each along a foreign key; they fall into the three buckets."""


def _ask(tables: list[SampleTable], count: int, generator: random.Random) -> list[SampleQuestion]:
    """Up to `count` different questions, along keys between tables with rows."""
    sizes = {table.name: table.rows for table in tables if table.rows}
    links = [(t.name, c.parent) for t in tables if t.rows for c in t.columns if c.parent in sizes]
    questions = {}
    for number in range(count if links else 0):
        child, parent = generator.choice(links)
        blanks = {"child": child, "parent": parent, "number": generator.randint(1, sizes[parent])}
        difficulty, text, sql = (part.format(**blanks) for part in _TEMPLATES[number % 3])
        questions[sql] = SampleQuestion(text=text, sql=sql, difficulty=difficulty, style="Formal")
    return list(questions.values())


# Layouts: as the real corpora are published, so that their readers can read them.


_PHRASINGS = pa.struct([(style, pa.string()) for style in STYLES])
_SCHEMAS = pa.schema(
    {
        **dict.fromkeys(("schema_id", "full_schema", "schema_content"), pa.string()),
        "number_of_tables": pa.int64(),
    }
)
_QUERIES = pa.schema(
    {
        **dict.fromkeys(("question_id", "schema_id", "sql", "difficulty"), pa.string()),
        "questions": _PHRASINGS,
        "relevant_tables": pa.string(),
        "number_of_relevant_tables": pa.int64(),
        "execution_result": pa.string(),
    }
)


def write_sqale(corpus: Corpus, out: Path) -> None:
    """SQaLe's current two sets, below `out`: DDL and rows as text, stored results beside."""
    numbers = count()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as queries:

        def schemas() -> Iterator[dict[str, Any]]:
            for database, questions in corpus:
                yield {
                    "schema_id": database.db_id,
                    "full_schema": ";\n".join(database.statements) + ";",
                    "schema_content": json.dumps(
                        {table: rows for table, rows in database.rows.items() if rows}
                    ),
                    "number_of_tables": len(database.tables),
                }
                for row in _query_rows(database, questions, numbers):
                    queries.write(json.dumps(row) + "\n")

        _write_parquet(out / "sqale2_schemas", schemas(), _SCHEMAS, group=4)
        queries.seek(0)
        _write_parquet(out / "sqale2_queries", map(json.loads, queries), _QUERIES, group=4096)


def write_synsql(corpus: Corpus, out: Path) -> None:
    """A SynSQL folder: data.json, tables.json with the DDL, and ready SQLite files."""
    with _json_array(out / "data.json") as add, _json_array(out / "tables.json") as add_table:
        for database, questions in corpus:
            name = database.db_id
            _write_sqlite(database, out / "databases" / name / f"{name}.sqlite")
            add_table({"db_id": name, "ddls": database.statements})
            for question in questions:
                named = ", ".join(_tables_named(question.sql, database))
                add(
                    {
                        "db_id": name,
                        "sql_complexity": question.difficulty,
                        "question_style": question.style,
                        "question": question.text,
                        "external_knowledge": question.evidence,
                        "cot": f"The tables needed are {named}.\n```sql\n{question.sql}\n```",
                        "sql": question.sql,
                    }
                )


def write_bird(corpus: Corpus, out: Path) -> None:
    """A BIRD dev folder: dev.json, and dev_databases/ with CSVs that describe the columns."""
    numbers = count()
    with _json_array(out / "dev.json") as add:
        for database, questions in corpus:
            folder = out / "dev_databases" / database.db_id
            _write_sqlite(database, folder / f"{database.db_id}.sqlite")
            _write_descriptions(database, folder / "database_description")
            for question in questions:
                add(
                    {
                        "question_id": next(numbers),
                        "db_id": database.db_id,
                        "question": question.text,
                        "evidence": question.evidence,
                        "SQL": question.sql,
                        "difficulty": question.difficulty,
                    }
                )


WRITERS: dict[str, Callable[[Corpus, Path], None]] = {
    "sqale": write_sqale,
    "synsql": write_synsql,
    "bird": write_bird,
}


def _write_sqlite(database: SampleDatabase, path: Path) -> Path:
    """Writes the database as a SQLite file, orphans and all; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with closing(open_new(path)) as connection:
        for statement in database.statements:
            run_statement(connection, statement)
        for table in database.tables:
            insert = insert_sql(table.name, [column.name for column in table.columns])
            rows = [tuple(row.values()) for row in database.rows[table.name]]
            list(insert_rows(connection, insert, rows, mend=tuple))
        finish(connection)
    return path


def _query_rows(
    database: SampleDatabase, questions: Sequence[SampleQuestion], numbers: Iterator[int]
) -> Iterator[dict[str, Any]]:
    if not questions:
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        Session.open_file(_write_sqlite(database, Path(folder, "sample.sqlite"))) as session,
    ):
        for question in questions:
            number = next(numbers)
            result = session.run(question.sql)
            stored = [list(row) for row in result.rows[:STORED_ROWS]] if result.ok else []
            named = _tables_named(question.sql, database)
            near = [t.name for t in database.tables if t.name not in named]
            generator = random.Random(f"{DEMO_SEED}/{number}")
            relevant = named + generator.sample(near, min(len(near), 1))
            yield {
                "question_id": f"q_{number:06}",
                "schema_id": database.db_id,
                "sql": question.sql,
                "difficulty": question.difficulty,
                "questions": _phrasings(question, generator),
                "relevant_tables": json.dumps(relevant),
                "number_of_relevant_tables": len(relevant),
                "execution_result": json.dumps(stored),
            }


def _tables_named(sql: str, database: SampleDatabase) -> list[str]:
    """The database's tables whose names stand in `sql`, in declared order."""
    words = {fold_name(unquote(token.text)) for token in iter_code(sql)}
    return [table.name for table in database.tables if fold_name(table.name) in words]


def _phrasings(question: SampleQuestion, generator: random.Random) -> dict[str, str | None]:
    """The verbose phrasing and one more; the rest is null, but for a placeholder."""
    phrasings: dict[str, str | None] = dict.fromkeys(STYLES)
    phrasings["verbose"] = question.text
    plain = question.text[0].lower() + question.text[1:]
    other = generator.choice(("casual", "structured", "spelling_grammar_mistakes"))
    phrasings[other] = {
        "casual": f"hey, quick one: {plain}",
        "structured": f"Task: answer from the database. Request: {question.text}",
        "spelling_grammar_mistakes": plain.replace("the ", "teh ", 1).replace("?", ""),
    }[other]
    if question.evidence:
        phrasings["evidence_supported"] = f"{question.text} ({question.evidence})"
    if question.placeholder:
        phrasings[question.placeholder] = "..."
    return phrasings


def _write_descriptions(database: SampleDatabase, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for table in database.tables:
        with (folder / f"{table.name}.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(
                ("original_column_name", "column_name", "column_description", "data_format")
            )
            for column in table.columns:
                words = column.name.replace("_", " ")
                target = f", a row of {column.parent}" if column.parent else ""
                writer.writerow((column.name, words, words + target, column.type.lower()))


def _write_parquet(
    folder: Path, rows: Iterator[dict[str, Any]], schema: pa.Schema, *, group: int
) -> None:
    groups = iter(lambda: list(islice(rows, group)), [])
    batches = (pa.RecordBatch.from_pylist(some, schema=schema) for some in groups)
    write_batches(folder / "train-00000-of-00001.parquet", batches, schema)


@contextmanager
def _json_array(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes one more record; the file is there, whole, once the block ends."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        ahead = chain(["[\n "], repeat(",\n "))

        def add(record: dict[str, Any]) -> None:
            text = json.dumps(record, indent=1, ensure_ascii=False)
            stream.write(next(ahead) + text.replace("\n", "\n "))

        yield add
        stream.write("\n]\n")
