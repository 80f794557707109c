"""Corpus folders (CONTRACT 2).

Only reading: `materialize` writes them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.source import (
    INDEX_FILE,
    INDEX_FORMAT,
    PARTS_FOLDER,
    UNKNOWN_LICENCE,
)
from envbuild.errors import CorpusFolderError
from envbuild.io.packs import mirrored
from envbuild.io.parquet import iter_records, open_parquet, read_records
from envbuild.records.corpus import DatabaseRow, Question, Reject, TableRow

_FILES = (
    INDEX_FILE,
    *(f"{name}.parquet" for name in ("databases", "tables", "questions", "rejects")),
    *("preflight.json", "findings.parquet", "buckets.parquet", "signal.parquet"),
)


def open_corpora(path: Path) -> list["CorpusFolder"]:
    """The corpora at `path`, by name: one corpus, at a URL too, or the folder above several.

    Raises CorpusFolderError where there is none, or where one was not finished.
    """
    path = mirrored(Path(path), _FILES)
    if not path.exists():
        raise CorpusFolderError(f"no folder {path}: give a corpus folder, or run materialize first")
    if not path.is_dir():
        raise CorpusFolderError(f"{path} is no corpus folder")
    if (path / INDEX_FILE).is_file():
        return [CorpusFolder(path)]
    _refuse_unfinished(path)
    inside = sorted(child for child in path.iterdir() if (child / INDEX_FILE).is_file())
    for child in sorted(path.iterdir()):
        _refuse_unfinished(child)
    if not inside:
        raise CorpusFolderError(f"{path} holds no corpus ({INDEX_FILE}): run materialize first")
    return [CorpusFolder(child) for child in inside]


def holds_corpora(path: Path) -> bool:
    """True for a corpus folder and the folder above several, finished or not."""
    if not path.is_dir():
        return not path.exists()  # what is not there is a corpus that has yet to be made
    folders = (path, *(child for child in path.iterdir() if child.is_dir()))
    return any(
        (folder / INDEX_FILE).is_file() or (folder / PARTS_FOLDER).is_dir() for folder in folders
    )


class CorpusFolder:
    """One corpus that materialize has made: its databases, their catalogue and its questions.

    Raises CorpusFolderError where the folder has no index, or one of another format.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.index = _read_index(self.root)
        """corpus.json."""
        self.name: str = self.index["name"]
        self.licence: str = self.index.get("licence", UNKNOWN_LICENCE)
        """Whose terms its data keep."""
        self._databases: list[DatabaseRow] | None = None
        self._files: dict[str, str] | None = None

    def databases(self) -> list[DatabaseRow]:
        """One row a database, in the corpus's own order."""
        if self._databases is None:
            self._databases = read_records(self.root / "databases.parquet", DatabaseRow)
        return self._databases

    def tables(self) -> list[TableRow]:
        """One row a table."""
        return read_records(self.root / "tables.parquet", TableRow)

    def questions(self) -> list[Question]:
        """Every question, in the corpus's own order."""
        return read_records(self.root / "questions.parquet", Question)

    def iter_questions(self) -> Iterator[Question]:
        """The questions, a row group at a time."""
        return iter_records(self.root / "questions.parquet", Question)

    @property
    def num_questions(self) -> int:
        """Questions of the corpus, every phrasing."""
        return int(open_parquet(self.root / "questions.parquet").metadata.num_rows)

    def find_question(self, question_id: str) -> Question | None:
        """The first question of this id; None where there is none."""
        return next((q for q in self.iter_questions() if q.question_id == question_id), None)

    def rejects(self) -> list[Reject]:
        """Everything materialize did not take."""
        return read_records(self.root / "rejects.parquet", Reject)

    def database_path(self, db_id: str) -> Path:
        """The database's SQLite file. Raises CorpusFolderError for a db_id that is not here."""
        if self._files is None:
            self._files = {row.db_id: row.sqlite_file for row in self.databases()}
        if db_id not in self._files:
            raise CorpusFolderError(f"corpus {self.name!r} has no database {db_id!r}")
        return self.root / self._files[db_id]


def _read_index(root: Path) -> dict[str, Any]:
    file = root / INDEX_FILE
    try:
        index = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except OSError as e:
        raise CorpusFolderError(f"cannot read {file}: {e.strerror}") from e
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
