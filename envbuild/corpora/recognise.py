"""Which reader a source wants, from the names of its files and columns alone."""

import re
from collections.abc import Iterator
from pathlib import Path

from envbuild.errors import SourceError

_RECORD_FILES = (".parquet", ".jsonl", ".json")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(?:@[\w./-]+)?")
_LOOKED_FOR = """what is known: Parquet files of row payloads (SQaLe's layouts); a folder with \
data.json and databases/ (SynSQL); with train.json, dev.json or mini_dev_sqlite.json and a \
*_databases/ folder (BIRD); with questions as JSON and database/ (Spider); owner/name@revision (a \
hub id)"""


def recognise(path: Path | str) -> str:
    """The name of the reader for `path`. Raises SourceError, saying what is known, otherwise."""
    folder = Path(path)
    if not folder.exists():
        if _HUB_ID.fullmatch(str(path)) and not str(path).startswith("."):
            return "hub"
        raise SourceError(f"no such file or folder: {path}")
    if folder.is_file():
        return _recognise_file(folder)
    if (folder / "data.json").is_file() and (folder / "databases").is_dir():
        return "synsql"
    if any(database_folders(folder)):
        return "bird"
    if any((folder / name).is_dir() for name in ("database", "databases")):
        return "spider"
    for file in tabular_files(folder):
        return _recognise_file(file)
    raise SourceError(f"{path} has no layout that is known; {_LOOKED_FOR}")


def database_folders(folder: Path) -> Iterator[Path]:
    """BIRD's `<split>_databases` folders, in `folder` or one level below it."""
    yield from sorted(p for p in folder.glob("*_databases") if p.is_dir())
    yield from sorted(p for p in folder.glob("*/*_databases") if p.is_dir())


def tabular_files(folder: Path) -> Iterator[Path]:
    """Parquet and JSON record files at most two levels down, sorted; hidden ones left out."""
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder).parts
        hidden = any(part.startswith(".") for part in inside)
        if len(inside) <= 3 and not hidden and file.suffix in _RECORD_FILES and file.is_file():
            yield file


def _recognise_file(file: Path) -> str:
    from envbuild.corpora.tables import columns_of

    if file.suffix in (".sqlite", ".sqlite3", ".db"):
        raise SourceError(f"{file} is a SQLite file already: use it as a corpus, or pack it")
    columns = columns_of(file)
    sqale = {"Full schema", "questions", "full_schema"}
    return "sqale" if sqale & columns or {"schema", "query"} <= columns else "payload"
