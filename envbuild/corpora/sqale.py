"""SQaLe in its current, legacy and v1 layouts: row payloads whose columns say which one it is."""

from envbuild.corpora import payload
from envbuild.corpora.source import Source


def read(path: str, *, split: str | None = None) -> Source:
    """The SQaLe source at `path`; SourceError where it holds none of the three layouts."""
    return payload.read(path, split=split, kind="sqale")
