"""Corpus folders (CONTRACT 2), and any folder of SQLite files read as one.

Only reading: `materialize` writes them.
"""

from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.own_folder import name_databases
from envbuild.corpora.source import (
    INDEX_FILE,
    INDEX_FORMAT,
    PARTS_FOLDER,
    SQLITE_ENDINGS,
    SQLITE_MAGIC,
    files_below,
)
from envbuild.errors import CorpusFolderError
from envbuild.io.parquet import iter_records, open_parquet, read_records
from envbuild.records.corpus import DatabaseRow, Question, Reject, TableRow

NOT_MEASURED = -1
"""A count nobody has taken yet: databases of a plain folder have no catalogue."""


def open_corpora(path: Path) -> list["CorpusFolder"]:
    """The corpora at `path`, by name: one corpus, the folder above several, or SQLite files.

    One SQLite file is a corpus too, named after itself. Raises CorpusFolderError where there is
    none, or where one was not finished.
    """
    path = Path(path)
    if not path.exists():
        raise CorpusFolderError(f"no folder {path}: give a corpus folder, or run materialize first")
    if path.is_file():
        _refuse_other_files(path)
        return [CorpusFolder(path.parent, only=path)]
    if not path.is_dir():
        raise CorpusFolderError(f"{path} is neither a folder nor a SQLite file")
    if (path / INDEX_FILE).is_file():
        return [CorpusFolder(path)]
    _refuse_unfinished(path)
    inside = sorted(child for child in path.iterdir() if (child / INDEX_FILE).is_file())
    for child in sorted(path.iterdir()):
        _refuse_unfinished(child)
    if inside:
        return [CorpusFolder(child) for child in inside]
    plain = CorpusFolder(path)
    if not plain.databases():
        raise CorpusFolderError(
            f"{path} holds no corpus ({INDEX_FILE}) and no SQLite file "
            f"({', '.join(SQLITE_ENDINGS)})"
        )
    return [plain]


def holds_corpora(path: Path) -> bool:
    """True for a corpus folder and the folder above several, finished or not."""
    if not path.is_dir():
        return not path.exists()  # what is not there is a corpus that has yet to be made
    folders = (path, *(child for child in path.iterdir() if child.is_dir()))
    return any(
        (folder / INDEX_FILE).is_file() or (folder / PARTS_FOLDER).is_dir() for folder in folders
    )


class CorpusFolder:
    """One corpus: its databases, their catalogue and its questions.

    A plain folder of SQLite files is one too: it has no questions, `index` is empty, and counts
    that nobody took are NOT_MEASURED.
    """

    def __init__(self, root: Path, *, only: Path | None = None) -> None:
        self.root = Path(root)
        self.index: dict[str, Any] = {} if only else _read_index(self.root)
        """corpus.json; empty for a plain folder."""
        self.name: str = self.index.get("name") or (only.stem if only else self.root.resolve().name)
        self._only = only
        self._databases: list[DatabaseRow] | None = None
        self._files: dict[str, str] | None = None

    @property
    def catalogued(self) -> bool:
        """False for a plain folder of SQLite files."""
        return bool(self.index)

    def databases(self) -> list[DatabaseRow]:
        """One row a database, in the corpus's own order."""
        if self._databases is None:
            if self.catalogued:
                self._databases = read_records(self.root / "databases.parquet", DatabaseRow)
            else:
                self._databases = list(_plain_rows(self.root, self.name, self._only))
        return self._databases

    def tables(self) -> list[TableRow]:
        """One row a table; none for a plain folder."""
        return self._read("tables.parquet", TableRow)

    def questions(self) -> list[Question]:
        """Every question, in the corpus's own order; none for a plain folder."""
        return self._read("questions.parquet", Question)

    def iter_questions(self) -> Iterator[Question]:
        """The questions, a row group at a time."""
        if self.catalogued:
            yield from iter_records(self.root / "questions.parquet", Question)

    @property
    def num_questions(self) -> int:
        """Questions of the corpus, every phrasing."""
        if not self.catalogued:
            return 0
        return int(open_parquet(self.root / "questions.parquet").metadata.num_rows)

    def find_question(self, question_id: str) -> Question | None:
        """The first question of this id; None where there is none."""
        return next((q for q in self.iter_questions() if q.question_id == question_id), None)

    def rejects(self) -> list[Reject]:
        """Everything materialize did not take."""
        return self._read("rejects.parquet", Reject)

    def database_path(self, db_id: str) -> Path:
        """The database's SQLite file. Raises CorpusFolderError for a db_id that is not here."""
        if self._files is None:
            self._files = {row.db_id: row.sqlite_file for row in self.databases()}
        if db_id not in self._files:
            raise CorpusFolderError(f"corpus {self.name!r} has no database {db_id!r}")
        return self.root / self._files[db_id]

    def _read(self, file: str, record: type[Any]) -> list[Any]:
        return read_records(self.root / file, record) if self.catalogued else []


def _plain_rows(root: Path, corpus: str, only: Path | None) -> Iterator[DatabaseRow]:
    below = (file for file in files_below(root) if file.suffix.lower() in SQLITE_ENDINGS)
    named = name_databases([only] if only else list(below), root)
    not_measured = ("tables", "columns", "rows", "foreign_keys", "fk_violations")
    nothing = ("rows_offered", "rows_stored", "rows_refused", "ddl_statements", "ddl_refused")
    for db_id, file in sorted(named.items(), key=itemgetter(1)):
        yield DatabaseRow(
            corpus=corpus,
            db_id=db_id,
            split="",
            sqlite_file=file.relative_to(root).as_posix(),
            sha256="",
            bytes=file.stat().st_size,
            **dict.fromkeys(not_measured, NOT_MEASURED),
            **dict.fromkeys(nothing, 0),
        )


def _read_index(root: Path) -> dict[str, Any]:
    file = root / INDEX_FILE
    if not file.is_file():
        return {}
    try:
        index = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as e:
        raise CorpusFolderError(f"{file} is not a corpus index: {e}") from e
    if index.get("format") != INDEX_FORMAT:
        raise CorpusFolderError(
            f"{file} has format {index.get('format')!r}; this version reads {INDEX_FORMAT!r}"
        )
    return index


def _refuse_unfinished(folder: Path) -> None:
    if (folder / PARTS_FOLDER).is_dir() and not (folder / INDEX_FILE).is_file():
        raise CorpusFolderError(
            f"{folder} is not finished: run the same materialize command again, it resumes"
        )


def _refuse_other_files(file: Path) -> None:
    """By its content, not its ending: a SQLite file may be called anything."""
    try:
        with file.open("rb") as stream:
            opening = stream.read(len(SQLITE_MAGIC))
    except OSError as e:
        raise CorpusFolderError(f"cannot read {file}: {e.strerror}") from e
    if opening != SQLITE_MAGIC:
        raise CorpusFolderError(
            f"{file} is no SQLite file: give a corpus folder, a folder of SQLite files, or one "
            "SQLite file"
        )
