"""Row counts kept between runs, so that large cold files are read once.

They live in the user's cache folder, since a corpus may be read-only and its bytes must not depend
on who looked at it. An entry holds only for the same path, size and time of change.
"""

import hashlib
import os
from pathlib import Path

import msgspec

from envbuild.errors import OutputError
from envbuild.io.files import write_bytes
from envbuild.sql.connect import has_log

SMALLEST_KEPT = 256 * 1024
"""Bytes; a smaller file is counted faster than an entry is looked up."""


class CountedFile(msgspec.Struct, frozen=True, array_like=True):
    """One file's counts and what they hold for."""

    size: int
    changed_ns: int
    counts: dict[str, int]


_ENTRIES = msgspec.msgpack.Decoder(type=dict[str, CountedFile])


class RowCountCache:
    """Row counts of the files below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._entries: dict[str, CountedFile] = {}
        self._changed = False

    @classmethod
    def load(cls, root: Path) -> "RowCountCache":
        """What an earlier run kept; nothing where it kept none or the file is damaged."""
        cache = cls(root)
        try:
            cache._entries = _ENTRIES.decode(cache._file.read_bytes())
        except (OSError, msgspec.MsgspecError):
            cache._entries = {}
        return cache

    def get(self, path: Path) -> dict[str, int] | None:
        """The counts of this very file; None where they are not known."""
        entry = self._entries.get(str(path)) if self._entries else None
        if entry is None:
            return None
        status = path.stat()
        same = (entry.size, entry.changed_ns) == (status.st_size, status.st_mtime_ns)
        return dict(entry.counts) if same and not has_log(str(path.absolute())) else None

    def put(self, path: Path, counts: dict[str, int]) -> None:
        """Keeps the counts of a file large enough to be worth it."""
        status = path.stat()
        if status.st_size >= SMALLEST_KEPT and not has_log(str(path.absolute())):
            self._entries[str(path)] = CountedFile(status.st_size, status.st_mtime_ns, counts)
            self._changed = True

    def save(self) -> None:
        """Writes what is new; a cache folder that cannot be written costs only time."""
        if not self._changed:
            return
        try:
            write_bytes(self._file, msgspec.msgpack.encode(self._entries))
        except OutputError:
            return

    @property
    def _file(self) -> Path:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        name = hashlib.sha256(str(self._root).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        return Path(home) / "envbuild" / "row-counts" / f"{name}.msgpack"
