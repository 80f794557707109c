"""Which golds of a corpus are scored: a seeded sample, so many in all and so many a database."""

import heapq
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.seeds import derive_seed
from envbuild.io.parquet import iter_records
from envbuild.io.sorting import iter_grouped

SAMPLE = 2_000
"""Golds that fix a corpus's mean to about 0.01 (SIGNAL 1)."""
MAX_PER_DATABASE = 20


class Asked(Protocol):
    """What a sample needs to know of a question."""

    @property
    def question_id(self) -> str: ...
    @property
    def db_id(self) -> str: ...
    @property
    def gold_sql(self) -> str: ...


class AskedGold(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of questions.parquet that a sample needs."""

    question_id: str
    db_id: str
    gold_sql: str


class SampledGold(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One gold query to score, and every question that asks it."""

    db_id: str
    gold_sql: str
    question_ids: tuple[str, ...]
    """Phrasings and duplicates share a gold and its score."""


def iter_golds(
    folder: CorpusFolder,
    *,
    wanted: int | None = SAMPLE,
    most_a_database: int = MAX_PER_DATABASE,
    seed: int = 0,
) -> Iterator[SampledGold]:
    """The sampled distinct golds of a corpus, by database and text; all where `wanted` is None.

    A sample reads the questions once and holds as many as it keeps; all of them come database by
    database.
    """
    if not folder.catalogued:
        return
    questions = folder.root / "questions.parquet"
    if wanted is not None:
        asked = iter_records(questions, AskedGold)
        yield from sample_golds(asked, wanted=wanted, most_a_database=most_a_database, seed=seed)
        return
    db_ids = sorted(row.db_id for row in folder.databases())
    for db_id, rows in iter_grouped(questions, AskedGold, by="db_id", keys=db_ids):
        asked_by: dict[str, list[str]] = {}
        for row in rows:
            asked_by.setdefault(row.gold_sql, []).append(row.question_id)
        yield from sorted(_gold(db_id, sql, ids) for sql, ids in asked_by.items())


def sample_golds(
    questions: Iterable[Asked],
    *,
    wanted: int = SAMPLE,
    most_a_database: int = MAX_PER_DATABASE,
    seed: int = 0,
) -> list[SampledGold]:
    """The sampled distinct golds, by database and text.

    A gold's place in the draw depends on the seed and itself alone, so that a question more or
    less elsewhere changes nothing else.
    """
    draw = _Draw(wanted, most_a_database)
    for question in questions:
        place = derive_seed(seed, f"{question.db_id}/{question.gold_sql}", "signal sample")
        draw.offer(place, question.db_id, question.gold_sql, question.question_id)
    draw.prune()
    return sorted(_gold(db_id, sql, ids) for (_, db_id, sql), ids in draw.kept.items())


class _Draw:
    """The golds of the lowest places so far, never many more than are wanted.

    The last place kept only ever falls, since another gold can only push one out: what lies past
    it will never be drawn, and a gold that will be is kept from the first question that asks it.
    """

    def __init__(self, wanted: int, most_a_database: int) -> None:
        self.wanted, self.most_a_database = wanted, most_a_database
        self.kept: dict[tuple[int, str, str], list[str]] = {}
        """(place, db_id, gold) -> ids of the questions that ask it."""
        self.last: tuple[int, str, str] | None = None
        """The worst gold that may still be drawn; None while fewer than are wanted were seen."""

    def offer(self, place: int, db_id: str, gold_sql: str, question_id: str) -> None:
        key = (place, db_id, gold_sql)
        if self.last is not None and key > self.last:
            return
        self.kept.setdefault(key, []).append(question_id)
        if len(self.kept) >= 4 * self.wanted + 1000:
            self.prune()

    def prune(self) -> None:
        by_database: dict[str, list[tuple[int, str, str]]] = {}
        for key in self.kept:
            by_database.setdefault(key[1], []).append(key)
        most = self.most_a_database
        drawn = heapq.nsmallest(
            self.wanted,
            (key for keys in by_database.values() for key in heapq.nsmallest(most, keys)),
        )
        self.kept = {key: self.kept[key] for key in drawn}
        if len(drawn) >= self.wanted:
            self.last = drawn[-1]


def _gold(db_id: str, gold_sql: str, question_ids: Iterable[str]) -> SampledGold:
    return SampledGold(
        db_id=db_id, gold_sql=gold_sql, question_ids=tuple(sorted(set(question_ids)))
    )
