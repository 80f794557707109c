"""Synthetic sources by seed alone: random ones in the real corpora's proportions, and the demo's.

Tables are described in a small language:

loan 2600                       a table and its number of rows
  loan_id INTEGER pk            1, 2, 3, …
  copy_id INTEGER fk:copy       a row of that table (`fk:copy:0.1`: a tenth of them NULL)
  days INTEGER int:1:70?0.2     a number of this range, a fifth of them NULL
"""

import csv
import json
import math
import random
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, timedelta
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from envbuild.corpora.source import recognise
from envbuild.errors import OutputError, SourceError, UnknownNameError
from envbuild.io.files import write_text, writing
from envbuild.io.parquet import write_batches
from envbuild.records.execution import Value
from envbuild.sql.connect import quote_name
from envbuild.sql.execution.session import Session
from envbuild.sql.files.create import finish, insert_rows, insert_sql, open_new, run_statement
from envbuild.sql.names import fold_name
from envbuild.sql.tokens import iter_code, unquote

DEMO_CORPORA = ("sqale", "synsql", "bird")
DEMO_SEED = 20240607
MAX_ROWS = 1_000_000
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
_SUFFIXES = ("", "_log", "_item")
_FIRST_NAMES = str.split(
    "Ada Bela Carlo Dina Emil Fatou Goran Hana Ines Jonas Kaya Lena Marek Nadia Olav Priya Rosa "
    "Sami Tove Ugo Vera Wanda Yara Zeno"
)
_LAST_NAMES = str.split(
    "Ahlberg Brandt Castro Dube Eriksen Ferri Grant Holm Ivanov Jansen Keller Lindqvist Moretti "
    "Novak Okoye Petrov Quist Rossi Silva Tanaka Ueda Varga Weber Zimmer"
)
_TRADES = str.split("Foods Trading Works Supply Logistics Textiles Metals Energy Stores Partners")
_ATTRIBUTES = """
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
"""
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
    """Questions a database."""


SHAPES = {
    "sqale": Shape((50, 100), (5, 11), rows=72, spread=0.6, empty=0.05, questions=20),
    "synsql": Shape((5, 10), (3, 7), rows=2, spread=0, empty=0, questions=12),
    "bird": Shape((4, 12), (4, 9), rows=927, spread=1.6, empty=0, questions=40),
}


class SampleColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column and the rule behind its values."""

    name: str
    type: str
    rule: str

    @property
    def parent(self) -> str:
        """The table a foreign key points at; empty for any other column."""
        return re.split("[:?]", self.rule)[1] if self.rule.startswith("fk:") else ""


class SampleTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table, its columns and how many rows it gets."""

    name: str
    rows: int
    columns: list[SampleColumn]

    @property
    def key(self) -> str:
        """The primary key's column."""
        return next(column.name for column in self.columns if column.rule == "pk")


class SampleDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """One database before it is written in some layout."""

    db_id: str
    tables: list[SampleTable]
    rows: dict[str, list[dict[str, Value]]]
    """Table -> its rows."""

    @property
    def statements(self) -> list[str]:
        """One CREATE TABLE statement a table."""
        keys = {table.name: quote_name(table.key) for table in self.tables}
        statements = []
        for table in self.tables:
            lines = [
                f"{quote_name(c.name)} {c.type}" + (" PRIMARY KEY" if c.rule == "pk" else "")
                for c in table.columns
            ]
            lines += [
                f"FOREIGN KEY ({quote_name(c.name)}) "
                f"REFERENCES {quote_name(c.parent)} ({keys[c.parent]})"
                for c in table.columns
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

    def counted() -> Corpus:
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
            WRITERS[demo["layout"]](pairs, source, seed=DEMO_SEED)
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


def iter_shape(
    name: str, *, databases: int, seed: int
) -> Iterator[tuple[SampleDatabase, list[SampleQuestion]]]:
    """Databases of the shape `name` with their questions; each depends on (seed, number) alone.

    Raises UnknownNameError for a shape that is not known.
    """
    if name not in SHAPES:
        raise UnknownNameError("shape", name, SHAPES)
    return (_shaped(name, f"{seed}/{name}/{number}", number) for number in range(databases))


def _shaped(name: str, seed: str, number: int) -> tuple[SampleDatabase, list[SampleQuestion]]:
    shape = SHAPES[name]
    generator = random.Random(seed)
    nouns = generator.sample(_NOUNS, len(_NOUNS))
    tables: list[SampleTable] = []
    for place in range(generator.randint(*shape.tables)):
        noun = nouns[place % len(nouns)] + _SUFFIXES[place // len(nouns)]
        tables.append(_shaped_table(noun, tables, shape, generator))
    database = make_database(f"{nouns[0]}_{nouns[1]}_{number:05}", tables, seed=f"{seed}/rows")
    return database, make_questions(database, shape.questions, generator)


def _shaped_table(
    noun: str, earlier: list[SampleTable], shape: Shape, generator: random.Random
) -> SampleTable:
    columns = [SampleColumn(name=f"{noun}_id", type="INTEGER", rule="pk")]
    for parent in generator.sample(earlier, min(len(earlier), generator.choice((1, 1, 2, 3)))):
        key = SampleColumn(name=parent.key, type="INTEGER", rule=f"fk:{parent.name}:0.03")
        columns.append(key)
    (attributes,) = parse_tables("any 0" + _ATTRIBUTES)
    wanted = generator.randint(*shape.columns)
    chosen = sorted(generator.sample(range(len(attributes.columns)), wanted))
    columns += [attributes.columns[place] for place in chosen]
    if generator.random() < shape.empty:
        rows = 0
    elif shape.spread:
        drawn = generator.lognormvariate(math.log(shape.rows), shape.spread)
        rows = max(1, min(MAX_ROWS, round(drawn)))
    else:
        rows = int(shape.rows)
    return SampleTable(name=noun, rows=rows, columns=columns)


def parse_tables(text: str) -> list[SampleTable]:
    """The tables that `text` describes. Raises ValueError for a line that says nothing."""
    tables: list[SampleTable] = []
    for line in filter(str.strip, text.splitlines()):
        if not line[0].isspace():
            name, rows = line.split()
            tables.append(SampleTable(name=name, rows=int(rows), columns=[]))
        elif tables and (found := _COLUMN.fullmatch(line)):
            name = found["quoted"] or found["bare"]
            column = SampleColumn(name=name, type=found["type"], rule=found["rule"])
            tables[-1].columns.append(column)
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
        place, count = orphan.split()
        name, column = place.split(".")
        for row in generator.sample(rows[name], min(int(count), len(rows[name]))):
            row[column] = 900_000 + generator.randrange(1000)
    return SampleDatabase(db_id=db_id, tables=tables, rows=rows)


Draw = Callable[[random.Random, int], Value]
"""A column's value for a 0-based row."""


def _draw_of(rule: str, sizes: dict[str, int]) -> Draw:
    """The function behind a rule; what stands after `?` is the share of NULL."""
    plain, _, missing = rule.partition("?")
    word, _, argument = plain.partition(":")
    if word == "fk":  # `fk:copy:0.1`, or a parent without rows
        parent, _, missing = argument.partition(":")
        size = sizes[parent]
        if not size:
            return lambda rng, row: None
        draw: Draw = lambda rng, row: rng.randrange(size) + 1  # noqa: E731
    else:
        draw = _plain_draw_of(word, argument)
    share = float(missing or 0)
    return (lambda rng, row: None if rng.random() < share else draw(rng, row)) if share else draw


def _plain_draw_of(word: str, argument: str) -> Draw:
    words = argument.split("|")
    match word:
        case "pk":
            return lambda rng, row: row + 1
        case "int":
            least, greatest = map(int, argument.split(":"))
            return lambda rng, row: rng.randint(least, greatest)
        case "real":
            low, high = map(float, argument.split(":"))
            return lambda rng, row: round(low + (high - low) * rng.random(), 2)
        case "flag":
            return lambda rng, row: int(rng.random() < 0.3)
        case "pick":
            numbers = all(word.isdigit() for word in words)
            values: list[Value] = [int(word) if numbers else word for word in words]
            return lambda rng, row: rng.choice(values)
        case "cycle":
            return lambda rng, row: words[row % len(words)]
        case "uniq":
            return lambda rng, row: (
                words[row] if row < len(words) else f"{words[row % len(words)]} {row}"
            )
        case "code":
            return lambda rng, row: f"{argument}-{row + 1:04}"
        case "date":
            first, last = map(int, argument.split(":"))
            start = date(first, 1, 1)
            days = (date(last, 12, 31) - start).days
            return lambda rng, row: (start + timedelta(rng.randint(0, days))).isoformat()
        case "person":
            return lambda rng, row: f"{rng.choice(_FIRST_NAMES)} {rng.choice(_LAST_NAMES)}"
        case "company":
            return lambda rng, row: f"{rng.choice(_LAST_NAMES)} {rng.choice(_TRADES)}"
    raise ValueError(f"no rule {word!r} for a column")


# Questions: three templates, each along a foreign key.


_TEMPLATES = (
    (
        "simple",
        "How many {child} entries belong to {parent} number {number}?",
        "SELECT COUNT(*) FROM {child} WHERE {key} = {number}",
    ),
    (
        "moderate",
        "Which {parent}s have at least {least} {child} entries? Give their id and that number, "
        "the largest first.",
        "SELECT p.{key}, COUNT(*) AS entries FROM {child} AS c JOIN {parent} AS p "
        "ON c.{key} = p.{key} WHERE p.{key} <> {number} GROUP BY p.{key} "
        "HAVING COUNT(*) >= {least} ORDER BY entries DESC, p.{key}",
    ),
    (
        "hard",
        "Which {parent}s up to number {number} have at least as many {child} entries as a {parent} "
        "has on average? Give their id, the number of entries and their rank.",
        "WITH counted AS (SELECT p.{key}, COUNT(c.{child_key}) AS entries FROM {parent} AS p "
        "LEFT JOIN {child} AS c ON c.{key} = p.{key} GROUP BY p.{key}), overall AS "
        "(SELECT AVG(entries) AS mean FROM counted) SELECT x.{key}, x.entries, RANK() OVER "
        "(ORDER BY x.entries DESC) AS place FROM counted AS x CROSS JOIN overall AS o "
        "WHERE x.entries >= o.mean AND x.{key} <= {number} ORDER BY place, x.{key}",
    ),
)
"""Difficulty, question and gold SQL; the three fall into the three buckets."""
_TRIES = 20


def make_questions(
    database: SampleDatabase, count: int, generator: random.Random
) -> list[SampleQuestion]:
    """`count` different questions, or as many as the database has keys to ask along."""
    tables = {table.name: table for table in database.tables if table.rows}
    links = [
        (child, tables[column.parent])
        for child in tables.values()
        for column in child.columns
        if column.parent in tables
    ]
    questions: dict[str, SampleQuestion] = {}
    for attempt in range(count * _TRIES if links else 0):
        child, parent = generator.choice(links)
        blanks = {
            "child": child.name,
            "child_key": child.key,
            "parent": parent.name,
            "key": parent.key,
            "number": generator.randint(1, parent.rows),
            "least": generator.randint(1, 2),
        }
        difficulty, text, sql = (part.format(**blanks) for part in _TEMPLATES[attempt % 3])
        question = SampleQuestion(text=text, sql=sql, difficulty=difficulty, style="Formal")
        questions.setdefault(sql, question)
        if len(questions) == count:
            break
    return list(questions.values())


# Layouts: as the real corpora are published, so that their readers can read them.


_SCHEMAS = pa.schema(
    [(name, pa.string()) for name in ("schema_id", "full_schema", "schema_content")]
    + [("number_of_tables", pa.int64())]
)
_QUERIES = pa.schema(
    [(name, pa.string()) for name in ("question_id", "schema_id", "sql", "difficulty")]
    + [
        ("questions", pa.struct([(style, pa.string()) for style in STYLES])),
        ("relevant_tables", pa.string()),
        ("number_of_relevant_tables", pa.int64()),
        ("execution_result", pa.string()),
    ]
)
_PART = "train-00000-of-00001.parquet"
_ROW_GROUP = 32


def write_sqale(corpus: Corpus, out: Path, *, seed: int) -> None:
    """SQaLe's current two sets, below `out`: DDL and rows as text, stored results beside."""
    queries: list[dict[str, Any]] = []

    def schemas() -> Iterator[dict[str, Any]]:
        for database, questions in corpus:
            yield {
                "schema_id": database.db_id,
                "full_schema": ";\n".join(database.statements) + ";",
                "schema_content": json.dumps(
                    {t: rows for t, rows in database.rows.items() if rows}
                ),
                "number_of_tables": len(database.tables),
            }
            queries.extend(_query_rows(database, questions, len(queries), seed))

    def batches() -> Iterator[pa.RecordBatch]:
        rows = schemas()
        while batch := list(islice(rows, _ROW_GROUP)):
            yield pa.RecordBatch.from_pylist(batch, schema=_SCHEMAS)

    write_batches(out / "sqale2_schemas" / _PART, batches(), _SCHEMAS)
    table = pa.RecordBatch.from_pylist(queries, schema=_QUERIES)
    write_batches(out / "sqale2_queries" / _PART, [table], _QUERIES)


def write_synsql(corpus: Corpus, out: Path, *, seed: int) -> None:
    """A SynSQL folder: data.json, tables.json with the DDL, and ready SQLite files."""
    records, tables = [], []
    for database, questions in corpus:
        name = database.db_id
        write_sqlite(database, out / "databases" / name / f"{name}.sqlite")
        tables.append({"db_id": name, "ddls": database.statements})
        for question in questions:
            named = ", ".join(_tables_named(question.sql, database))
            cot = f"The tables needed are {named}.\n```sql\n{question.sql}\n```"
            records.append(
                {
                    "db_id": name,
                    "sql_complexity": question.difficulty,
                    "question_style": question.style,
                    "question": question.text,
                    "external_knowledge": question.evidence,
                    "cot": cot,
                    "sql": question.sql,
                }
            )
    _write_json(out / "data.json", records)
    _write_json(out / "tables.json", tables)


def write_bird(corpus: Corpus, out: Path, *, seed: int) -> None:
    """A BIRD dev folder: dev.json, and dev_databases/ with CSVs that describe the columns."""
    records: list[dict[str, Any]] = []
    for database, questions in corpus:
        folder = out / "dev_databases" / database.db_id
        write_sqlite(database, folder / f"{database.db_id}.sqlite")
        _write_descriptions(database, folder / "database_description")
        for question in questions:
            records.append(
                {
                    "question_id": len(records),
                    "db_id": database.db_id,
                    "question": question.text,
                    "evidence": question.evidence,
                    "SQL": question.sql,
                    "difficulty": question.difficulty,
                }
            )
    _write_json(out / "dev.json", records)


WRITERS: dict[str, Callable[..., None]] = {
    "sqale": write_sqale,
    "synsql": write_synsql,
    "bird": write_bird,
}


def write_sqlite(database: SampleDatabase, path: Path) -> Path:
    """Writes the database as a SQLite file, orphans and all; its path."""
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
    return path


def _query_rows(
    database: SampleDatabase, questions: Sequence[SampleQuestion], first: int, seed: int
) -> Iterator[dict[str, Any]]:
    if not questions:
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        Session.open_file(write_sqlite(database, Path(folder, "sample.sqlite"))) as session,
    ):
        for number, question in enumerate(questions, first):
            result = session.run(question.sql)
            stored = [list(row) for row in result.rows[:STORED_ROWS]] if result.ok else []
            named = _tables_named(question.sql, database)
            near = [t.name for t in database.tables if t.name not in named]
            generator = random.Random(f"{seed}/{number}")
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
    words = {fold_name(unquote(sql[start:end])) for _, start, end in iter_code(sql)}
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


def _write_json(path: Path, records: list[dict[str, Any]]) -> None:
    write_text(path, json.dumps(records, indent=1, ensure_ascii=False) + "\n")
