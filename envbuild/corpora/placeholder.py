"""Question texts that ask nothing: what published corpora hold where a phrasing went missing."""

import re

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


def is_placeholder(text: str) -> bool:
    """Whether a question's text is none: `...`, `<string>`, `**Moderate**`, an empty text."""
    return _PLACEHOLDER.fullmatch(text) is not None
