"""Which golds of a corpus are scored: a seeded sample, so many in all and so many a database."""

import heapq
from collections.abc import Iterable

import msgspec

from envbuild.engine.seeds import derive_seed
from envbuild.records.corpus import Question

SAMPLE = 2_000
"""Golds that fix a corpus's mean to about 0.01 (SIGNAL 1)."""
MOST_A_DATABASE = 20


class SampledGold(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One gold query to score, and every question that asks it."""

    db_id: str
    gold_sql: str
    question_ids: tuple[str, ...]
    """Phrasings and duplicates share a gold and its score."""
    question: str = ""
    """The first one's text."""


def sample_golds(
    questions: Iterable[Question],
    *,
    wanted: int | None = SAMPLE,
    most_a_database: int = MOST_A_DATABASE,
    seed: int = 0,
) -> list[SampledGold]:
    """The sampled distinct golds, by database and text; all of them where `wanted` is None.

    A gold's place in the draw depends on the seed and itself alone, so that a question more or
    less elsewhere changes nothing else.
    """
    asked: dict[tuple[str, str], list[Question]] = {}
    for question in questions:
        asked.setdefault((question.db_id, question.gold_sql), []).append(question)
    chosen = list(asked) if wanted is None else _draw(asked, wanted, most_a_database, seed)
    return sorted(
        SampledGold(
            db_id=db_id,
            gold_sql=gold_sql,
            question_ids=tuple(sorted({q.question_id for q in asked[db_id, gold_sql]})),
            question=asked[db_id, gold_sql][0].question,
        )
        for db_id, gold_sql in chosen
    )


def _draw(
    golds: Iterable[tuple[str, str]], wanted: int, most_a_database: int, seed: int
) -> list[tuple[str, str]]:
    by_database: dict[str, list[tuple[int, str]]] = {}
    for db_id, gold_sql in golds:
        place = derive_seed(seed, f"{db_id}/{gold_sql}", "signal sample")
        by_database.setdefault(db_id, []).append((place, gold_sql))
    kept = [
        (place, db_id, gold_sql)
        for db_id, placed in by_database.items()
        for place, gold_sql in heapq.nsmallest(most_a_database, placed)
    ]
    return [(db_id, gold_sql) for _, db_id, gold_sql in heapq.nsmallest(wanted, kept)]
