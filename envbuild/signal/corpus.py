"""A corpus's signal: sampled golds scored database by database, over any number of workers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.fanout import run_shards
from envbuild.errors import CorpusError, CorpusFolderError
from envbuild.io.sorting import SortedRecords
from envbuild.records.signal import CorpusSignal, SignalScore
from envbuild.schema.read import read_schema
from envbuild.signal.evidence import open_variants
from envbuild.signal.sample import MAX_PER_DATABASE, SAMPLE, SampledGold, iter_golds
from envbuild.signal.score import DEFAULT_VERDICT, FEWEST_VARIANTS, null_score, score_question
from envbuild.signal.summary import ScoreTally, score_order
from envbuild.sql.connect import SQLiteError
from envbuild.sql.executor import Session
from envbuild.sql.mutants.compiler import Compiler

DATABASES_A_SHARD, GOLDS_A_SHARD = 8, 160
"""At most so many of either, but never less than a database: seconds of work."""


class DatabaseGolds(msgspec.Struct, frozen=True, kw_only=True):
    """The golds to score on one database: a unit of work."""

    corpus: str
    db_id: str
    path: str
    golds: tuple[SampledGold, ...]
    variants: int
    seed: int
    verdict: str


class ScoredGold(NamedTuple):
    """A gold's score, and all the questions it stands for."""

    question_ids: tuple[str, ...]
    score: SignalScore


def score_corpus(
    folder: CorpusFolder,
    *,
    wanted: int | None = SAMPLE,
    most_a_database: int = MAX_PER_DATABASE,
    seed: int = 0,
    variants: int = FEWEST_VARIANTS,
    verdict: str = DEFAULT_VERDICT,
    workers: int | None = None,
    engine: str = "local",
    on_scored: Callable[[int], None] | None = None,
) -> CorpusSignal:
    """The scores of a corpus's sampled questions, and their summary.

    `wanted` None scores every question; `variants` fillings of each database stand behind the
    presumed equivalents, 0 for none. `on_scored` hears how many golds each shard scored. The
    result is the same for any number of workers, and memory does not grow with the questions.
    """
    golds = iter_golds(folder, wanted=wanted, most_a_database=most_a_database, seed=seed)
    work = _by_database(folder, golds, variants=variants, seed=seed, verdict=verdict)
    scores = SortedRecords(SignalScore, score_order)
    tally = ScoreTally()
    for found in run_shards(score_databases, _shards(work), workers=workers, engine=engine):
        if on_scored:
            on_scored(len(found))
        for question_ids, score in found:
            for question_id in question_ids:
                named = msgspec.structs.replace(score, question_id=question_id)
                scores.add(named)
                tally.add(named)
    summary = tally.summary(folder, verdict=verdict, wanted=wanted, seed=seed)
    return CorpusSignal(summary=summary, scores=scores)


def score_databases(work: Sequence[DatabaseGolds]) -> list[ScoredGold]:
    """Each database's golds and their scores, in order; named by the gold's first question."""
    return [
        ScoredGold(gold.question_ids, score)
        for one in work
        for gold, score in zip(one.golds, score_database(one), strict=True)
    ]


def score_database(work: DatabaseGolds) -> list[SignalScore]:
    """The scores of one database's golds, in order; null where the file cannot be read."""
    with ExitStack() as opened:
        try:
            session = opened.enter_context(Session.open_file(Path(work.path)))
            schema = read_schema(session.connection)
        except (CorpusError, SQLiteError):
            return _unreadable(work)
        sqls = [gold.gold_sql for gold in work.golds]
        variants = open_variants(
            Path(work.path), sqls, db_id=work.db_id, count=work.variants, seed=work.seed
        )
        for variant in variants:
            opened.enter_context(variant)
        compiler = Compiler.of_schema(schema)
        return [
            score_question(
                gold.gold_sql,
                session=session,
                schema=schema,
                variants=variants,
                verdict=work.verdict,
                compiles=compiler.compiles,
                question_id=gold.question_ids[0],
                db_id=work.db_id,
                corpus=work.corpus,
            )
            for gold in work.golds
        ]


def _unreadable(work: DatabaseGolds) -> list[SignalScore]:
    return [
        null_score(
            "unreadable_database",
            question_id=gold.question_ids[0],
            db_id=work.db_id,
            corpus=work.corpus,
            verdict=work.verdict,
        )
        for gold in work.golds
    ]


def _by_database(
    folder: CorpusFolder,
    golds: Iterable[SampledGold],
    *,
    variants: int,
    seed: int,
    verdict: str,
) -> Iterator[DatabaseGolds]:
    for db_id, own in groupby(golds, key=lambda gold: gold.db_id):
        try:
            path = folder.database_path(db_id)
        except CorpusFolderError:
            continue  # a question without its database is a finding of its own
        yield DatabaseGolds(
            corpus=folder.name,
            db_id=db_id,
            path=str(path),
            golds=tuple(own),
            variants=variants,
            seed=seed,
            verdict=verdict,
        )


def _shards(work: Iterable[DatabaseGolds]) -> Iterator[list[DatabaseGolds]]:
    """A few databases at a time: eight of a sample, fewer where every gold is scored."""
    shard: list[DatabaseGolds] = []
    golds = 0
    for one in work:
        shard.append(one)
        golds += len(one.golds)
        if len(shard) >= DATABASES_A_SHARD or golds >= GOLDS_A_SHARD:
            yield shard
            shard, golds = [], 0
    if shard:
        yield shard
