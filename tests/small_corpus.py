"""Corpus folders for tests, written as materialize writes them, over small or real databases."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FORMAT
from envbuild.io.files import sha256_file
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.records.corpus import DatabaseRow, Question
from envbuild.sql.connect import Connection
from tests.shared import shared_data


def write_corpus(
    folder: Path, databases: Mapping[str, str | Path], questions: Iterable[Question]
) -> CorpusFolder:
    """A corpus folder whose databases come from DDL (and inserts) or are copied from files."""
    rows = []
    for number, (db_id, source) in enumerate(databases.items()):
        file = folder / "databases" / f"d{number}" / f"d{number}.sqlite"
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, Path):
            shutil.copyfile(source, file)
        else:
            connection = Connection(str(file))
            connection.execute(source)
            connection.close()
        fixed = {
            "corpus": folder.name, "db_id": db_id, "split": "train", "sha256": sha256_file(file),
            "sqlite_file": file.relative_to(folder).as_posix(), "bytes": file.stat().st_size,
        }  # fmt: skip
        counts = dict.fromkeys(DatabaseRow.__struct_fields__, 0)
        rows.append(msgspec.convert({**counts, **fixed}, DatabaseRow))
    write_records(folder / "databases.parquet", rows, arrow_schema(DatabaseRow))
    write_records(folder / "questions.parquet", questions, arrow_schema(Question))
    index = {"format": INDEX_FORMAT, "name": folder.name}
    (folder / "corpus.json").write_text(json.dumps(index))
    return CorpusFolder(folder)


def real_questions(corpus: str) -> list[Question]:
    """The questions of a published folder in the shared data, its position as id."""
    records = json.loads(next(shared_data(corpus).glob("d*.json")).read_text())
    return [
        Question(
            corpus=corpus,
            question_id=f"{position:04}",
            db_id=record["db_id"],
            split="dev",
            question=record["question"],
            gold_sql=next(
                record[k] for k in ("SQL", "query", "sql") if isinstance(record.get(k), str)
            ),
        )
        for position, record in enumerate(records)
    ]


def real_corpus(tmp_path: Path, corpus: str) -> CorpusFolder:
    """A published corpus of the shared data as a corpus folder."""
    questions = real_questions(corpus)
    root = shared_data(corpus)
    files = {
        path.stem: path
        for path in sorted(root.rglob("*.sqlite"))
        if path.stem in {question.db_id for question in questions}
    }
    return write_corpus(tmp_path / corpus, files, questions)
