"""Whether a database is still the one a manifest was built on, by the SHA-256 of its file.

A file is read once a process, and again only when its size, times or inode change, or those of a
WAL beside it: what is committed there is part of the database, though not of its file.
"""

import hashlib
import os
from pathlib import Path

from envbuild.errors import CorpusError, SourceError
from envbuild.io.files import sha256_file
from envbuild.sql.connect import read_image
from envbuild.sql.forks import KeyedLocks

_State = tuple[tuple[int, ...], tuple[int, ...]]
"""Of the file, and of the WAL beside it; nothing where there is none, or an empty one."""

_known: dict[str, tuple[_State, str]] = {}
"""Absolute path -> the state in which it was last read, and the digest it had."""
_reading = KeyedLocks()


def check_database(path: Path, sha256: str, *, db_id: str) -> None:
    """Raises CorpusError (`database_changed`) where the database's digest is not `sha256`.

    An empty `sha256` is none, and passes. Raises SourceError where the file cannot be read.
    """
    if sha256 and _digest_of(str(path.absolute())) != sha256:
        raise CorpusError(
            "database_changed",
            f"database {db_id!r} ({path.resolve()}) is not the one its golds were computed on: "
            "put that file back, or build the corpus and the manifest again",
            db_id=db_id,
        )


def _digest_of(path: str) -> str:
    state = _state_of(path)
    known = _known.get(path)
    if known is None or known[0] != state:
        with _reading.of(path):  # the first thread reads, the others wait for it
            known = _known.get(path)
            if known is None or known[0] != state:
                known = _known[path] = (state, _read_digest(path, state))
    return known[1]


def _read_digest(path: str, state: _State) -> str:
    """Of the file, streamed; with a WAL beside it, of what SQLite reads from both."""
    if state[1]:
        return hashlib.sha256(read_image(Path(path))).hexdigest()
    try:
        return sha256_file(Path(path))
    except OSError as e:
        raise SourceError(f"cannot read the database {path}: {e.strerror}") from e


def _state_of(path: str) -> _State:
    """Asked at every opening of a view, where Path objects would double its cost."""
    try:
        return _fingerprint(path), _log_fingerprint(f"{path}-wal")
    except OSError as e:
        raise SourceError(f"cannot read the database {path}: {e.strerror}") from e


def _log_fingerprint(log: str) -> tuple[int, ...]:
    try:
        return _fingerprint(log) if os.access(log, os.F_OK) else ()
    except FileNotFoundError:  # its last reader has just left
        return ()


def _fingerprint(path: str) -> tuple[int, ...]:
    """The time of change tells of a file whose time of writing was set back."""
    status = os.stat(path)  # noqa: PTH116 - see _state_of
    if not status.st_size:
        return ()
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
