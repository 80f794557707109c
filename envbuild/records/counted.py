"""Parts of sentences for a person: numbers of things, and text that came from outside."""

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 row`, `2,000 rows`; `plural` where an s does not make it."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def printable(text: str) -> str:
    """`text` with its control characters escaped, for a terminal that would obey them."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))
