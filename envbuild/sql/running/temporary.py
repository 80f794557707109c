"""How much temporary file space this process holds, as the operating system sees it.

SQLite counts what a statement spilled only when it ends; a bomb must be stopped before that.
"""

import os
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")


def held_temporary_bytes() -> int:
    """Bytes in the nameless files that this process has open; 0 where there is no /proc.

    SQLite's temporary files have no name from the start, or are unlinked once they are open; so do
    others of the process.
    """
    total = 0
    try:
        with os.scandir(_DESCRIPTORS) as descriptors:
            for entry in descriptors:
                total += _nameless_bytes(entry)
    except OSError:
        return 0
    return total


def _nameless_bytes(descriptor: "os.DirEntry[str]") -> int:
    try:
        target = os.readlink(descriptor.path)  # noqa: PTH115 - a Path would cost more than the call
        if not target.endswith(" (deleted)") or not target.startswith("/") or "/memfd:" in target:
            return 0
        return os.fstat(int(descriptor.name)).st_size
    except OSError:
        return 0
