"""A folder with one writing process at a time.

The lock hangs on an open file, not on what the file says: it goes with its process, however that
ends, and a file that a kill left behind keeps nobody out. It is no child's: what was forked off
lets go of its copy at once, so that it cannot keep the folder after its parent.
"""

import errno
import fcntl
import os
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from envbuild.errors import OutputError
from envbuild.io.files import writing

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
        if self._descriptor is not None:
            if self.stands and not self._shared:
                with suppress(OSError):  # while it is still held: nobody else's is removed
                    self.path.unlink()
            self.drop()

    def drop(self) -> None:
        """Closes this process's descriptor; where a parent has one too, the lock stays its own."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.drop()


def stands_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one at this path, and not one that was removed."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _open_locked(path: Path, kind: int) -> int | None:
    """A descriptor of the file that stands at `path`, locked; None where another has it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as e:
            if e.errno not in _WITHOUT_LOCKS:
                os.close(descriptor)
                raise
            warnings.warn(
                f"{path.parent} has no locks: nothing keeps a second run out of it", stacklevel=2
            )
            return descriptor
        if stands_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # its holder removed it meanwhile: another may stand there by now


_held: "weakref.WeakSet[WriterLock]" = weakref.WeakSet()


def _drop_in_child() -> None:
    for lock in list(_held):
        lock.drop()


os.register_at_fork(after_in_child=_drop_in_child)
