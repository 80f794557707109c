"""What corpora write in many ways: names of one thing, and question texts that ask nothing."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

_PLACEHOLDER = re.compile(
    r"""\s*(?:
      | [.…_\-–—*\s]+                               # dots, dashes, stars
      | <[^<>]{0,40}> | \[[^\[\]]{0,40}\] | \{[^{}]{0,40}\}   # <string>, [question], {text}
      | \*\*[^*]{0,40}\*\*\s*:?                     # **Moderate**
      | \#+\s*[\w ]{0,30}                           # a heading left over
      | (?:string|str|text|question|todo|tbd|none|null|nan|n/?a|undefined|placeholder)\W*
      | lorem\ ipsum.*
    )\s*""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


def one_spelling(names: Iterable[str]) -> dict[str, str]:
    """Each name with the commonest spelling among those that differ only in case or blanks.

    Corpora put together write `Simple` and `simple` for one difficulty. Of equally common
    spellings the first by text is taken.
    """
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for name in names:
        spellings[" ".join(name.split()).casefold()][name] += 1
    shown = {
        folded: min(found, key=lambda name: (-found[name], name))
        for folded, found in spellings.items()
    }
    return {name: shown[folded] for folded, found in spellings.items() for name in found}


def is_placeholder(text: str) -> bool:
    """Whether a question's text is none: `...`, `<string>`, `**Moderate**`, an empty text."""
    return _PLACEHOLDER.fullmatch(text) is not None
