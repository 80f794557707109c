"""Files that appear whole or not at all, and folders with one writing process at a time."""

import errno
import fcntl
import hashlib
import os
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import OutputError

TEMPORARY_SUFFIX = ".partial"
"""What a file is called until it is whole; a rerun may remove such files."""


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed onto it when the block ends well.

    Raises OutputError, with a sentence, for a folder that cannot be written or a full disk.
    """
    path = Path(path)
    writer = f"{os.getpid()}-{threading.get_native_id()}"
    temporary = path.with_name(f"{path.name}.{writer}{TEMPORARY_SUFFIX}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the operating system says about writing into an OutputError."""
    try:
        yield
    except OSError as e:
        raise OutputError(f"cannot write {path}: {output_reason(e)}") from e


def output_reason(error: OSError) -> str:
    """What the operator can put right about a failed write."""
    if error.errno == errno.ENOSPC:
        return "the disk is full; free some space and run again, finished parts are kept"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "the folder is not writable: change its permissions, or use a copy or another folder"
    if error.errno == errno.EISDIR:
        return "a folder is there already; name a file"
    return error.strerror or str(error)


def check_file(path: Path) -> None:
    """Raises OutputError where no file can be written to `path`: said before any work is done."""
    _check_place(path, "folder", "file", taken=path.is_dir())


def check_folder(path: Path) -> None:
    """Raises OutputError where `path` cannot be a folder: said before any work is done."""
    _check_place(path, "file", "folder", taken=path.exists() and not path.is_dir())


def _check_place(path: Path, other: str, wanted: str, *, taken: bool) -> None:
    if taken:
        raise OutputError(f"cannot write {path}: a {other} is there already; name a {wanted}")
    if path.exists():
        return
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise OutputError(f"cannot write {path}: {above} is a file, not a folder")
    with writing(path):
        if not os.access(above, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_bytes(path: Path, content: bytes) -> None:
    """Writes `content` to `path`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Writes `content` as UTF-8 to `path`, whole or not at all."""
    write_bytes(path, content.encode())


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def changed_entries(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """(entry, then, now) wherever two configurations differ, sorted; inner ones as `outer.name`."""
    then, since = (
        dict(_flatten("", msgspec.json.decode(msgspec.json.encode(one)))) for one in (before, now)
    )
    keys = sorted(then.keys() | since.keys())
    return [(k, then.get(k), since.get(k)) for k in keys if then.get(k) != since.get(k)]


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        yield from _flatten(f"{name}.{key}" if name else key, inner)


# A folder with one writing process at a time.
#
# The lock hangs on an open file, not on what the file says: it goes with its process, however
# that ends, and a file that a kill left behind keeps nobody out. It is no child's: what was
# forked off lets go of its copy at once, so that it cannot keep the folder after its parent.


_WITHOUT_LOCKS = frozenset((errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK))
"""How a file system answers that has no locks, as Lustre mounted without them."""


@contextmanager
def only_writer(
    folder: Path, *, file: str = "lock", of: Path | None = None, shared: bool = False
) -> Iterator[None]:
    """Keeps `folder` for this process until the block ends or the process dies.

    `of`: what an operator calls that folder. `shared`: with others that share it, as shards do.
    Raises OutputError where another one has it.
    """
    lock = WriterLock(folder / file, of=of or folder, shared=shared)
    try:
        yield
    finally:
        lock.release()


class WriterLock:
    """Held from its making until `release`, or until this process ends."""

    _descriptor: int | None = None

    def __init__(self, path: Path, *, of: Path, shared: bool = False) -> None:
        """Locks the file at `path`, made where it is not there, as its folder is.

        Raises OutputError, naming the folder `of`, where another lock on it is held; of `shared`
        ones there may be many.
        """
        self.path = path
        self._shared = shared
        with writing(path):
            self._descriptor = _open_locked(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        if self._descriptor is None:
            raise OutputError(f"another run is writing {of}: wait for it, or choose another --out")
        _held.add(self)

    @property
    def held(self) -> bool:
        """False once released, and in a forked child."""
        return self._descriptor is not None

    @property
    def stands(self) -> bool:
        """Whether it is held, and its file is still the one at its path: the folder is there."""
        return self._descriptor is not None and stands_at(self._descriptor, self.path)

    def release(self) -> None:
        """Lets the next one in; the file goes too, unless it was shared."""
        if self.stands and not self._shared:
            with suppress(OSError):  # while it is still held: nobody else's is removed
                self.path.unlink()
        self.drop()

    def drop(self) -> None:
        """Closes this process's descriptor; where a parent has one too, the lock stays its own."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    __del__ = drop


def stands_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one at this path, and not one that was removed."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _open_locked(path: Path, kind: int) -> int | None:
    """A descriptor of the file that stands at `path`, locked; None where another has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as e:
        if e.errno in _WITHOUT_LOCKS:
            said = f"{path.parent} has no locks: nothing keeps a second run out of it"
            warnings.warn(said, stacklevel=2)
            return descriptor
        os.close(descriptor)
        if isinstance(e, BlockingIOError):
            return None
        raise
    if stands_at(descriptor, path):
        return descriptor
    os.close(descriptor)  # its holder removed it meanwhile: another may stand there by now
    return _open_locked(path, kind)


_held: "weakref.WeakSet[WriterLock]" = weakref.WeakSet()


def _drop_in_child() -> None:
    for lock in list(_held):
        lock.drop()


os.register_at_fork(after_in_child=_drop_in_child)
