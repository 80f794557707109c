"""The two sides: a training corpus, streamed, and benchmarks, as folders or published files."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from envbuild.corpora.folder import CorpusFolder, holds_corpora
from envbuild.corpora.source import begins_as_sqlite, files_below
from envbuild.corpora.tables import columns_of
from envbuild.errors import SourceError, UsageError
from envbuild.io.json_stream import iter_json
from envbuild.io.parquet import iter_records
from envbuild.leaks.schemas import Profile, profile_of, read_values
from envbuild.manifest.read import MANIFEST_FILE, ROWS_FILE, open_manifest
from envbuild.materialize.any_folder import open_any
from envbuild.records.corpus import (
    Column,
    DatabaseRow,
    ForeignKey,
    Schema,
    Table,
    is_evaluation_split,
)
from envbuild.schema.read import read_schema_of


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One question of either side."""

    corpus: str = ""
    db_id: str
    question_id: str
    split: str = ""
    question: str
    gold_sql: str


class Database(NamedTuple):
    """One database of either side: a SQLite file, or a published schema."""

    corpus: str
    db_id: str
    source: Path | Schema

    def profile(self) -> Profile:
        """What is compared of it. Raises SourceError where its file cannot be read."""
        if isinstance(self.source, Schema):
            return profile_of(self.source, self.db_id)
        schema = read_schema_of(self.source)
        return profile_of(schema, self.db_id, read_values(self.source, schema))


class Side(NamedTuple):
    """A training corpus or a benchmark."""

    name: str
    databases: Callable[[], Iterable[Database]]
    questions: Callable[[], Iterable[Asked]]
    corpora: tuple[CorpusFolder, ...] = ()
    """Where a ledger may lie."""


def read_side(path: Path, *, on_read: Callable[[str], None] = lambda said: None) -> Side:
    """The corpora, the manifest, the folder of SQLite files or the published files at `path`.

    Raises CorpusFolderError or SourceError where there is none of them.
    """
    if path.name == ROWS_FILE or (path / MANIFEST_FILE).is_file():
        return _of_manifest(path)
    if published := _published_files(path):
        return _of_files(path, published)
    corpora = open_any(path, on_read=on_read)
    name = corpora[0].name if len(corpora) == 1 else path.resolve().name
    databases = chain.from_iterable
    return Side(
        name,
        lambda: databases(map(_databases_of, corpora)),
        lambda: databases(_questions_of(c.root / "questions.parquet", c.name) for c in corpora),
        tuple(corpora),
    )


def read_benchmarks(
    paths: Sequence[Path], *, on_read: Callable[[str], None] = lambda said: None
) -> list[Side]:
    """The benchmarks at these paths; those of one name, as tables.json and dev.json, are one."""
    joined: dict[str, Side] = {}
    for path in paths:
        side = read_side(path, on_read=on_read)
        before = joined.get(side.name)
        if before is not None:
            side = Side(
                side.name,
                partial(_chained, before.databases, side.databases),
                partial(_chained, before.questions, side.questions),
            )
        joined[side.name] = side
    return list(joined.values())


def between_splits(side: Side) -> tuple[Side, list[Side]]:
    """The rows that train, and a benchmark a split that evaluates.

    Raises UsageError where no question is of an evaluation split, or every one is.
    """
    asked: dict[str, set[tuple[str, str]]] = {}
    for one in side.questions():
        asked.setdefault(one.split, set()).add((one.corpus, one.db_id))
    splits = sorted(filter(is_evaluation_split, asked))
    if not splits or len(splits) == len(asked):
        raise UsageError(
            f"{side.name} has no training and evaluation splits to compare "
            f"(its splits: {', '.join(sorted(asked)) or 'none'}): give benchmarks with --against"
        )

    def part(name: str, chosen: frozenset[str]) -> Side:
        used = set().union(*(asked[split] for split in chosen))
        return Side(
            name,
            lambda: (one for one in side.databases() if (one.corpus, one.db_id) in used),
            lambda: (one for one in side.questions() if one.split in chosen),
            side.corpora,
        )

    training = part(side.name, frozenset(asked) - frozenset(splits))
    return training, [part(f"{side.name}:{split}", frozenset((split,))) for split in splits]


def _chained(*parts: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    for one in parts:
        yield from one()


def _databases_of(corpus: CorpusFolder) -> Iterator[Database]:
    for row in iter_records(corpus.root / "databases.parquet", DatabaseRow):
        yield Database(corpus.name, row.db_id, corpus.root / row.sqlite_file)


def _questions_of(file: Path, corpus: str) -> Iterator[Asked]:
    for one in iter_records(file, Asked):
        yield one if one.corpus == corpus else msgspec.structs.replace(one, corpus=corpus)


def _of_manifest(path: Path) -> Side:
    manifest = open_manifest(path)

    def databases() -> Iterator[Database]:
        columns = manifest.columns("corpus", "db_id", "sqlite_file").to_pydict().values()
        for corpus, db_id, file in sorted(set(zip(*columns, strict=True))):
            yield Database(corpus, db_id, manifest.root / file)

    rows = manifest.root / ROWS_FILE
    return Side(manifest.root.name, databases, lambda: iter_records(rows, Asked))


# Published files: tables.json and questions as JSON, in the layout of Spider and BIRD.


class _SchemaRecord(msgspec.Struct):
    db_id: str
    table_names_original: list[str]
    column_names_original: list[tuple[int, str]]
    column_types: list[str]
    primary_keys: list[int | list[int]] = []
    foreign_keys: list[tuple[int, int]] = []


class _QuestionRecord(msgspec.Struct):
    db_id: str
    question: str
    question_id: int | str | None = None
    query: Any = None
    SQL: Any = None
    sql: Any = None


def _published_files(path: Path) -> list[Path]:
    """The JSON file at `path`, or those of a folder without databases."""
    if path.is_file():
        return [] if begins_as_sqlite(path) else [path]
    files = sorted(path.glob("*.json")) if path.is_dir() else []
    if not files or holds_corpora(path) or any(map(begins_as_sqlite, files_below(path))):
        return []
    return files


def _of_files(path: Path, files: list[Path]) -> Side:
    tables, questions = [], []
    for file in files:
        columns = columns_of(file)
        if {"db_id", "table_names_original", "column_names_original"} <= columns:
            tables.append(file)
        elif {"db_id", "question"} <= columns:
            questions.append(file)
    if not tables and not questions:
        raise SourceError(
            f"{path} is neither schemas (db_id, table_names_original, column_names_original) nor "
            "questions (db_id, question) as JSON, and no folder of databases"
        )
    name = re.sub(r"[_-]?tables$", "", path.stem) if path.is_file() else path.resolve().name
    return Side(
        name or path.stem,
        lambda: (
            Database(name, record.db_id, _schema_of(record))
            for file in tables
            for record in iter_json(file, _SchemaRecord)
        ),
        lambda: (
            Asked(
                corpus=name,
                db_id=record.db_id,
                question_id=str(place if record.question_id is None else record.question_id),
                question=record.question,
                gold_sql=next(
                    (s for s in (record.SQL, record.query, record.sql) if isinstance(s, str)), ""
                ),
            )
            for file in questions
            for place, record in enumerate(iter_json(file, _QuestionRecord))
        ),
    )


def _schema_of(record: _SchemaRecord) -> Schema:
    names, columns = record.table_names_original, record.column_names_original
    keys = [key if isinstance(key, list) else [key] for key in record.primary_keys]
    position = {place: at + 1 for key in keys for at, place in enumerate(key)}
    tables: list[list[Column]] = [[] for _ in names]
    for place, (table, name) in enumerate(columns):
        if table >= 0:
            kind = record.column_types[place] if place < len(record.column_types) else ""
            key = position.get(place, 0)
            tables[table].append(Column(name=name, type=kind, primary_key=key))
    return Schema(
        tables=tuple(
            Table(name=name, columns=tuple(own), sql="")
            for name, own in zip(names, tables, strict=True)
            if name != "sqlite_sequence"
        ),
        foreign_keys=tuple(
            ForeignKey(
                child=names[columns[child][0]],
                child_columns=(columns[child][1],),
                parent=names[columns[parent][0]],
                parent_columns=(columns[parent][1],),
            )
            for child, parent in record.foreign_keys
        ),
    )
