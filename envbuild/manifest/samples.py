"""Samples of a corpus as its manifest would have them, each checked on a real view of it."""

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.fanout import run_shards
from envbuild.errors import CorpusFolderError
from envbuild.manifest.partition import (
    Part,
    by_database,
    partition_questions,
    plan_parts,
    read_masked,
)
from envbuild.manifest.rows import RowBuilder
from envbuild.manifest.settings import ManifestSettings, check_names
from envbuild.records.corpus import Reject


class ShownSample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample in full."""

    row_id: str
    question: str
    tables: tuple[str, ...]
    """In shown order."""
    gold_tables: tuple[str, ...]
    distractors: tuple[str, ...]
    target_size: int
    seed: int
    foreign_keys: tuple[str, ...]
    """`child.col -> parent.col`, those among the sample's tables."""


class SampleCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What sampling one corpus came to."""

    corpus: str
    questions: int
    """Phrasings counted one by one, each with a sample of its own."""
    samples: int
    sizes: dict[int, int]
    """Tables of a sample -> samples."""
    gold_sizes: dict[int, int]
    """Gold tables of a sample -> samples."""
    whole: int
    """Samples that hold every table of their database."""
    changed: tuple[tuple[str, str], ...] = ()
    """(row id, what differs) where a gold query no longer gives its result."""
    refused: dict[str, int] = {}
    """Reason -> questions that cannot be sampled at all."""


class SampleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every corpus's counts, and the first samples."""

    corpora: tuple[SampleCounts, ...]
    shown: tuple[ShownSample, ...]

    @property
    def num_changed(self) -> int:
        """Samples on which a gold query no longer gives its result."""
        return sum(len(corpus.changed) for corpus in self.corpora)


def sample_corpora(
    corpora: list[CorpusFolder],
    *,
    settings: ManifestSettings,
    show: int = 1,
    workers: int | None = None,
    engine: str = "local",
    watch: Callable[[int, int], None] | None = None,
) -> SampleReport:
    """Draws every question's sample and runs its gold query on a view of just those tables.

    The samples are those of a manifest built with the same settings. Nothing is written. Raises
    CorpusFolderError without any question.
    """
    settings.check()
    check_names(corpora)
    found: dict[str, list[SampleCounts]] = {}
    shown: list[ShownSample] = []
    with tempfile.TemporaryDirectory(prefix="envbuild-sample-") as folder:
        parts = plan_parts(corpora, settings, folder=Path(folder), out=Path(folder))
        if not parts:
            names = ", ".join(corpus.name for corpus in corpora)
            raise CorpusFolderError(f"no questions in {names}: nothing to sample for")
        for corpus in corpora:
            own = [part for part in parts if part.corpus == corpus.name]
            partition_questions(corpus, own, settings.limit)
        shards = [(part, show) for part in parts]
        results = run_shards(
            sample_part, shards, workers=1 if len(parts) == 1 else workers, engine=engine
        )
        for done, (counts, first) in enumerate(results, start=1):
            found.setdefault(counts.corpus, []).append(counts)
            shown += first[: show - len(shown)]
            if watch:
                watch(done, len(parts))
    return SampleReport(
        corpora=tuple(_together(counts) for counts in found.values()), shown=tuple(shown)
    )


def sample_part(shard: tuple[Part, int]) -> tuple[SampleCounts, list[ShownSample]]:
    """The counts of one part, and its first samples in full."""
    part, show = shard
    corpus = CorpusFolder(Path(part.corpus_root))
    databases = {row.db_id: row for row in corpus.databases()}
    shown: list[ShownSample] = []
    changed: list[tuple[str, str]] = []
    refused: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    gold_sizes: Counter[int] = Counter()
    whole = 0
    for db_id, rows in by_database(read_masked(part, corpus), part):
        with RowBuilder(part, corpus, db_id, databases.get(db_id)) as builder:
            for fields in rows:
                taken = builder.build(fields, check_view=True)
                if isinstance(taken, Reject):
                    if taken.reason == "view_differs":
                        changed.append((fields["row_id"], taken.detail))
                    else:
                        refused[taken.reason] += 1
                    continue
                sizes[len(taken["tables"])] += 1
                gold_sizes[len(taken["gold_tables"])] += 1
                whole += len(taken["tables"]) == builder.num_tables
                if len(shown) < show:
                    shown.append(_shown(fields, taken, builder))
    counts = SampleCounts(
        corpus=part.corpus,
        questions=sum(sizes.values()) + len(changed) + sum(refused.values()),
        samples=sum(sizes.values()),
        sizes=dict(sorted(sizes.items())),
        gold_sizes=dict(sorted(gold_sizes.items())),
        whole=whole,
        changed=tuple(changed),
        refused=dict(sorted(refused.items())),
    )
    return counts, shown


def _shown(fields: dict[str, Any], taken: dict[str, Any], builder: RowBuilder) -> ShownSample:
    return ShownSample(
        row_id=fields["row_id"],
        question=fields["question"],
        tables=taken["tables"],
        gold_tables=taken["gold_tables"],
        distractors=taken["distractors"],
        target_size=taken["target_size"],
        seed=taken["seed"],
        foreign_keys=builder.keys_among(taken["tables"]),
    )


def _together(counts: list[SampleCounts]) -> SampleCounts:
    def added(field: str) -> dict[Any, int]:
        total: Counter[Any] = Counter()
        for part in counts:
            total.update(getattr(part, field))
        return dict(sorted(total.items()))

    return SampleCounts(
        corpus=counts[0].corpus,
        questions=sum(part.questions for part in counts),
        samples=sum(part.samples for part in counts),
        sizes=added("sizes"),
        gold_sizes=added("gold_sizes"),
        whole=sum(part.whole for part in counts),
        changed=tuple(change for part in counts for change in part.changed),
        refused=added("refused"),
    )
