"""The work of a manifest cut into parts: runs of databases in the order of their row ids.

A part is what one worker does at a time and what a resumed run finds finished. The cut depends on
the corpora alone, never on workers or machines.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.io.parquet import GROUP_ROWS, open_parquet
from envbuild.manifest.layout import escape_part
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.manifest import VariantBatch

PART_QUESTIONS = 4096
"""A part has about as many questions, and never less than one database's."""
MAX_PARTS = 512
"""A corpus's parts; each keeps a file open while questions are handed out."""


class VariantMaker(Protocol):
    """Makes one database's hidden variants for its golds; a function that can be pickled."""

    def __call__(
        self,
        path: Path,
        golds: Sequence[tuple[str, str]],
        *,
        corpus: str,
        db_id: str,
        count: int,
        seed: int,
    ) -> VariantBatch:
        """`count` variants for each group of (gold_id, SQL), and the golds' results on them."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One run of databases of one corpus."""

    number: int
    """Position among all parts; rows of a lower part have lower row ids."""
    corpus_root: str
    corpus: str
    revision: str
    db_ids: tuple[str, ...]
    """In the order of their row ids."""
    folder: str
    """Where the part's files lie while the manifest is built."""
    sqlite_root: str
    """The corpus folder as the manifest names it: relative to the manifest folder."""
    settings: ManifestSettings
    maker: Any = None
    """The VariantMaker, where the settings ask for variants."""

    def file(self, ending: str) -> Path:
        """A file of this part."""
        return Path(self.folder, f"{self.number:06}.{ending}")


def plan_parts(
    corpora: list[CorpusFolder],
    settings: ManifestSettings,
    *,
    folder: Path,
    out: Path,
    maker: VariantMaker | None = None,
) -> list[Part]:
    """Every part, in the order of row ids."""
    parts: list[Part] = []
    for corpus in sorted(corpora, key=lambda corpus: _order(corpus.name)):
        counts = _count_questions(corpus, settings.limit)
        size = max(PART_QUESTIONS, sum(counts.values()) // MAX_PARTS)
        for db_ids in _runs(sorted(counts, key=_order), counts, size):
            parts.append(
                Part(
                    number=len(parts),
                    corpus_root=str(corpus.root.absolute()),
                    corpus=corpus.name,
                    revision=str(corpus.index.get("revision") or ""),
                    db_ids=db_ids,
                    folder=str(folder),
                    sqlite_root=_relative(corpus.root, out),
                    settings=settings,
                    maker=maker if settings.variants else None,
                )
            )
    return parts


def _count_questions(corpus: CorpusFolder, limit: int | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    if not corpus.catalogued:
        return counts
    left = limit
    file = open_parquet(corpus.root / "questions.parquet")
    for batch in file.iter_batches(columns=["db_id"], batch_size=GROUP_ROWS):
        db_ids = batch.column(0).to_pylist()[:left]
        counts.update(db_id or "" for db_id in db_ids)
        if left is not None:
            left -= len(db_ids)
    return counts


def _runs(db_ids: list[str], counts: Counter[str], size: int) -> Iterator[tuple[str, ...]]:
    run: list[str] = []
    questions = 0
    for db_id in db_ids:
        run.append(db_id)
        questions += counts[db_id]
        if questions >= size:
            yield tuple(run)
            run, questions = [], 0
    if run:
        yield tuple(run)


def _order(name: str) -> str:
    """Sorts names as row ids sort: `a/…` after `a!/…`."""
    return escape_part(name) + "/"


def _relative(root: Path, out: Path) -> str:
    """The corpus folder from the manifest folder, so that both can move together."""
    return Path(os.path.relpath(root.absolute(), out.absolute())).as_posix()
