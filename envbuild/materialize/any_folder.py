"""Corpora for the commands that take one: any other folder is read into the user's cache first."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from envbuild import __version__
from envbuild.corpora.folder import CorpusFolder, holds_corpora, open_corpora
from envbuild.corpora.source import Source, begins_as_sqlite, read_source
from envbuild.errors import CorpusFolderError, SourceError
from envbuild.io.packs import cache_folder
from envbuild.materialize.corpus import build_corpus
from envbuild.records.corpus import DatabaseRecord


def open_any(
    path: Path, *, workers: int | None = None, on_read: Callable[[str], None] = lambda said: None
) -> list[CorpusFolder]:
    """The corpora at `path`: a corpus, the folder above several, or any folder of SQLite files.

    A folder that envbuild has not made, or one SQLite file, is materialized by links into the
    cache, and anew when one of its files has changed; nothing is written into it. `on_read` hears
    what was read and what was not. Raises CorpusFolderError where there is neither, and for row
    payloads, which are to be materialized first.
    """
    path = Path(path)
    if holds_corpora(path):
        return open_corpora(path)
    try:
        if not path.is_dir() and not begins_as_sqlite(path):
            raise SourceError(f"{path} is no SQLite file")
        source = read_source(path)
    except SourceError as e:
        raise CorpusFolderError(f"{path} is no corpus, and cannot be read as a folder: {e}") from e
    records = [one for one in source.databases() if isinstance(one, DatabaseRecord)]
    if not records or not all(record.sqlite_file for record in records):
        raise CorpusFolderError(
            f"{path} holds row payloads: run `envbuild materialize {path} --out corpus/`, and give "
            "corpus/ here"
        )
    on_read(f"{source.name}: {source.description}")
    kept = cache_folder() / "folders" / _digest(f"{path.resolve()}\n{_state_of(source, records)}")
    built = build_corpus(source, kept, link=True, workers=workers)
    if not built.databases:
        reasons = ", ".join(f"{reason} {count}" for reason, count in built.rejects.items())
        raise CorpusFolderError(f"no database of {path} can be read: {reasons}")
    return [CorpusFolder(Path(built.root))]


def _state_of(source: Source, records: list[DatabaseRecord]) -> str:
    """Changes when a file of the source does, or how it is read."""
    lines = [__version__, source.name, source.description]
    for file in (*map(str, source.files), *(record.sqlite_file for record in records)):
        logged = [
            file,
            *(log for ending in ("-wal", "-journal") if Path(log := file + ending).is_file()),
        ]
        for one in logged:
            status = Path(one).stat()
            lines.append(f"{one} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(lines)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
