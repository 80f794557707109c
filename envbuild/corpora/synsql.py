"""A SynSQL folder: data.json (one array of any size), databases/, tables.json with DDL."""

from collections.abc import Iterator
from pathlib import Path

from envbuild.corpora.question_files import QuestionFile, iter_questions
from envbuild.corpora.ready_databases import iter_listed, iter_ready
from envbuild.corpora.source import Source
from envbuild.errors import SourceError
from envbuild.records.corpus import DatabaseRecord, Reject


def read(path: str, *, split: str | None = None) -> Source:
    """The SynSQL source in folder `path`. Raises SourceError where data.json is missing."""
    root = Path(path)
    records, databases, tables = root / "data.json", root / "databases", root / "tables.json"
    if not records.is_file():
        raise SourceError(f"{path} is no SynSQL folder: it has no data.json")

    def iter_databases() -> Iterator[DatabaseRecord | Reject]:
        known = []
        for record in iter_ready(databases) if databases.is_dir() else ():
            known.append(record.db_id)
            yield record
        yield from iter_listed(tables, known)

    size = records.stat().st_size
    return Source(
        name=root.resolve().name,
        kind="synsql",
        said=f"a SynSQL folder: data.json of {size:,} bytes, databases/, "
        + ("tables.json" if tables.is_file() else "no tables.json"),
        databases=iter_databases,
        questions=lambda: iter_questions([QuestionFile(path=records, split="")]),
        files=tuple(file for file in (records, tables) if file.is_file()),
    )
