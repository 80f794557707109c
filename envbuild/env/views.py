"""Views ready to open: built once, kept within a budget of bytes, shared by a group's episodes.

Small views are kept as images in memory, and every episode opens a private copy. Larger ones lie
in a folder of this process as files that are opened immutable, whatever their size in no time and
with one page cache for all. A view of every table of a large database is that database's own file.
"""

import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from envbuild.errors import CorpusError, SourceError
from envbuild.records.corpus import Schema
from envbuild.schema.read import read_schema
from envbuild.sql.connect import SQLiteError, open_image, open_read_only
from envbuild.sql.execution.session import Session
from envbuild.sql.files.subset import ViewBuilder
from envbuild.sql.forks import KeyedLocks, renew_in_children
from envbuild.sql.from_names import oversized_views
from envbuild.sql.names import declared_spelling, fold_name

MiB = 1024 * 1024
SMALL = MiB // 2
"""Bytes up to which every episode gets a private copy in memory."""
MAX_IN_MEMORY = 8 * MiB
"""Bytes of a database from which views are built straight into files."""
KEPT_BUILDERS = 4
"""Databases kept open for building further views of them."""
_TABLES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)
_VIEWS = "SELECT name, sql FROM sqlite_schema WHERE type = 'view'"
_VIRTUAL = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%'"


class ViewSchema(NamedTuple):
    """What a view holds; read once and shared by every episode on the same view."""

    schema: Schema
    tables: tuple[str, ...]
    """Every table in shown order, then views."""
    spelling: dict[str, str]
    """Folded name -> declared name."""

    def find(self, name: str) -> str | None:
        """The declared spelling of a table or view, matched as SQLite does; None where none is."""
        return self.spelling.get(fold_name(name))


class View(msgspec.Struct, kw_only=True, eq=False):
    """One view, ready to open any number of times, from any thread."""

    image: bytes = b""
    file: Path | None = None
    shown: tuple[str, ...]
    owned_bytes: int
    """Bytes in memory, or on disk where the cache made the file."""
    _schema: ViewSchema | None = None

    def open(self) -> "EpisodeDatabase":
        """A database of one episode's own on this view."""
        if self.file is None:
            return EpisodeDatabase(Session.open_image(self.image), self)
        return EpisodeDatabase(Session.open_file(self.file), self)

    @property
    def schema(self) -> ViewSchema:
        """Read at its first use, through a connection of its own, free of any authorizer.

        This is no `cached_property`: that has one lock for all views.
        """
        if self._schema is None:
            opened = open_image(self.image) if self.file is None else open_read_only(self.file)
            with closing(opened) as connection:
                virtual = [name for (name,) in connection.execute(_VIRTUAL)]
                schema = read_schema(connection)
            known = declared_spelling((*schema.table_names, *virtual, *schema.views))
            shown = [known[name] for name in map(fold_name, self.shown) if name in known]
            tables = tuple(dict.fromkeys((*shown, *known.values())))
            self._schema = ViewSchema(schema, tables, known)
        return self._schema


class EpisodeDatabase:
    """One episode's database: a session on a view; closing it closes the session."""

    def __init__(self, session: Session, view: View) -> None:
        self.session = session
        self._view = view

    @property
    def schema(self) -> ViewSchema:
        """The view's schema."""
        return self._view.schema

    def close(self) -> None:
        """Releases the session; a second call does nothing."""
        self.session.close()


class ViewCache:
    """Opens views, building each at its first use; safe to share among threads.

    `memory_bytes` bounds the images kept, `disk_bytes` the files; the least recently used go first.
    A file that goes stays readable for the episodes that have it open. A forked child has a folder
    of its own.
    """

    def __init__(self, *, memory_bytes: int = 256 * MiB, disk_bytes: int = 16 * 1024 * MiB) -> None:
        self.memory_bytes = memory_bytes
        self.disk_bytes = disk_bytes
        self._views: OrderedDict[tuple[str, ...], View] = OrderedDict()
        self._in_memory = self._on_disk = 0
        self._builders: OrderedDict[str, ViewBuilder] = OrderedDict()
        self._building = KeyedLocks()
        self.renew_locks()
        renew_in_children(self)

    def open(
        self, path: Path, tables: Sequence[str] | None = None, *, digest: str = ""
    ) -> EpisodeDatabase:
        """A database of one episode's own in which only `tables` exist; None: every table.

        `digest` (the file's SHA-256, where it is known) or else path, size and time of change tell
        one database from another. Raises SourceError where `path` is no database, CorpusError
        where a table is missing.
        """
        while True:
            view = self.view(path, tables, digest=digest)
            try:
                return view.open()
            except CorpusError:
                if view.file is None or view.file.exists() or not view.owned_bytes:
                    raise
            with self._lock:  # another thread made room meanwhile, or somebody cleaned up
                self._forget(_key(path, tables, digest), view)

    def view(self, path: Path, tables: Sequence[str] | None = None, *, digest: str = "") -> View:
        """The view itself; see `open`."""
        key = _key(path, tables, digest)
        with self._building.of(key):  # the group's first episode builds, the others wait for it
            with self._lock:
                if key in self._views:
                    self._views.move_to_end(key)
                    return self._views[key]
            view = self._build(Path(path), tables, key)
            with self._lock:
                self._keep(key, view)
            return view

    @property
    def kept_bytes(self) -> tuple[int, int]:
        """Bytes of images in memory, and of files on disk."""
        return self._in_memory, self._on_disk

    def renew_locks(self) -> None:
        """For a forked child: another thread of the parent may be building, and owns its files."""
        self._lock = threading.Lock()
        self._folder: Path | None = None
        for key, view in list(self._views.items()):
            if view.file is not None:
                self._forget(key, view)

    def _build(self, path: Path, tables: Sequence[str] | None, key: tuple[str, ...]) -> View:
        size = _status(path).st_size
        if tables is None or size > MAX_IN_MEMORY:
            every, oversized = _look_into(path)
            asked = every if tables is None else tables
            if not oversized and set(map(fold_name, every)) <= set(map(fold_name, asked)):
                return View(file=path, shown=tuple(asked), owned_bytes=0)
            tables = asked
        if size <= MAX_IN_MEMORY:
            image = self._builder(path, key[0]).image(tables)
            if len(image) <= SMALL:
                return View(image=image, shown=tuple(tables), owned_bytes=len(image))
        name = sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        file = self._files() / f"{name}.sqlite"
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)  # left by a build that failed
        self._builder(path, key[0]).write(tables, file)
        view = View(file=file, shown=tuple(tables), owned_bytes=file.stat().st_size)
        _ = view.schema  # read now: the file may be gone when an episode first asks
        return view

    def _builder(self, path: Path, source: str) -> ViewBuilder:
        """The database's builder; the last few are kept, since a database's rows come together."""
        with self._lock:
            if source not in self._builders:
                self._builders[source] = ViewBuilder(path)
            self._builders.move_to_end(source)
            if len(self._builders) > KEPT_BUILDERS:
                self._builders.popitem(last=False)  # closed with its last use
            return self._builders[source]

    def _files(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="envbuild-views-"))
                weakref.finalize(self, _remove_folder, self._folder, os.getpid())
            return self._folder

    def _keep(self, key: tuple[str, ...], view: View) -> None:
        """Takes the view in and lets go of those least recently used, but never of this one."""
        self._views[key] = view
        self._count(view, view.owned_bytes)
        if self._in_memory <= self.memory_bytes and self._on_disk <= self.disk_bytes:
            return
        for old, kept in list(self._views.items())[:-1]:
            if kept.file is None and self._in_memory > self.memory_bytes:
                self._forget(old, kept)
            elif kept.file and kept.owned_bytes and self._on_disk > self.disk_bytes:
                self._forget(old, kept)
                kept.file.unlink(missing_ok=True)

    def _forget(self, key: tuple[str, ...], view: View) -> None:
        if self._views.get(key) is view:
            del self._views[key]
            self._count(view, -view.owned_bytes)

    def _count(self, view: View, size: int) -> None:
        if view.file is None:
            self._in_memory += size
        else:
            self._on_disk += size


def open_database(path: Path, tables: Sequence[str] | None = None) -> EpisodeDatabase:
    """One database outside any manifest, for one episode: every table, or only `tables`."""
    return _shared_cache().open(path, tables)


@cache
def _shared_cache() -> ViewCache:
    return ViewCache()


def _remove_folder(folder: Path, made_by: int) -> None:
    """Removes the cache's files, but never from a forked child that merely inherited them."""
    if os.getpid() == made_by:
        shutil.rmtree(folder, ignore_errors=True)


def _key(path: Path, tables: Sequence[str] | None, digest: str) -> tuple[str, ...]:
    return digest or _identity(path), *(["*"] if tables is None else map(fold_name, tables))


def _identity(path: Path) -> str:
    """Which file, and which state of it: a commit to the log beside it is another one."""
    path = Path(path).absolute()
    log = path.with_name(f"{path.name}-wal")
    states = [_status(path), *([_status(log)] if log.exists() else [])]
    return "/".join([str(path), *(f"{one.st_size}/{one.st_mtime_ns}" for one in states)])


def _status(path: Path) -> os.stat_result:
    try:
        return Path(path).stat()
    except OSError as e:
        raise SourceError(f"cannot read the database {path}: {e.strerror}") from e


def _look_into(path: Path) -> tuple[list[str], bool]:
    """(every table, whether a view copies others too often to be compiled)."""
    try:
        with closing(open_read_only(path)) as connection:
            tables = [name for (name,) in connection.execute(_TABLES)]
            return tables, bool(oversized_views(dict(connection.execute(_VIEWS))))
    except SQLiteError as e:
        raise SourceError(f"{path} is not a readable SQLite database: {e}") from e
