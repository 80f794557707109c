"""Databases and manifests for cases, by the package's own way in wherever there is one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
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
from envbuild.schema.read import read_schema
from envbuild.sql.connect import open_read_only, quote_name

REPO = Path(__file__).parents[2]


def python(*arguments: str, input: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Another Python that imports the same package, after its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        input=input,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=120,
    )


def environment(**variables: str) -> dict[str, str]:
    """This process's environment for another Python that imports the same package."""
    paths = [str(REPO), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}


def write_database(path: Path, script: str) -> Path:
    """A SQLite file that the script makes, whatever it does."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(script if script.strip() else "VACUUM")
    return path


def add_rows_as_table(path: Path, name: str, rows: list[tuple[Any, ...]], width: int) -> str:
    """A query that gives these rows as they are; without any, it is `width` columns wide."""
    width = len(rows[0]) if rows else width
    table = quote_name(f"envbuild case {name}")
    with closing(apsw.Connection(str(path))) as connection:
        columns = ", ".join(f"c{number}" for number in range(width))
        connection.execute(f"CREATE TABLE {table} ({columns})")
        marks = ", ".join("?" * width)
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    return f"SELECT * FROM {table}"


def asked(path: Path, read: Callable[[Any], Any] = read_schema) -> Any:
    """What `read` says of the database, by default its schema."""
    with closing(open_read_only(path)) as connection:
        return read(connection)


def write_source(folder: Path, records: Iterable[Mapping[str, Any]], name: str = "source") -> Path:
    """The records as one JSON-lines file that materialize reads; a payload becomes text."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    lines = [{**r, "payload": payload_text(r["payload"])} if "payload" in r else r for r in records]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
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
        {"db_id": db_id, "ddl": ddl, "payload": payloads.get(db_id, "")}
        for db_id, ddl in databases.items()
    ]
    source = folder / "source"
    write_source(source, records, "databases")
    if questions := [{"question": f"Question {n}", **q} for n, q in enumerate(questions)]:
        write_source(source, questions, "questions")
    found = read_source(source, "payload")
    summary = build_corpus(found, folder / "corpus", name="cases", workers=1)
    return CorpusFolder(Path(summary.root))


def write_manifest(
    folder: Path, databases: Mapping[str, str], questions: Iterable[Mapping[str, Any]]
) -> Manifest:
    """The questions' manifest, by way of a corpus folder."""
    corpus = write_corpus(folder, databases, questions)
    settings = ManifestSettings(limits=Limits())
    build_manifest([corpus], folder / "manifest", settings=settings, workers=1)
    return open_manifest(folder / "manifest")


def payload_text(payload: Any) -> str:
    """A payload given as a string is raw JSON text; anything else becomes it."""
    return payload if isinstance(payload, str) else json.dumps(payload)
