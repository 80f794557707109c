"""SQLite files as row payload Parquet, the inverse of materialize, value for value.

What JSON has no word for (blobs, infinities, text that is not UTF-8) goes in as payload.py's
packed values, and only a database that holds such a value has a packed payload.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.fanout import run_shards
from envbuild.errors import CorpusError
from envbuild.io.packed import PACKED, UndecodableText, pack_value
from envbuild.io.parquet import write_batches, write_records
from envbuild.materialize.any_folder import open_any
from envbuild.materialize.build import SEQUENCE_TABLE, has_sequences
from envbuild.records.corpus import DatabaseRow, Question, Table
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
        (name, pa.int64() if name == "number_of_relevant_tables" else pa.string())
        for name in str.split(
            "question_id schema_id sql difficulty question style evidence relevant_tables "
            "number_of_relevant_tables execution_result split"
        )
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
    corpora = open_any(folder, workers=workers)
    summaries = []
    for corpus in corpora:
        place = Path(out) / corpus.name if len(corpora) > 1 else Path(out)
        chosen = corpus.databases()[:limit]
        shards = [(row.db_id, row.split, str(corpus.database_path(row.db_id))) for row in chosen]
        databases = run_shards(_pack_shard, shards, workers=workers)
        summaries.append(_pack_corpus(corpus, place, chosen, databases, on_packed))
    return summaries


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
    chosen: Sequence[DatabaseRow],
    databases: Iterable[Packed],
    on_packed: Callable[[int], None],
) -> PackSummary:
    splits = {row.split for row in chosen}
    split = splits.pop() if len(splits) == 1 else ""
    counts: Counter[str] = Counter()
    problems: list[str] = []

    def taken() -> Iterator[Packed]:
        for packed in databases:
            on_packed(1)
            problems.extend(f"{packed.schema_id}: {problem}" for problem in packed.problems)
            if packed.schema_content:
                counts["tables"] += packed.number_of_tables
                counts["rows"] += packed.rows
                yield packed

    schemas = out / SCHEMAS_FILE.format(split=split or "train")
    stored = write_records(schemas, taken(), _SCHEMAS, group=1)
    known = {row.db_id for row in chosen}
    questions = [_query(q) for q in corpus.iter_questions() if q.db_id in known]
    if questions:
        batch = pa.RecordBatch.from_pylist(questions, schema=_QUERIES)
        write_batches(out / QUERIES_FILE.format(split=split or "train"), [batch], _QUERIES)
    return PackSummary(
        name=corpus.name,
        out=str(out),
        databases=stored,
        tables=counts["tables"],
        rows=counts["rows"],
        questions=len(questions),
        problems=tuple(problems),
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
    where = f"FROM main.{quote_name(table.name)}"
    columns = list(map(quote_name, names))
    try:
        rows = list(connection.execute(f"SELECT {', '.join(columns)} {where}"))
    except UnicodeDecodeError:  # then text comes as bytes, and is decoded here
        parts = [
            f"typeof({c}) = 'text', iif(typeof({c}) = 'text', CAST({c} AS BLOB), {c})"
            for c in columns
        ]
        cells = connection.execute(f"SELECT {', '.join(parts)} {where}")
        rows = [tuple(map(_decoded, row[::2], row[1::2])) for row in cells]
    plain = _PLAIN.issuperset(map(type, chain.from_iterable(rows))) and all(
        math.isfinite(value) for row in rows for value in row if type(value) is float
    )
    if not plain:
        rows = [tuple(map(pack_value, row)) for row in rows]
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    return msgspec.json.encode(objects), len(objects), not plain


def _decoded(is_text: int, value: Any) -> Any:
    try:
        return value.decode() if is_text else value
    except UnicodeDecodeError:
        return UndecodableText(value)


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
