"""Names that differ only in case or blanks: one spelling for all of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable


def one_spelling(names: Iterable[str]) -> dict[str, str]:
    """Each name with the commonest spelling among those that differ only in case or blanks.

    Corpora put together write `Simple` and `simple` for one difficulty. Of equally common
    spellings the first by text is taken.
    """
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for name in names:
        spellings[_folded(name)][name] += 1
    shown = {
        folded: min(found, key=lambda name: (-found[name], name))
        for folded, found in spellings.items()
    }
    return {name: shown[folded] for folded, found in spellings.items() for name in found}


def _folded(name: str) -> str:
    return " ".join(name.split()).casefold()
