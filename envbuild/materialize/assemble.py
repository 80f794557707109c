"""The catalogue of a corpus from its units' outcomes, and its questions (CONTRACT 2)."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from envbuild.corpora.folder_files import PARTS_FOLDER
from envbuild.corpora.source import Source
from envbuild.errors import CorpusFolderError
from envbuild.io.arrow_columns import arrow_column
from envbuild.io.parquet import arrow_schema, columns_of, write_batches
from envbuild.materialize.units import Outcome, read_part
from envbuild.records.corpus import DatabaseRow, Question, Reject, TableRow

_BATCH = 16 * 1024
_SUMMED = (
    "tables",
    "rows",
    "rows_offered",
    "rows_stored",
    "rows_refused",
    "ddl_statements",
    "ddl_refused",
    "fk_violations",
)

_COUNTED = ("databases", "failed", "undecodable_cells", "description_files")


def assemble(root: Path, source: Source, *, split: str | None, limited: bool) -> dict[str, Any]:
    """Writes the four Parquet files of `root`; the counts that corpus.json keeps.

    `limited` says that databases were left out on purpose, so questions about unknown ones are
    not offered instead of refused.
    """
    counts: Counter[str] = Counter(dict.fromkeys((*_SUMMED, *_COUNTED), 0))
    built: set[str] = set()
    failed: set[str] = set()
    for outcome in _outcomes(root):
        if outcome.built is not None:
            row = outcome.built.database
            _check_file(root, row)
            built.add(row.db_id)
            counts["databases"] += 1
            counts.update({name: getattr(row, name) for name in _SUMMED})
            counts["description_files"] += outcome.built.description_files
            counts["undecodable_cells"] += sum(t.undecodable_cells for t in outcome.built.tables)
        elif outcome.reject is not None:
            failed.add(outcome.reject.db_id)
            counts["failed"] += 1
    sorter = _QuestionSorter(built, failed, split=split, limited=limited)
    name = root.name
    _write(root / "databases.parquet", DatabaseRow, _database_rows(root), name)
    _write(root / "tables.parquet", TableRow, _table_rows(root), name)
    questions = _write(root / "questions.parquet", Question, sorter.taken(source.questions()), name)
    rejects = _Tally(reject for group in (_rejects(root), sorter.refused) for reject in group)
    _write(root / "rejects.parquet", Reject, rejects, name)
    return {
        **{key: counts[key] for key in (*_COUNTED, *_SUMMED)},
        "questions": questions,
        "questions_refused": len(sorter.refused),
        "questions_outside": sorter.outside,
        "rejects": dict(sorted(rejects.reasons.items())),
    }


class _QuestionSorter:
    """Every question offered is taken or refused; the refused ones carry their reason."""

    def __init__(
        self, built: set[str], failed: set[str], *, split: str | None, limited: bool
    ) -> None:
        self.refused: list[Reject] = []
        self.outside = 0
        self._built, self._failed = built, failed
        self._split, self._limited = split, limited
        self._seen: set[int] = set()

    def taken(self, offered: Iterable[Question | Reject]) -> Iterator[Question]:
        for question in offered:
            if isinstance(question, Reject):
                if self._is_outside(question.db_id, ""):
                    self.outside += 1
                else:
                    self.refused.append(question)
            elif self._is_outside(question.db_id, question.split):
                self.outside += 1
            elif reason := self._reason(question):
                self.refused.append(_refusal(question, reason))
            else:
                yield question

    def _is_outside(self, db_id: str, split: str) -> bool:
        if self._split is not None and split not in ("", self._split):
            return True
        return self._limited and db_id not in self._built and db_id not in self._failed

    def _reason(self, question: Question) -> str:
        if question.db_id not in self._built:
            if not question.db_id:
                return "missing_db_id"
            return "database_not_built" if question.db_id in self._failed else "unknown_db_id"
        key = hash((question.question_id, question.style))
        if key in self._seen:
            return "duplicate_question_id"
        self._seen.add(key)
        return ""


class _Tally:
    """Rejects on their way to the file, counted by reason."""

    def __init__(self, rejects: Iterable[Reject]) -> None:
        self.reasons: Counter[str] = Counter()
        self._rejects = rejects

    def __iter__(self) -> Iterator[Reject]:
        for reject in self._rejects:
            self.reasons[reject.reason] += 1
            yield reject


def _refusal(question: Question, reason: str) -> Reject:
    return Reject(
        db_id=question.db_id,
        question_id=question.question_id,
        kind="question",
        reason=reason,
        detail=question.style,
    )


def _outcomes(root: Path) -> Iterator[Outcome]:
    """All outcomes in the source's order, whichever shard built them; parts are read one by one."""
    shards = sorted((root / PARTS_FOLDER).glob("*-of-*"))
    return heapq.merge(*map(_of_shard, shards), key=lambda outcome: outcome.index)


def _of_shard(folder: Path) -> Iterator[Outcome]:
    for part in sorted(folder.glob("*.msgpack")):
        yield from read_part(part)


def _database_rows(root: Path) -> Iterator[DatabaseRow]:
    return (o.built.database for o in _outcomes(root) if o.built is not None)


def _table_rows(root: Path) -> Iterator[TableRow]:
    for outcome in _outcomes(root):
        if outcome.built is not None:
            yield from outcome.built.tables


def _rejects(root: Path) -> Iterator[Reject]:
    for outcome in _outcomes(root):
        if outcome.built is not None:
            yield from outcome.built.rejects
        elif outcome.reject is not None:
            yield outcome.reject


def _check_file(root: Path, row: DatabaseRow) -> None:
    if not (root / row.sqlite_file).is_file():
        raise CorpusFolderError(
            f"{root / row.sqlite_file} is gone since it was built: remove {root / PARTS_FOLDER} "
            "and run again"
        )


def _write(
    path: Path, record: type[msgspec.Struct], rows: Iterable[msgspec.Struct], corpus: str
) -> int:
    """Streams records into one Parquet file with the corpus's name in its column."""
    schema = arrow_schema(record)
    return write_batches(path, _batches(rows, schema, corpus), schema)


def _batches(
    rows: Iterable[msgspec.Struct], schema: pa.Schema, corpus: str
) -> Iterator[pa.RecordBatch]:
    place = schema.get_field_index("corpus")
    chunk: list[msgspec.Struct] = []

    def batch() -> pa.RecordBatch:
        plain = columns_of(chunk, schema)
        names = arrow_column([corpus] * len(chunk), pa.string())
        return plain.set_column(place, schema.field(place), names)

    for row in rows:
        chunk.append(row)
        if len(chunk) == _BATCH:
            yield batch()
            chunk = []
    if chunk:
        yield batch()
