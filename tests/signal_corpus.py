"""A corpus folder over real databases, written by hand: catalogue, questions, index."""

import json
import shutil
from pathlib import Path

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FORMAT
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.records.corpus import DatabaseRow, Question


def build_folder(
    root: Path, name: str, databases: dict[str, Path], golds: list[tuple[str, str]]
) -> CorpusFolder:
    """A corpus `name` under `root` with copies of these databases and (db_id, gold) questions."""
    folder = root / name
    folder.mkdir(parents=True)
    rows = []
    for db_id, path in sorted(databases.items()):
        shutil.copy(path, folder / f"{db_id}.sqlite")
        known = {"corpus": name, "db_id": db_id, "split": "", "sqlite_file": f"{db_id}.sqlite"}
        fields = DatabaseRow.__struct_fields__
        rows.append(
            msgspec.convert({**dict.fromkeys(fields, 0), "sha256": "", **known}, DatabaseRow)
        )
    questions = [
        Question(
            corpus=name,
            question_id=f"q{number:04}",
            db_id=db_id,
            question=f"question {number}",
            gold_sql=gold,
        )
        for number, (db_id, gold) in enumerate(golds)
    ]
    write_records(folder / "databases.parquet", rows, arrow_schema(DatabaseRow))
    write_records(folder / "questions.parquet", questions, arrow_schema(Question))
    index = {"format": INDEX_FORMAT, "name": name}
    (folder / "corpus.json").write_text(json.dumps(index))
    return CorpusFolder(folder)
