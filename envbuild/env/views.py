"""Views ready to open: built once, kept within a budget of bytes, shared by a group's episodes."""

import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.errors import CorpusError, SourceError
from envbuild.io.files import atomic_path
from envbuild.records.corpus import Schema
from envbuild.records.execution import Limits
from envbuild.schema.read import read_schema
from envbuild.sql.connect import SQLiteError, open_image, open_read_only
from envbuild.sql.execution.session import DEFAULT_LIMITS, Session
from envbuild.sql.files.subset import ViewBuilder
from envbuild.sql.forks import KeyedLocks, renew_in_children
from envbuild.sql.from_names import oversized_views
from envbuild.sql.names import declared_spelling, fold_name

# One episode's database: a session on its view, and what the tools know about its schema.


if TYPE_CHECKING:
    from envbuild.schema.graph import SchemaGraph


class ViewSchema:
    """What a view holds; read once and shared by every episode on the same view."""

    def __init__(
        self, schema: Schema, *, shown: Sequence[str] = (), virtual: Sequence[str] = ()
    ) -> None:
        self.schema = schema
        spelling = declared_spelling((*schema.table_names, *virtual, *schema.views))
        in_order = [spelling[name] for name in map(fold_name, shown) if name in spelling]
        self.tables: tuple[str, ...] = tuple(dict.fromkeys((*in_order, *spelling.values())))
        """Every table in shown order, then views."""
        self.spelling = spelling
        """Folded name -> declared name."""

    @cached_property
    def graph(self) -> "SchemaGraph":
        """The foreign-key graph."""
        from envbuild.schema.graph import SchemaGraph  # networkx, for join_path alone

        return SchemaGraph(self.schema)

    def find(self, name: str) -> str | None:
        """The declared spelling of a table or view, matched as SQLite does; None where none is."""
        return self.spelling.get(fold_name(name))


class EpisodeDatabase:
    """A session on a view and its schema; closing it closes the session."""

    def __init__(self, session: Session, schema: Callable[[], ViewSchema]) -> None:
        self.session = session
        self._read_schema = schema
        self._schema: ViewSchema | None = None

    @property
    def schema(self) -> ViewSchema:
        """The view's schema, asked for at first use."""
        if self._schema is None:
            self._schema = self._read_schema()
        return self._schema

    def close(self) -> None:
        """Releases the session; a second call does nothing."""
        self.session.close()


# Views ready to open: built once, kept within a budget of bytes, shared by a group's episodes.
#
# Small views are kept as images in memory, and every episode opens a private copy. Larger ones
# lie in a folder as files that are opened immutable, whatever their size in no time and with one
# page cache for all. A view of every table of a large database is that database's own file.


MiB = 1024 * 1024
SMALL = MiB // 2
"""Bytes up to which every episode gets a private copy in memory."""
MAX_IN_MEMORY = 8 * MiB
"""Bytes of a database from which views are built straight into files."""
_TABLES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)
_VIRTUAL = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%'"

KEPT_BUILDERS = 4
"""Databases kept open for building further views of them."""


class View:
    """One view, ready to open any number of times, from any thread."""

    def __init__(
        self, *, image: bytes = b"", file: Path | None = None, shown: Sequence[str]
    ) -> None:
        self.image = image
        self.file = file
        self.shown = tuple(shown)
        self.owned_bytes = len(image)
        """Bytes in memory, or on disk where the cache made the file."""
        self._schema: ViewSchema | None = None

    @property
    def is_gone(self) -> bool:
        """Whether its file was removed, as a cache does to make room."""
        return self.file is not None and not self.file.exists()

    def open(self, limits: Limits) -> EpisodeDatabase:
        """A database of one episode's own on this view."""
        if self.file is None:
            session = Session.open_image(self.image, limits=limits)
        else:
            session = Session.open_file(self.file, limits=limits)
        return EpisodeDatabase(session, lambda: self.schema)

    @property
    def schema(self) -> ViewSchema:
        """Read at its first use, which is no `cached_property`: that has one lock for all views."""
        if self._schema is None:
            self._schema = self._read_schema()
        return self._schema

    def _read_schema(self) -> ViewSchema:
        """Through a connection of its own, so that no episode's authorizer is in the way."""
        opened = open_image(self.image) if self.file is None else open_read_only(self.file)
        with closing(opened) as connection:
            virtual = [name for (name,) in connection.execute(_VIRTUAL)]
            return ViewSchema(read_schema(connection), shown=self.shown, virtual=virtual)


class ViewCache:
    """Opens views, building each at its first use; safe to share among threads.

    `memory_bytes` bounds the images kept, `disk_bytes` the files; the least recently used go first.
    A file that goes stays readable for the episodes that have it open.
    """

    def __init__(
        self,
        *,
        memory_bytes: int = 256 * MiB,
        disk_bytes: int = 16 * 1024 * MiB,
        folder: Path | None = None,
    ) -> None:
        self.memory_bytes = memory_bytes
        self.disk_bytes = disk_bytes
        self._folder = folder
        self._views: OrderedDict[tuple[str, ...], View] = OrderedDict()
        self._in_memory = self._on_disk = 0
        self._builders: OrderedDict[str, ViewBuilder] = OrderedDict()
        self._building = KeyedLocks()
        self.renew_locks()
        renew_in_children(self)

    def open(
        self,
        path: Path,
        tables: Sequence[str] | None = None,
        *,
        digest: str = "",
        limits: Limits = DEFAULT_LIMITS,
    ) -> EpisodeDatabase:
        """A database of one episode's own in which only `tables` exist; None: every table.

        `digest` (the file's SHA-256, where it is known) or else path, size and time of change tell
        one database from another. Raises SourceError where `path` is no database, CorpusError
        where a table is missing.
        """
        while True:
            view = self.view(path, tables, digest=digest)
            try:
                return view.open(limits)
            except CorpusError:
                if not (view.owned_bytes and view.is_gone):
                    raise
            self._forget(view)  # another thread or process made room meanwhile

    def view(self, path: Path, tables: Sequence[str] | None = None, *, digest: str = "") -> View:
        """The view itself; see `open`."""
        key = (digest or _identity(path), *(["*"] if tables is None else map(fold_name, tables)))
        with self._lock:
            if key in self._views:
                self._views.move_to_end(key)
                return self._views[key]
        with self._building.of(key):  # the group's first episode builds, the others wait for it
            with self._lock:
                if key in self._views:
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
        """For a forked child: another thread of the parent may have been building."""
        self._lock = threading.Lock()

    def _build(self, path: Path, tables: Sequence[str] | None, key: tuple[str, ...]) -> View:
        if tables is None:
            shown = _tables_of(path)
            if not _has_oversized_views(path):
                return View(file=path, shown=shown)
            tables = shown  # a copy of them, without those views
        if _status(path).st_size <= MAX_IN_MEMORY:
            image = self._builder(path, key[0]).image(tables)
            if len(image) <= SMALL:
                return View(image=image, shown=tables)
        elif set(map(fold_name, _tables_of(path))) <= set(
            map(fold_name, tables)
        ) and not _has_oversized_views(path):
            return View(file=path, shown=tables)
        name = sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        file = self._files() / f"{name}.sqlite"
        while True:
            if not file.exists():
                with atomic_path(file) as temporary:
                    temporary.unlink(missing_ok=True)  # left by a process that was killed
                    self._builder(path, key[0]).write(tables, temporary)
            view = View(file=file, shown=tables)
            try:
                view.owned_bytes = file.stat().st_size
                _ = view.schema  # read now: the file may be gone when an episode first asks
            except (FileNotFoundError, SQLiteError):
                if not view.is_gone:
                    raise
            else:
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
        memory, disk = self._in_memory - self.memory_bytes, self._on_disk - self.disk_bytes
        gone: list[tuple[str, ...]] = []
        for old, kept in self._views.items():
            if kept is view or max(memory, disk) <= 0:
                break
            if kept.file is None and memory > 0:
                memory -= kept.owned_bytes
            elif kept.file is not None and disk > 0 and kept.owned_bytes:
                disk -= kept.owned_bytes
                kept.file.unlink(missing_ok=True)
            else:
                continue
            gone.append(old)
        for old in gone:
            self._drop(old)

    def _forget(self, view: View) -> None:
        with self._lock:
            for key in [key for key, kept in self._views.items() if kept is view]:
                self._drop(key)

    def _drop(self, key: tuple[str, ...]) -> None:
        view = self._views.pop(key)
        self._count(view, -view.owned_bytes)

    def _count(self, view: View, size: int) -> None:
        if view.file is None:
            self._in_memory += size
        else:
            self._on_disk += size


def open_database(
    path: Path, tables: Sequence[str] | None = None, *, limits: Limits = DEFAULT_LIMITS
) -> EpisodeDatabase:
    """One database outside any manifest, for one episode: every table, or only `tables`."""
    return _shared_cache().open(path, tables, limits=limits)


@cache
def _shared_cache() -> ViewCache:
    return ViewCache()


def _remove_folder(folder: Path, made_by: int) -> None:
    """Removes the cache's files, but never from a forked child that merely inherited them."""
    if os.getpid() == made_by:
        shutil.rmtree(folder, ignore_errors=True)


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


def _has_oversized_views(path: Path) -> bool:
    with closing(open_read_only(path)) as connection:
        views = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view'"))
        return bool(oversized_views(views))


def _tables_of(path: Path) -> list[str]:
    try:
        with closing(open_read_only(path)) as connection:
            return [name for (name,) in connection.execute(_TABLES)]
    except SQLiteError as e:
        raise SourceError(f"{path} is not a readable SQLite database: {e}") from e
