"""A corpus's signal: a sample of its golds, their scores over any number of workers, what they come
to, and where they are kept."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby, islice
from pathlib import Path
from statistics import fmean, median

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.engine.fanout import run_shards
from envbuild.engine.seeds import derive_seed
from envbuild.errors import CorpusError, CorpusFolderError
from envbuild.io.files import sha256_file
from envbuild.io.parquet import arrow_schema, iter_records, parquet_metadata, write_records
from envbuild.io.sorting import SortedRecords, iter_grouped
from envbuild.records.preflight import Finding, Severity
from envbuild.records.signal import (
    AliveOperator,
    CorpusSignal,
    SignalExample,
    SignalScore,
    SignalSummary,
    SignalThresholds,
)
from envbuild.schema.read import read_schema
from envbuild.signal.evidence import open_variants
from envbuild.signal.mutants import VERSION
from envbuild.signal.score import MIN_VARIANTS, VERDICT, null_score, score_question
from envbuild.signal.tree import compiler_for
from envbuild.sql.connect import VERSIONS, SQLiteError
from envbuild.sql.execution.session import Session

SAMPLE = 2_000
"""Golds that fix a corpus's mean to about 0.01 (SIGNAL 1)."""
MAX_PER_DATABASE = 20
DATABASES_A_SHARD = 8
"""Databases a worker is handed at a time: seconds of work."""


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


class DatabaseGolds(msgspec.Struct, frozen=True, kw_only=True):
    """The golds to score on one database: a unit of work."""

    path: str
    golds: tuple[SampledGold, ...]
    variants: int
    seed: int


def score_corpus(
    folder: CorpusFolder,
    *,
    wanted: int | None = SAMPLE,
    seed: int = 0,
    variants: int = MIN_VARIANTS,
    workers: int | None = None,
    engine: str = "local",
    on_scored: Callable[[int], None] | None = None,
) -> CorpusSignal:
    """The scores of a corpus's sampled questions, and their summary.

    `wanted` None scores every question; `variants` fillings of each database stand behind the
    presumed equivalents, 0 for none. `on_scored` hears how many golds each shard scored. The
    result is the same for any number of workers, and memory does not grow with the questions.
    """
    golds = iter_golds(folder, wanted=wanted, seed=seed)
    work = _by_database(folder, golds, variants=variants, seed=seed)
    shards = iter(lambda: list(islice(work, DATABASES_A_SHARD)), [])
    scores = SortedRecords(SignalScore, score_order)
    for found in run_shards(
        score_databases,
        shards,
        workers=workers,
        engine=engine,
        shared_file=folder.root / INDEX_FILE,
    ):
        if on_scored:
            on_scored(len(found))
        for gold, score in found:
            for asked in gold.question_ids:
                named = {"question_id": asked, "db_id": gold.db_id, "corpus": folder.name}
                scores.add(msgspec.structs.replace(score, **named))
    summary = summarize_scores(folder, scores, wanted=wanted, seed=seed)
    return CorpusSignal(summary=summary, scores=scores)


def iter_golds(
    folder: CorpusFolder, *, wanted: int | None = SAMPLE, seed: int = 0
) -> Iterator[SampledGold]:
    """The sampled distinct golds of a corpus, by database and text; all where `wanted` is None.

    A gold's place in the draw depends on the seed and itself alone, so that a question more or
    less elsewhere changes nothing else. One database's golds are in memory, and the drawn ones.
    """
    questions = folder.root / "questions.parquet"
    db_ids = sorted(row.db_id for row in folder.databases())
    by_database = iter_grouped(questions, AskedGold, by="db_id", keys=db_ids)
    golds = (_distinct_golds(db_id, asked) for db_id, asked in by_database)
    if wanted is None:
        for own in golds:
            yield from sorted(own)
        return

    def place(gold: SampledGold) -> int:
        return derive_seed(seed, f"{gold.db_id}/{gold.gold_sql}", "signal sample")

    lowest = (gold for own in golds for gold in heapq.nsmallest(MAX_PER_DATABASE, own, key=place))
    yield from sorted(heapq.nsmallest(wanted, lowest, key=place))


def _distinct_golds(db_id: str, asked: Sequence[AskedGold]) -> list[SampledGold]:
    ids: dict[str, set[str]] = {}
    for question in asked:
        ids.setdefault(question.gold_sql, set()).add(question.question_id)
    return [
        SampledGold(db_id=db_id, gold_sql=sql, question_ids=tuple(sorted(own)))
        for sql, own in ids.items()
    ]


def _by_database(
    folder: CorpusFolder, golds: Iterator[SampledGold], *, variants: int, seed: int
) -> Iterator[DatabaseGolds]:
    for db_id, own in groupby(golds, key=lambda gold: gold.db_id):
        try:
            path = folder.database_path(db_id)
        except CorpusFolderError:
            continue  # a question without its database is a finding of its own
        yield DatabaseGolds(path=str(path), golds=tuple(own), variants=variants, seed=seed)


def score_databases(work: Sequence[DatabaseGolds]) -> list[tuple[SampledGold, SignalScore]]:
    """Each database's golds and their scores, in order."""
    return [pair for one in work for pair in zip(one.golds, _score_database(one), strict=True)]


def _score_database(work: DatabaseGolds) -> list[SignalScore]:
    """The scores of one database's golds; null where the file cannot be read."""
    path, sqls = Path(work.path), [gold.gold_sql for gold in work.golds]
    with ExitStack() as opened:
        try:
            session = opened.enter_context(Session.open_file(path))
            schema = read_schema(session.connection)
        except (CorpusError, SQLiteError):
            return [null_score("unreadable_database") for _ in sqls]
        db_id = work.golds[0].db_id
        variants = open_variants(path, sqls, db_id=db_id, count=work.variants, seed=work.seed)
        for variant in variants:
            opened.enter_context(variant)
        compiles = compiler_for(schema)
        return [
            score_question(
                sql, session=session, schema=schema, variants=variants, compiles=compiles
            )
            for sql in sqls
        ]


# What the scores come to: the figures preflight shows, and their findings.

NAMED_OPERATORS = 3
WRONG_QUERIES = 4
"""Mutants shown in the worked example."""


def summarize_scores(
    folder: CorpusFolder, scores: Iterable[SignalScore], *, wanted: int | None, seed: int
) -> SignalSummary:
    """The summary; means are None where nothing could be scored. No score is held."""
    # shares of at most a dozen mutants take few different values
    low: Counter[float] = Counter()
    high: Counter[float] = Counter()
    reasons: Counter[str] = Counter()
    alive: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    empty_golds = variants = 0
    plainest: SignalScore | None = None
    for score in scores:
        if score.signal_low is None or score.signal_high is None:
            reasons[score.reason] += 1
            continue
        low[score.signal_low] += 1
        high[score.signal_high] += 1
        empty_golds += score.gold_rows == 0
        variants = max(variants, score.variants)
        alive.update(score.alive)
        tried.update(score.operators)
        if score.alive and (plainest is None or _plainness(score) < _plainness(plainest)):
            plainest = score
    ranked = sorted(alive.items(), key=lambda pair: (-pair[1], pair[0]))
    scored = high.total()
    below_half = sum(count for share, count in high.items() if share < 0.5)
    return SignalSummary(
        corpus=folder.name,
        questions=folder.num_questions,
        sampled=scored + reasons.total(),
        scored=scored,
        unscored=dict(sorted(reasons.items())),
        empty_golds=empty_golds,
        mean_low=fmean(low.elements()) if scored else None,
        mean_high=fmean(high.elements()) if scored else None,
        median=median(high.elements()) if scored else None,
        share_below_half=below_half / scored if scored else None,
        variants=variants,
        top_alive=tuple(
            AliveOperator(operator=operator, alive=count, mutants=tried[operator])
            for operator, count in ranked[:NAMED_OPERATORS]
        ),
        example=_example(plainest, folder) if plainest else None,
        verdict=VERDICT,
        version=VERSION,
        wanted=wanted,
        seed=seed,
    )


def score_order(score: SignalScore) -> tuple[str, str]:
    """The order of signal.parquet."""
    return score.question_id, score.db_id


def signal_findings(
    scores: Iterable[SignalScore],
    summary: SignalSummary,
    thresholds: SignalThresholds | None = None,
) -> Iterator[Finding]:
    """`corpus_signal` for the corpus, `no_signal` and `weak_signal` for its questions."""
    limits = thresholds or SignalThresholds()
    if (severity := corpus_severity(summary, limits)) is not None:
        yield Finding(
            corpus=summary.corpus,
            code="corpus_signal",
            severity=severity,
            count=summary.scored,
            message=f"on average {summary.mean_high:.0%} of wrong queries near a gold are told "
            f"from it; {summary.share_below_half:.0%} of questions score below 0.5",
        )
    for score in scores:
        value = score.signal_high
        if value is None or value >= limits.question_warning:
            continue
        dead = value < limits.question_error
        yield Finding(
            corpus=score.corpus,
            code="no_signal" if dead else "weak_signal",
            severity=Severity.ERROR if dead else Severity.WARNING,
            db_id=score.db_id,
            question_id=score.question_id,
            message=f"{len(score.alive)} of {len(score.operators)} wrong queries near the gold "
            "get its result",
            example=score.alive_sql[0] if score.alive_sql else "",
        )


def corpus_severity(summary: SignalSummary, thresholds: SignalThresholds) -> Severity | None:
    """The worst threshold a corpus crosses; None where it is fine or nothing was scored."""
    mean, share = summary.mean_high, summary.share_below_half
    if mean is None or share is None:
        return None
    if mean < thresholds.mean_error or share > thresholds.share_error:
        return Severity.ERROR
    if mean < thresholds.mean_warning or share > thresholds.share_warning:
        return Severity.WARNING
    return None


def _example(best: SignalScore, folder: CorpusFolder) -> SignalExample:
    asked = folder.find_question(best.question_id)
    return SignalExample(
        question_id=best.question_id,
        db_id=best.db_id,
        question=asked.question if asked else "",
        gold_sql=asked.gold_sql if asked else "",
        gold_rows=best.gold_rows,
        wrong_sql=_shown(best),
    )


def _plainness(score: SignalScore) -> tuple[bool, int, int, tuple[str, str]]:
    """The lowest makes the best example: its gold has rows, four kinds of change go unnoticed.

    That an empty result equals an empty result is plain, and so is one kind of change four times;
    among the rest the shortest SQL reads best.
    """
    kinds = min(len(set(score.alive)), WRONG_QUERIES)
    return score.gold_rows == 0, -kinds, max(map(len, _shown(score))), score_order(score)


def _shown(score: SignalScore) -> tuple[str, ...]:
    """Up to four alive mutants, each of another operator where there are so many."""
    pairs = list(zip(score.alive, score.alive_sql, strict=True))
    first = dict(reversed(pairs))
    shown = [sql for operator, sql in pairs if first[operator] == sql]
    return tuple(shown + [sql for _, sql in pairs if sql not in shown])[:WRONG_QUERIES]


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
    if not path.is_file():
        return None
    metadata = parquet_metadata(path)
    made = (metadata.get("format"), metadata.get("corpus_sha256"))
    if made != (SIGNAL_FORMAT, sha256_file(folder.root / INDEX_FILE)):
        return None
    summary = msgspec.json.decode(metadata["summary"], type=SignalSummary)
    return CorpusSignal(summary=summary, scores=StoredScores(path))


def covers(stored: CorpusSignal, *, wanted: int | None, seed: int) -> bool:
    """True where stored scores answer a request: all, or a sample of its seed and no smaller.

    They must be of today's verdict and mutants.
    """
    summary = stored.summary
    if (summary.verdict, summary.version) != (VERDICT, VERSION):
        return False
    return summary.wanted is None or (
        summary.seed == seed and wanted is not None and wanted <= summary.wanted
    )
