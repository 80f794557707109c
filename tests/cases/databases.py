"""Databases and manifests for cases, by the package's own way in wherever there is one."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import read_source
from envbuild.manifest.build import build_manifest
from envbuild.manifest.read import Manifest, open_manifest
from envbuild.manifest.settings import ManifestSettings
from envbuild.materialize.corpus import build_corpus
from envbuild.records.execution import Limits
from envbuild.sql.connect import quote_name

COLUMN = "c{}"
REPO = Path(__file__).parents[2]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment for another Python that imports the same package."""
    paths = [str(REPO), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}


def write_database(path: Path, script: str) -> Path:
    """A SQLite file that the script makes, whatever it does."""
    connection = apsw.Connection(str(path))
    try:
        if script.strip():
            connection.execute(script)
        else:
            connection.execute("VACUUM")
    finally:
        connection.close()
    return path


def add_rows_as_table(path: Path, name: str, rows: Sequence[Sequence[Any]], width: int) -> None:
    """A table without affinities, so that `SELECT *` gives the rows as they are."""
    columns = ", ".join(COLUMN.format(number) for number in range(width))
    connection = apsw.Connection(str(path))
    try:
        connection.execute(f"CREATE TABLE {quote_name(name)} ({columns})")
        marks = ", ".join("?" * width)
        statement = f"INSERT INTO {quote_name(name)} VALUES ({marks})"
        connection.executemany(statement, [tuple(row) for row in rows])
    finally:
        connection.close()


def write_source(folder: Path, records: Iterable[Mapping[str, Any]], name: str = "source") -> Path:
    """The records as one JSON-lines file: a source that materialize reads."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_corpus(
    folder: Path,
    databases: Mapping[str, str],
    questions: Iterable[Mapping[str, Any]] = (),
    *,
    payloads: Mapping[str, Any] | None = None,
) -> CorpusFolder:
    """A corpus folder by materialize: each database's DDL (and payload), and the questions."""
    payloads = payloads or {}
    records = [
        {"db_id": db_id, "ddl": ddl, "payload": payload_text(payloads.get(db_id, ""))}
        for db_id, ddl in databases.items()
    ]
    asked = [{"question": f"Question {number}", **q} for number, q in enumerate(questions)]
    source = folder / "source"
    write_source(source, records, "databases")
    if asked:
        write_source(source, asked, "questions")
    summary = build_corpus(
        read_source(source, "payload"), folder / "corpus", name="cases", workers=1
    )
    return CorpusFolder(Path(summary.root))


def write_manifest(
    folder: Path,
    databases: Mapping[str, str],
    questions: Iterable[Mapping[str, Any]],
    *,
    limits: Limits | None = None,
) -> Manifest:
    """The questions' manifest, by way of a corpus folder."""
    corpus = write_corpus(folder, databases, questions)
    settings = ManifestSettings(limits=limits or Limits())
    build_manifest([corpus], folder / "manifest", settings=settings, workers=1)
    return open_manifest(folder / "manifest")


def payload_text(payload: Any) -> str:
    """A payload given as a string is raw JSON text; anything else becomes it."""
    return payload if isinstance(payload, str) else json.dumps(payload)
