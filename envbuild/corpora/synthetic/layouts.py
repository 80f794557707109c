"""Synthetic corpora written as the real ones are published, so that the readers can read them."""

import csv
import json
import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from envbuild.corpora.synthetic.database import SampleDatabase, write_sqlite
from envbuild.corpora.synthetic.questions import SampleQuestion
from envbuild.io.files import write_text
from envbuild.io.parquet import write_batches
from envbuild.sql.execution.session import Session
from envbuild.sql.names import fold_name
from envbuild.sql.tokens import iter_code, unquote

Corpus = Iterable[tuple[SampleDatabase, Sequence[SampleQuestion]]]
"""Databases one by one, each with the questions about it."""

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
STORED_ROWS = 50
_SCHEMAS = pa.schema(
    [
        ("schema_id", pa.string()),
        ("full_schema", pa.string()),
        ("schema_content", pa.string()),
        ("number_of_tables", pa.int64()),
    ]
)
_QUERIES = pa.schema(
    [
        ("question_id", pa.string()),
        ("schema_id", pa.string()),
        ("sql", pa.string()),
        ("difficulty", pa.string()),
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

    def batches() -> Iterable[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        for database, questions in corpus:
            content = {name: rows_of for name, rows_of in database.rows.items() if rows_of}
            rows.append(
                {
                    "schema_id": database.db_id,
                    "full_schema": ";\n".join(database.statements) + ";",
                    "schema_content": json.dumps(content),
                    "number_of_tables": len(database.tables),
                }
            )
            queries.extend(_query_rows(database, questions, len(queries), seed))
            if len(rows) == _ROW_GROUP:
                yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMAS)
                rows = []
        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMAS)

    write_batches(out / "sqale2_schemas" / _PART, batches(), _SCHEMAS)
    table = pa.RecordBatch.from_pylist(queries, schema=_QUERIES)
    write_batches(out / "sqale2_queries" / _PART, [table], _QUERIES)


def write_synsql(corpus: Corpus, out: Path, *, seed: int) -> None:
    """A SynSQL folder: data.json, tables.json with DDL, and ready SQLite files."""
    records, tables = [], []
    for database, questions in corpus:
        _write_ready(database, out / "databases")
        tables.append({"db_id": database.db_id, "ddls": database.statements, **_spider(database)})
        records += [
            {
                "db_id": question.db_id,
                "sql_complexity": question.difficulty,
                "question_style": question.style,
                "question": question.text,
                "external_knowledge": question.evidence,
                "cot": "The tables needed are "
                + ", ".join(_tables_named(question.sql, database))
                + f".\n```sql\n{question.sql}\n```",
                "sql": question.sql,
            }
            for question in questions
        ]
    _write_json(out / "data.json", records)
    _write_json(out / "tables.json", tables)


def write_bird(corpus: Corpus, out: Path, *, seed: int) -> None:
    """A BIRD dev folder: dev.json, dev_databases/ with description CSVs, dev_tables.json."""
    records: list[dict[str, Any]] = []
    tables = []
    for database, questions in corpus:
        folder = _write_ready(database, out / "dev_databases")
        _write_descriptions(database, folder / "database_description")
        tables.append({"db_id": database.db_id, **_spider(database)})
        for question in questions:
            records.append(
                {
                    "question_id": len(records),
                    "db_id": question.db_id,
                    "question": question.text,
                    "evidence": question.evidence,
                    "SQL": question.sql,
                    "difficulty": question.difficulty,
                }
            )
    _write_json(out / "dev.json", records)
    _write_json(out / "dev_tables.json", tables)


WRITERS: dict[str, Callable[..., None]] = {
    "sqale": write_sqale,
    "synsql": write_synsql,
    "bird": write_bird,
}


def _query_rows(
    database: SampleDatabase, questions: Sequence[SampleQuestion], first: int, seed: int
) -> Iterable[dict[str, Any]]:
    if not questions:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sample.sqlite"
        write_sqlite(database, path)
        with Session.open_file(path) as session:
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


def _write_ready(database: SampleDatabase, databases: Path) -> Path:
    folder = databases / database.db_id
    write_sqlite(database, folder / f"{database.db_id}.sqlite")
    return folder


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


def _spider(database: SampleDatabase) -> dict[str, Any]:
    """Spider's form of a schema: columns as [table number, name], keys as column numbers."""
    names: list[list[Any]] = [[-1, "*"]]
    types, primary, place = ["text"], [], {}
    for number, table in enumerate(database.tables):
        for column in table.columns:
            place[table.name, column.name] = len(names)
            if column.rule == "pk":
                primary.append(len(names))
            names.append([number, column.name])
            types.append(column.type.lower())
    keys = {table.name: table.key for table in database.tables}
    return {
        "table_names_original": [table.name for table in database.tables],
        "column_names_original": names,
        "column_types": types,
        "primary_keys": primary,
        "foreign_keys": [
            [place[table.name, column.name], place[column.parent, keys[column.parent]]]
            for table in database.tables
            for column in table.columns
            if column.parent
        ],
    }


def _write_json(path: Path, records: list[dict[str, Any]]) -> None:
    write_text(path, json.dumps(records, indent=1, ensure_ascii=False) + "\n")
