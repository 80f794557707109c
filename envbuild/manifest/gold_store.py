"""What answers are judged by: golds of the engine that runs here, on the databases they are of.

Whatever judges answers by a manifest comes through `GoldStore`; whoever only reads rows does not.
A database's file is read once a process, and again only when its size, times or inode change, or
those of a WAL beside it: what is committed there is part of the database, though not of its file.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from envbuild.errors import CorpusError, CorpusFolderError, SourceError
from envbuild.io.files import sha256_file
from envbuild.io.packs import local_file
from envbuild.manifest.read import FORMAT, Manifest
from envbuild.records.manifest import GoldResult, ManifestRow
from envbuild.sql.connect import SQLITE_VERSION, read_image
from envbuild.sql.execution.session import Session
from envbuild.sql.forks import KeyedLocks
from envbuild.sql.verdicts import digest_rows, encode_rows

OpenVariant = Callable[[str, Path], Session]
"""(variant, visible database) -> a session over it, which stays its owner's."""

_Key = tuple[str, str, str, str]
"""Manifest folder, digest of its index, gold_id, variant."""
_run_again: dict[_Key, GoldResult] = {}
"""The golds that this process has run last, for all who judge by its manifest."""
MAX_RUN_AGAIN = 4096
"""Golds kept; the oldest is run once more when it is asked for again."""
_running = KeyedLocks()


class GoldStore:
    """The golds and databases of one manifest; safe to share among threads, and after a fork."""

    def __init__(
        self, manifest: Manifest, *, rerun_golds: bool = False, open_variant: OpenVariant
    ) -> None:
        """`rerun_golds`: run each gold once a process, and judge by that result.

        Without it stored results are taken: raises CorpusFolderError where another version of
        SQLite made them.
        """
        if not rerun_golds:
            refuse_other_engine(manifest)
        self.manifest = manifest
        self.rerun_golds = rerun_golds
        self._open_variant = open_variant
        self._prefix = str(manifest.root.resolve()), _index_digest(manifest)

    def gold(self, row: ManifestRow, variant: str = "") -> GoldResult:
        """The row's gold result, on a hidden variant where one is named.

        Raises UnknownNameError where the manifest has none.
        """
        stored = self.manifest.gold(row.gold_id, variant)
        if not self.rerun_golds and not self._lost_bytes(stored):
            return stored
        key = (*self._prefix, row.gold_id, variant)
        with _running.of(key):  # the first thread runs it, the others wait for it
            if key not in _run_again:
                _run_again[key] = self._run(row, stored)
            found = _run_again[key]
            while len(_run_again) > MAX_RUN_AGAIN:
                _run_again.pop(next(iter(_run_again)), None)
            return found

    def database_path(self, row: ManifestRow) -> Path:
        """The row's SQLite file, the staged one of a packed corpus.

        Raises CorpusError (`database_changed`) where it is not the one the golds were computed on,
        SourceError where it cannot be read.
        """
        path = local_file(self.manifest.database_path(row))
        # an empty digest is none
        if row.database_sha256 and _digest_of(path) != row.database_sha256:
            raise CorpusError(
                "database_changed",
                f"database {row.db_id!r} ({path.resolve()}) is not the one its golds were computed "
                "on: put that file back, or build the corpus and the manifest again",
                db_id=row.db_id,
            )
        return path

    def _lost_bytes(self, stored: GoldResult) -> bool:
        """Whether text that is not valid may have been stored as U+FFFD, as format 1 did."""
        return self.manifest.index["format"] != FORMAT and "\ufffd".encode() in stored.result

    def _run(self, row: ManifestRow, stored: GoldResult) -> GoldResult:
        """The gold run by this engine, under the limits that the manifest was built with."""
        path, limits = self.database_path(row), self.manifest.limits
        if stored.variant:
            result = self._open_variant(stored.variant, path).run(row.gold_sql, limits)
        else:
            with Session.open_file(path, limits=limits) as session:
                result = session.run(row.gold_sql)
        return msgspec.structs.replace(
            stored,
            outcome=result.outcome.value,
            columns=result.columns,
            digest=digest_rows(result.rows, ordered=stored.ordered) if result.ok else "",
            result=encode_rows(result.rows) if result.ok else b"",
        )


def refuse_other_engine(manifest: Manifest) -> None:
    """Raises CorpusFolderError where the stored golds are not this SQLite's own."""
    others = sorted(manifest.sqlite_versions - {SQLITE_VERSION})
    if others:
        raise CorpusFolderError(
            f"the golds of {manifest.root} were made by SQLite {' and '.join(others)}, and SQLite "
            f"{SQLITE_VERSION} runs here, which may give other results: build the manifest again, "
            "or ask for its golds to be run again (--rerun-golds; in Python rerun_golds=True)"
        )


def _index_digest(manifest: Manifest) -> str:
    """Tells a manifest from another one built later in the same folder."""
    return hashlib.sha256(msgspec.json.encode(manifest.index, order="sorted")).hexdigest()


# A database's digest.


_State = tuple[tuple[int, ...], tuple[int, ...]]
"""Of the file, and of the WAL beside it; nothing where there is none, or an empty one."""

_known: dict[Path, tuple[_State, str]] = {}
"""Absolute path -> the state in which it was last read, and the digest it had."""
_reading = KeyedLocks()


def _digest_of(path: Path) -> str:
    with _reading.of(str(path)):  # the first thread reads, the others wait for it
        try:
            state = _state_of(path)
            if path not in _known or _known[path][0] != state:
                # with a WAL, of what SQLite reads from both
                whole = hashlib.sha256(read_image(path)).hexdigest() if state[1] else None
                _known[path] = state, whole or sha256_file(path)
        except OSError as e:
            raise SourceError(f"cannot read the database {path}: {e.strerror}") from e
        return _known[path][1]


def _state_of(path: Path) -> _State:
    log: tuple[int, ...] = ()
    with suppress(FileNotFoundError):
        log = _fingerprint(path.with_name(f"{path.name}-wal").stat())
    return _fingerprint(path.stat()), log


def _fingerprint(status: os.stat_result) -> tuple[int, ...]:
    """The time of change tells of a file whose time of writing was set back."""
    if not status.st_size:
        return ()
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
