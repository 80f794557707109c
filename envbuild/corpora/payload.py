"""Row payloads in Parquet or JSON records: DDL and rows as text, questions beside or joined.

The columns tell the layout, not the file names: SQaLe's current two sets, its older single table
(names with spaces), v1 (no rows, no ids), and the same columns under plainer names.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.source import Source, tabular_files
from envbuild.corpora.tables import bytes_of, columns_of, iter_cells, length_of, text_of
from envbuild.errors import SourceError
from envbuild.io.json_stream import decode_json
from envbuild.records.corpus import DatabaseRecord, Question, Reject

_DATABASE_COLUMNS = {
    "db_id": ("schema_id", "schema id", "db_id"),
    "ddl": ("full_schema", "Full schema", "ddl", "schema"),
    "payload": ("schema_content", "Schema content", "payload"),
    "dialect": ("ddl_dialect", "dialect"),
    "split": ("split",),
}
_QUESTION_COLUMNS = {
    "question_id": ("question_id", "question id", "id"),
    "db_id": ("schema_id", "schema id", "db_id"),
    "sql": ("sql", "sql statement", "query", "gold_sql", "SQL"),
    "question": ("questions", "question"),
    "style": ("style",),
    "evidence": ("evidence", "external_knowledge"),
    "difficulty": ("difficulty",),
    "relevant_tables": ("relevant_tables", "relevant tables"),
    "stored_result": ("execution_result", "stored_result"),
    "split": ("split",),
    "ddl": ("schema",),
}
"""`ddl` stands in for the id that v1 lacks."""
_NUMBERED = re.compile(r"(.+?)-\d{5}-of-\d{5}")
_SPLITS = frozenset(("train", "test", "dev", "validation", "val"))
_LEGACY_STYLES = {"verbose (original)": "verbose"}
LAYOUTS = ("current", "legacy", "v1", "records")


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """One file and which column means what in it."""

    path: Path
    layout: str
    split: str
    database: dict[str, str]
    """Field -> column; empty where the file holds no databases."""
    question: dict[str, str]


def read(path: str, *, split: str | None = None, kind: str = "payload") -> Source:
    """The source at `path`: one file, or a folder of them. Raises SourceError where none fits."""
    root = Path(path)
    found = [root] if root.is_file() else list(tabular_files(root))
    files = [file for path_ in found if (file := _look_at(path_, root)) is not None]
    if not files:
        raise SourceError(f"{path} holds no Parquet or JSON records with DDL or SQL columns")
    layout = min((file.layout for file in files), key=LAYOUTS.index)
    chosen = [file for file in files if file.layout == layout]
    splits = tuple(sorted({file.split for file in chosen if file.split}))
    if split is not None:
        chosen = [file for file in chosen if file.split in ("", split)]
    return Source(
        name=root.resolve().stem if root.is_file() else root.resolve().name,
        kind=kind,
        description=_describe(chosen, files, layout),
        databases=lambda: _iter_databases(chosen),
        questions=lambda: _iter_questions(chosen),
        files=tuple(file.path for file in chosen),
        splits=splits,
        has_databases=any(file.database for file in chosen),
        has_questions=any(file.question for file in chosen),
    )


def read_sqale(path: str, *, split: str | None = None) -> Source:
    """SQaLe in its current, legacy and v1 layouts; SourceError where `path` holds none of them."""
    return read(path, split=split, kind="sqale")


def _look_at(path: Path, root: Path) -> _File | None:
    try:
        columns = columns_of(path)
    except SourceError:
        if path == root:
            raise
        return None  # some other file of the folder
    database = _present(_DATABASE_COLUMNS, columns)
    question = _present(_QUESTION_COLUMNS, columns)
    if "ddl" not in database:
        database = {}
    if "sql" not in question or "question" not in question:
        question = {}
    if not database and not question and columns:
        return None
    if "schema id" in columns:
        layout = "legacy"
    elif "schema" in columns and "query" in columns:
        layout = "v1"
    else:
        layout = "current" if "schema_id" in columns else "records"
    numbered = _NUMBERED.fullmatch(path.stem)
    named = numbered[1] if numbered else path.stem if path.stem in _SPLITS else ""
    return _File(path=path, layout=layout, split=named, database=database, question=question)


def _present(wanted: dict[str, tuple[str, ...]], columns: set[str]) -> dict[str, str]:
    return {
        field: found
        for field, names in wanted.items()
        if (found := next((name for name in names if name in columns), None)) is not None
    }


def _describe(chosen: list[_File], files: list[_File], layout: str) -> str:
    databases = sum(bool(file.database) for file in chosen)
    questions = sum(bool(file.question) for file in chosen)
    described = (
        f"row payloads, {layout} layout: databases in {databases} file(s), questions in {questions}"
    )
    if layout == "v1":
        described += "; v1 holds no data rows"
    others = sorted({file.layout for file in files} - {layout})
    return described + (f"; also there, not read: {', '.join(others)} layout" if others else "")


def _iter_databases(files: list[_File]) -> Iterator[DatabaseRecord | Reject]:
    """First come, first taken: a later row of the same id and other content is a reject."""
    sizes: dict[str, tuple[int, int]] = {}
    for file in files:
        if not file.database:
            continue
        columns = [file.database.get(field, "") for field in _DATABASE_COLUMNS]
        # these layouts repeat the schema with every question
        repeated = bool(file.question) and file.path.suffix == ".parquet"
        for index, cells in enumerate(
            iter_cells(file.path, columns, large=True, repeated=repeated)
        ):
            db_id, ddl, payload, dialect, split = cells
            name = text_of(db_id) or id_of_schema(text_of(ddl))
            size = (length_of(ddl), length_of(payload))
            if name not in sizes:
                sizes[name] = size
                yield DatabaseRecord(
                    db_id=name,
                    split=text_of(split) or file.split,
                    ddl=text_of(ddl),
                    payload=bytes_of(payload),
                    dialect=text_of(dialect),
                )
            elif not file.question or sizes[name] != size:
                yield Reject(
                    db_id=name,
                    kind="database",
                    index=index,
                    reason="duplicate_db_id",
                    detail=f"{file.path.name} has this id again",
                )


def _iter_questions(files: list[_File]) -> Iterator[Question | Reject]:
    position = 0
    for file in files:
        if not file.question:
            continue
        columns = [file.question.get(field, "") for field in _QUESTION_COLUMNS]
        for cells in iter_cells(file.path, columns, large=False):
            row = dict(zip(_QUESTION_COLUMNS, cells, strict=True))
            row["split"] = row["split"] or file.split
            row["question_id"] = row["question_id"] if row["question_id"] is not None else position
            if not row["db_id"] and row["ddl"]:
                row["db_id"] = id_of_schema(text_of(row["ddl"]))
            yield from questions_of_row(row, position)
            position += 1


def id_of_schema(ddl: str) -> str:
    """The id of a database whose layout has none: derived from its DDL, so equal DDL is one."""
    return f"schema_{hashlib.sha256(ddl.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def questions_of_row(row: dict[str, Any], position: int) -> Iterator[Question | Reject]:
    """The questions of a row, its phrasings being text, an object of them, or JSON text of one.

    A phrasing that is null was never offered; a row without any, or without SQL, is a Reject
    (`no_phrasing`, `no_gold_sql`). Placeholders like `...` stay: preflight reports them.
    """
    question_id, db_id = _text(row["question_id"]), _text(row["db_id"])

    def rejected(reason: str) -> Reject:
        return Reject(
            db_id=db_id, question_id=question_id, kind="question", index=position, reason=reason
        )

    sql = _text(row["sql"])
    if not sql.strip():
        yield rejected("no_gold_sql")
        return
    phrasings = _phrasings(row["question"])
    if not phrasings:
        yield rejected("no_phrasing")
    result = row["stored_result"]
    for style, text in phrasings.items():
        yield Question(
            question_id=question_id,
            db_id=db_id,
            split=_text(row["split"]),
            question=text,
            style=style or _text(row["style"]),
            evidence=_text(row["evidence"]),
            gold_sql=sql,
            difficulty=_text(row["difficulty"]),
            stored_result=None if result is None else _text(result),
            relevant_tables=_names(row["relevant_tables"]),
        )


def _phrasings(value: Any) -> dict[str, str]:
    """Style -> text; the style is empty where the row has one phrasing only."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = decode_json(value)
        except msgspec.DecodeError:
            return {"": value}
    if isinstance(value, dict):
        return {
            _LEGACY_STYLES.get(str(style), _text(style)): _text(text)
            for style, text in value.items()
            if isinstance(text, str)
        }
    return {"": value} if isinstance(value, str) else {}


def _names(value: Any) -> tuple[str, ...]:
    """A list of table names, or JSON text of one; what is neither gives none."""
    if isinstance(value, str) and value:
        try:
            value = decode_json(value)
        except msgspec.DecodeError:
            return ()
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
