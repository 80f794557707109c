"""SQLite files as row payload Parquet, the inverse of materialize, value for value.

What JSON has no word for (blobs, infinities, text that is not UTF-8) goes in as payload.py's
packed values, and only a database that holds such a value has a packed payload.
"""

import math
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.engine.fanout import run_shards
from envbuild.errors import CorpusError
from envbuild.io.packed import PACKED, UndecodableText, pack_value
from envbuild.io.parquet import write_batches, write_records
from envbuild.materialize.build import SEQUENCE_TABLE, has_sequences
from envbuild.records.corpus import Question, Table
from envbuild.schema.read import read_schema
from envbuild.sql.connect import Connection, quote_name
from envbuild.sql.files.inspect import open_ready

SCHEMAS_FILE = "schemas/{split}-00000-of-00001.parquet"
QUERIES_FILE = "queries/{split}-00000-of-00001.parquet"
_SCHEMAS = pa.schema(
    [
        ("schema_id", pa.string()),
        ("full_schema", pa.string()),
        ("schema_content", pa.large_string()),
        ("number_of_tables", pa.int64()),
        ("split", pa.string()),
    ]
)
_QUERIES = pa.schema(
    [
        ("question_id", pa.string()),
        ("schema_id", pa.string()),
        ("sql", pa.string()),
        ("difficulty", pa.string()),
        ("question", pa.string()),
        ("style", pa.string()),
        ("evidence", pa.string()),
        ("relevant_tables", pa.string()),
        ("number_of_relevant_tables", pa.int64()),
        ("execution_result", pa.string()),
        ("split", pa.string()),
    ]
)
_PLAIN = frozenset((int, float, str, type(None)))
_DDL = r"""SELECT s.sql, s.name FROM sqlite_schema AS s
WHERE s.sql IS NOT NULL AND s.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY s.rowid"""
_KINDS = "SELECT name, type FROM pragma_table_list WHERE schema = 'main'"


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """One database as a row of the schemas set."""

    schema_id: str
    split: str
    full_schema: str = ""
    schema_content: bytes = b""
    """The payload: UTF-8 text, which no decoding copies."""
    number_of_tables: int = 0
    rows: int = 0
    problems: tuple[str, ...] = ()
    """What could not be packed, one sentence each."""


class PackSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a pack came to."""

    name: str
    out: str
    databases: int
    tables: int
    rows: int
    questions: int
    problems: tuple[str, ...]


def pack_databases(
    folder: Path,
    out: Path,
    *,
    workers: int | None = None,
    limit: int | None = None,
    on_packed: Callable[[int], None] = lambda packed: None,
) -> list[PackSummary]:
    """Packs every corpus or SQLite folder at `folder` into `out`; `materialize out` gives it back.

    Several corpora become one folder each. Databases come in the corpus's order. Raises
    CorpusFolderError where there is nothing to pack.
    """
    corpora = open_corpora(folder)
    return [
        _pack_corpus(
            corpus,
            Path(out) / corpus.name if len(corpora) > 1 else Path(out),
            workers=workers,
            limit=limit,
            on_packed=on_packed,
        )
        for corpus in corpora
    ]


def pack_database(connection: Connection, *, db_id: str, split: str = "") -> Packed:
    """One open database as DDL and payload."""
    schema = read_schema(connection)
    kinds = dict(connection.execute(_KINDS))
    statements = [sql for sql, name in connection.execute(_DDL) if kinds.get(name, "") != "shadow"]
    special = False
    members: list[bytes] = []
    rows = 0
    for table in schema.tables:
        text, count, table_special = _pack_table(connection, table)
        special |= table_special
        rows += count
        if count:
            members.append(msgspec.json.encode(table.name) + b":" + text)
    counters = f"SELECT name, seq FROM {SEQUENCE_TABLE} ORDER BY rowid"
    found = connection.execute(counters) if has_sequences(connection) else ()
    if sequences := [{"name": name, "seq": seq} for name, seq in found]:
        special = True
        members.append(msgspec.json.encode(SEQUENCE_TABLE) + b":" + msgspec.json.encode(sequences))
    if special:
        members.insert(0, msgspec.json.encode(PACKED) + b":[]")
    return Packed(
        schema_id=db_id,
        split=split,
        # a statement may end in a comment, so its semicolon stands on a line of its own
        full_schema="".join(f"{statement}\n;\n" for statement in statements),
        schema_content=b"{" + b",".join(members) + b"}",
        number_of_tables=len(schema.tables),
        rows=rows,
        problems=tuple(
            f"{name} is a virtual table: its rows are not packed"
            for name, kind in kinds.items()
            if kind == "virtual"
        ),
    )


def _pack_corpus(
    corpus: CorpusFolder,
    out: Path,
    *,
    workers: int | None,
    limit: int | None,
    on_packed: Callable[[int], None],
) -> PackSummary:
    chosen = corpus.databases()[:limit]
    splits = {row.split for row in chosen}
    split = splits.pop() if len(splits) == 1 else ""
    shards = [(row.db_id, row.split, str(corpus.database_path(row.db_id))) for row in chosen]
    counts = {"tables": 0, "rows": 0}
    problems: list[str] = []

    def packed_databases() -> Iterator[Packed]:
        for packed in run_shards(_pack_shard, shards, workers=workers):
            on_packed(1)
            problems.extend(f"{packed.schema_id}: {problem}" for problem in packed.problems)
            if packed.schema_content:
                counts["tables"] += packed.number_of_tables
                counts["rows"] += packed.rows
                yield packed

    schemas = out / SCHEMAS_FILE.format(split=split or "train")
    databases = write_records(schemas, packed_databases(), _SCHEMAS, group=1)
    known = {row.db_id for row in chosen}
    questions = [q for q in corpus.iter_questions() if q.db_id in known]
    if questions:
        batch = pa.RecordBatch.from_pylist([_query(q) for q in questions], schema=_QUERIES)
        write_batches(out / QUERIES_FILE.format(split=split or "train"), [batch], _QUERIES)
    return PackSummary(
        name=corpus.name,
        out=str(out),
        databases=databases,
        questions=len(questions),
        problems=tuple(problems),
        **counts,
    )


def _pack_shard(shard: tuple[str, str, str]) -> Packed:
    db_id, split, path = shard
    try:
        with open_ready(Path(path)) as connection:
            return pack_database(connection, db_id=db_id, split=split)
    except CorpusError as e:
        return Packed(schema_id=db_id, split=split, problems=(str(e),))


def _pack_table(connection: Connection, table: Table) -> tuple[bytes, int, bool]:
    """(JSON text of the rows, how many, whether any value had to be packed)."""
    names = [column.name for column in table.columns if not column.generated]
    try:
        rows = _read_plainly(connection, table.name, names)
    except UnicodeDecodeError:
        rows = _read_bytewise(connection, table.name, names)
    plain = _PLAIN.issuperset(map(type, chain.from_iterable(rows))) and all(
        math.isfinite(value) for row in rows for value in row if type(value) is float
    )
    if not plain:
        rows = [tuple(map(pack_value, row)) for row in rows]
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    return msgspec.json.encode(objects), len(objects), not plain


def _read_plainly(connection: Connection, table: str, names: list[str]) -> list[tuple[Any, ...]]:
    columns = ", ".join(map(quote_name, names))
    return list(connection.execute(f"SELECT {columns} FROM main.{quote_name(table)}"))


def _read_bytewise(connection: Connection, table: str, names: list[str]) -> list[tuple[Any, ...]]:
    """The same rows where some text does not decode: text comes as bytes and is decoded here."""
    parts = []
    for name in map(quote_name, names):
        parts.append(f"typeof({name}) = 'text'")
        parts.append(f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END")
    cells = connection.execute(f"SELECT {', '.join(parts)} FROM main.{quote_name(table)}")
    return [
        tuple(
            _decoded(value) if is_text else value
            for is_text, value in zip(row[::2], row[1::2], strict=True)
        )
        for row in cells
    ]


def _decoded(raw: bytes) -> str | UndecodableText:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return UndecodableText(raw)


def _query(question: Question) -> dict[str, Any]:
    return {
        "question_id": question.question_id,
        "schema_id": question.db_id,
        "sql": question.gold_sql,
        "difficulty": question.difficulty,
        "question": question.question,
        "style": question.style,
        "evidence": question.evidence,
        "relevant_tables": msgspec.json.encode(question.relevant_tables).decode(),
        "number_of_relevant_tables": len(question.relevant_tables),
        "execution_result": question.stored_result,
        "split": question.split,
    }
