"""File names for databases, which may be called anything: safe, unique, inside the output."""

import hashlib
import re
import unicodedata

LONGEST = 150
"""Bytes; leaves room for endings and temporary names within the 255 of a file system."""
_UNSAFE = re.compile(r"""[^\w .,+=()'&!~@%{}\[\]-]|\.{2,}""")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)


class FileNames:
    """Gives each db_id its file name; the first of two that differ only in case keeps its own.

    Ask in the source's order: the same db_ids in the same order get the same names.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def claim(self, db_id: str) -> str:
        """The db_id itself where that is safe and free, else a safe form with its digest."""
        name = safe_name(db_id)
        if _folded(name) in self._taken:
            name = _with_digest(name, db_id)
        self._taken.add(_folded(name))
        return name


def safe_name(db_id: str) -> str:
    """`db_id` itself where every file system takes it, else a form of it with its digest."""
    name = _UNSAFE.sub("_", db_id)
    trimmed = name.strip(" .").lstrip("-~")
    fits = len(trimmed.encode("utf-8", "replace")) <= LONGEST
    if trimmed == db_id and fits and not _RESERVED.match(trimmed):
        return trimmed
    return _with_digest(trimmed, db_id)


def _with_digest(name: str, db_id: str) -> str:
    digest = hashlib.sha256(db_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    room = LONGEST - len(digest) - 1
    short = name.encode("utf-8", "replace")[:room].decode("utf-8", "ignore").strip(" .")
    return f"{short}-{digest}" if short else digest


def _folded(name: str) -> str:
    """Equal for names that some file system takes for the same: other case, other composition."""
    return unicodedata.normalize("NFKC", name).casefold()
