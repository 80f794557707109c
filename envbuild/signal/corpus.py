"""A corpus's signal: which golds are scored, the scores over any number of workers, and where they
are kept."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.engine.fanout import run_shards
from envbuild.engine.seeds import derive_seed
from envbuild.errors import CorpusError, CorpusFolderError
from envbuild.io.files import sha256_file
from envbuild.io.parquet import arrow_schema, iter_records, parquet_metadata, write_records
from envbuild.io.sorting import SortedRecords, iter_grouped
from envbuild.records.signal import CorpusSignal, SignalScore, SignalSummary
from envbuild.schema.read import read_schema
from envbuild.signal.evidence import open_variants
from envbuild.signal.mutants import VERSION
from envbuild.signal.score import DEFAULT_VERDICT, MIN_VARIANTS, null_score, score_question
from envbuild.signal.summary import ScoreTally, score_order
from envbuild.signal.tree import Compiler
from envbuild.sql.connect import VERSIONS, SQLiteError
from envbuild.sql.execution.session import Session

# Which golds of a corpus are scored: a seeded sample, so many in all and so many a database.


SAMPLE = 2_000
"""Golds that fix a corpus's mean to about 0.01 (SIGNAL 1)."""
MAX_PER_DATABASE = 20


class ExportRow(Protocol):
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
    questions: Iterable[ExportRow],
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


# signal.parquet in a corpus folder: the scores, what drew them, and of which corpus.


SIGNAL_FILE = "signal.parquet"
SIGNAL_FORMAT = "envbuild.signal/1"
SCORES_A_GROUP = 8192
"""A score quotes up to a dozen queries: a row group of questions would take half a gigabyte."""


class StoredScores:
    """The scores of a signal.parquet, read anew each time they are iterated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[SignalScore]:
        return iter_records(self.path, SignalScore)


def write_signal(folder: CorpusFolder, signal: CorpusSignal) -> Path:
    """Writes a corpus's scores beside its questions, whole or not at all."""
    path = folder.root / SIGNAL_FILE
    metadata = {
        "format": SIGNAL_FORMAT,
        **VERSIONS,
        "corpus_sha256": sha256_file(folder.root / INDEX_FILE),
        "summary": msgspec.json.encode(signal.summary).decode(),
    }
    schema = arrow_schema(SignalScore)
    write_records(path, signal.scores, schema, metadata=metadata, group=SCORES_A_GROUP)
    return path


def read_signal(folder: CorpusFolder) -> CorpusSignal | None:
    """The stored scores; None where there are none, or where they are of another corpus."""
    path = folder.root / SIGNAL_FILE
    if not folder.catalogued or not path.is_file():
        return None
    metadata = parquet_metadata(path)
    if metadata.get("format") != SIGNAL_FORMAT:
        return None
    if metadata.get("corpus_sha256") != sha256_file(folder.root / INDEX_FILE):
        return None
    return CorpusSignal(
        summary=msgspec.json.decode(metadata["summary"], type=SignalSummary),
        scores=StoredScores(path),
    )


def covers(stored: CorpusSignal, *, wanted: int | None, verdict: str, seed: int) -> bool:
    """True where stored scores answer a request: all, or a sample of its seed and no smaller.

    They must be of the same verdict and mutants.
    """
    summary = stored.summary
    if (summary.verdict, summary.version) != (verdict, VERSION):
        return False
    return summary.wanted is None or (
        summary.seed == seed and wanted is not None and wanted <= summary.wanted
    )


# A corpus's signal: sampled golds scored database by database, over any number of workers.


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
    variants: int = MIN_VARIANTS,
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
