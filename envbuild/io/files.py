"""Files that appear whole or not at all: temporary name, fsync, rename."""

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
            sync_file(temporary)
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
    if path.is_dir():
        raise OutputError(f"cannot write {path}: a folder is there already; name a file")
    _check_above(path)


def check_folder(path: Path) -> None:
    """Raises OutputError where `path` cannot be a folder: said before any work is done."""
    if path.exists() and not path.is_dir():
        raise OutputError(f"cannot write {path}: a file is there already; name a folder")
    _check_above(path)


def _check_above(path: Path) -> None:
    """Raises OutputError where the folder around `path` is none and cannot be made one."""
    if path.exists():
        return
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise OutputError(f"cannot write {path}: {above} is a file, not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        raise OutputError(f"cannot write {path}: {output_reason(refused)}")


def write_bytes(path: Path, content: bytes) -> None:
    """Writes `content` to `path`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Writes `content` as UTF-8 to `path`, whole or not at all."""
    write_bytes(path, content.encode())


def sync_file(path: Path) -> None:
    """Waits until the file's bytes are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
