"""Names as SQLite matches them: without case, but only for ASCII letters."""

from collections.abc import Iterable

_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold_name(name: str) -> str:
    """The form in which two names are equal for SQLite: A-Z become a-z, nothing else changes."""
    return name.lower() if name.isascii() else name.translate(_FOLD)


def declared_spelling(names: Iterable[str]) -> dict[str, str]:
    """Folded name -> the name as declared; the first one wins."""
    spelling: dict[str, str] = {}
    for name in names:
        spelling.setdefault(fold_name(name), name)
    return spelling
