"""Buckets of every corpus of a folder: what `envbuild buckets` shows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from envbuild.buckets.cut import CorpusBuckets, cut_corpus
from envbuild.buckets.edges import PUBLISHED_EDGES, Edges, parse_edges, parse_shares
from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.errors import UnknownNameError, UsageError
from envbuild.sql.text.mask import MaskMode


class BucketReport(msgspec.Struct, frozen=True, kw_only=True):
    """The buckets of each corpus, or the edges suggested for each."""

    corpora: tuple[CorpusBuckets, ...] = ()
    suggested: tuple[CorpusBuckets, ...] = ()
    """As cut at the suggested edges; nothing is written for these."""
    shares: tuple[float, ...] | None = None

    def document(self) -> dict[str, Any]:
        """The report as plain values, for --json."""
        return {
            "corpora": [_plain(found, self.shares) for found in self.corpora],
            "suggested": [_plain(found, None) for found in self.suggested],
            "shares": self.shares,
        }


def bucket_corpora(
    path: Path,
    *,
    edges: str | None = None,
    mask: str = "literals",
    shares: str | None = None,
    suggest: int | None = None,
    limit: int | None = None,
    on_masked: Callable[[int], None] = lambda questions: None,
) -> BucketReport:
    """Cuts every corpus at `path`, and writes its buckets.parquet unless only edges are suggested.

    `limit` takes each corpus's first questions only; then nothing is written either.
    Raises UsageError for edges or shares that cannot be, CorpusFolderError for a folder that is no
    corpus or has no questions.
    """
    if mask not in list(MaskMode):
        raise UnknownNameError("mask", mask, MaskMode)
    cut = parse_edges(edges) if edges is not None else Edges(PUBLISHED_EDGES)
    parsed = parse_shares(shares, len(cut.names)) if shares is not None else None
    if suggest is not None and suggest < 2:
        raise UsageError(f"--suggest takes the number of buckets, at least 2; got {suggest}")
    if limit == 0:
        raise UsageError("--limit 0 leaves no question to cut into buckets")

    def cut_one(corpus: CorpusFolder, at: Edges | int, *, write: bool) -> CorpusBuckets:
        return cut_corpus(corpus, at, mask=mask, write=write, limit=limit, on_masked=on_masked)

    corpora = open_corpora(path)
    suggested = (
        ()
        if suggest is None
        else tuple(cut_one(corpus, suggest, write=False) for corpus in corpora)
    )
    if suggest is not None and edges is None:
        return BucketReport(suggested=suggested)
    return BucketReport(
        corpora=tuple(cut_one(corpus, cut, write=limit is None) for corpus in corpora),
        suggested=suggested,
        shares=parsed,
    )


def _plain(found: CorpusBuckets, shares: tuple[float, ...] | None) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(found)
    document["empty"] = list(found.empty)
    if shares:
        document["pool_size"] = found.pool_size(shares)
    return document
