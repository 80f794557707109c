"""Numbers of things in sentences."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 row`, `2,000 rows`; `plural` where an s does not make it."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
