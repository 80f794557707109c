"""Leaks of a training corpus into benchmarks: both sides compared, and the ledger written.

Benchmarks are indexed, which are small; training databases and questions are streamed in shards.
Of the questions and queries a ledger names, for each training question, the benchmark's nearest,
and for each question of the benchmark the nearest in training: none that is touched is missing,
and a question that is asked a thousand times makes no million rows.
"""

import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from envbuild.engine.fanout import run_shards
from envbuild.errors import SourceError
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.leaks.questions import EmbeddingIndex, Near, QueryIndex, QuestionIndex
from envbuild.leaks.schemas import SchemaIndex
from envbuild.leaks.sides import Asked, Database, Side
from envbuild.records.corpus import counted
from envbuild.records.leaks import LEAKS_FILE, SKELETON, BenchmarkLeaks, Example, Leak
from envbuild.sql.connect import VERSIONS

THRESHOLD = 0.5
"""Containment from which two schemas are one database."""
EXAMPLES = 3
"""Of each kind, in a report."""
_DATABASES, _QUESTIONS = 64, 8192
"""Of a shard."""


class Found(NamedTuple):
    """What a comparison came to."""

    leaks: list[Leak]
    """Sorted."""
    benchmarks: list[BenchmarkLeaks]
    unread: list[str]
    """Databases whose file could not be read."""

    @property
    def any(self) -> bool:
        """Whether something leaked; skeletons alone do not."""
        return any(leak.kind != SKELETON for leak in self.leaks)


class _Benchmarks:
    """Every benchmark, indexed as one."""

    def __init__(self, sides: Sequence[Side], threshold: float, embed: str) -> None:
        self.questions: list[tuple[str, Asked]] = []
        self.databases: dict[str, set[str]] = {side.name: set() for side in sides}
        self.schemas: dict[str, SchemaIndex] = {}
        for side in sides:
            profiles = [database.profile() for database in side.databases()]
            self.schemas[side.name] = SchemaIndex(profiles, threshold=threshold)
            asked = list(side.questions())
            self.questions += [(side.name, one) for one in asked]
            self.databases[side.name] |= {profile.db_id for profile in profiles}
            self.databases[side.name] |= {one.db_id for one in asked}
        self.asked = QuestionIndex([one.question for _, one in self.questions])
        self.queries = QueryIndex([one.gold_sql for _, one in self.questions])
        self.embed = embed

    def leak(self, near: Near, kind: str, one: Asked) -> Leak:
        """The ledger's row of a question and the benchmark's that it is."""
        benchmark, other = self.questions[near.place]
        return Leak(
            benchmark=benchmark,
            kind=kind,
            corpus=one.corpus,
            db_id=one.db_id,
            question_id=one.question_id,
            benchmark_db_id=other.db_id,
            benchmark_question_id=other.question_id,
            score=near.score,
            evidence=near.evidence,
        )


class _Hit(NamedTuple):
    """A leak, where the benchmark's question stands, and what training asks."""

    place: int
    leak: Leak
    said: str

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts the nearest first, whatever found them in which order."""
        leak = self.leak
        return -leak.score, leak.corpus, leak.db_id, leak.question_id, self.place


class _Shard(NamedTuple):
    benchmarks: str
    """File of the pickled _Benchmarks."""
    databases: tuple[Database, ...] = ()
    questions: tuple[Asked, ...] = ()


class _Outcome(NamedTuple):
    schemas: list[Leak]
    unread: list[str]
    hits: list[_Hit]
    skeletons: dict[int, tuple[int, Leak]]
    """Benchmark's query -> training queries of its skeleton, and the first of them."""


def find_leaks(
    training: Side,
    benchmarks: Sequence[Side],
    *,
    threshold: float = THRESHOLD,
    embed: str = "",
    workers: int | None = None,
    on_compared: Callable[[int], None] = lambda number: None,
) -> Found:
    """Everything of the benchmarks that stands in the training side; the same for any workers.

    `on_compared` hears of every few databases and questions. Raises MissingDependencyError where
    `embed` names a model and sentence-transformers is not installed.
    """
    index = _Benchmarks(benchmarks, threshold, embed)
    schemas: list[Leak] = []
    unread: set[str] = set()
    hits: list[_Hit] = []
    skeletons: dict[int, tuple[int, Leak]] = {}
    compared: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="envbuild-leaks-") as folder:
        file = Path(folder, "benchmarks.pickle")
        file.write_bytes(pickle.dumps(index))
        shards = _shards(training, str(file), compared)
        # one model is loaded once
        for outcome in run_shards(_compare, shards, workers=1 if embed else workers):
            schemas += outcome.schemas
            unread.update(outcome.unread)
            hits += outcome.hits
            for place, (number, first) in outcome.skeletons.items():
                before, kept = skeletons.get(place, (0, first))
                skeletons[place] = before + number, kept
            on_compared(_DATABASES)
        _load.cache_clear()
    hits = _nearest(hits)
    leaked = {hit.place for hit in hits if hit.leak.kind == "sql"}
    for place, (number, leak) in skeletons.items():
        if place not in leaked:
            said = counted(number, "training query", "training queries")
            hits.append(_Hit(place, msgspec.structs.replace(leak, evidence=said), ""))
    leaks = sorted({*schemas, *(hit.leak for hit in hits)})
    summaries = [_summary(side.name, index, leaks, hits, compared) for side in benchmarks]
    return Found(leaks, summaries, sorted(unread))


def _shards(training: Side, index: str, compared: Counter[str]) -> Iterator[_Shard]:
    for databases in _chunks(training.databases(), _DATABASES):
        compared["databases"] += len(databases)
        yield _Shard(index, databases=databases)
    for questions in _chunks(training.questions(), _QUESTIONS):
        compared["questions"] += len(questions)
        yield _Shard(index, questions=questions)


def _chunks(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    remaining = iter(items)
    return iter(lambda: tuple(islice(remaining, size)), ())


@lru_cache(1)
def _load(file: str) -> _Benchmarks:
    loaded: _Benchmarks = pickle.loads(Path(file).read_bytes())
    return loaded


@lru_cache(1)
def _embedded(file: str, model: str) -> EmbeddingIndex:
    return EmbeddingIndex([one.question for _, one in _load(file).questions], model)


def _compare(shard: _Shard) -> _Outcome:
    """What of the benchmarks stands in these databases and questions."""
    index = _load(shard.benchmarks)
    schemas: list[Leak] = []
    unread: list[str] = []
    for database in shard.databases:
        try:
            schemas += _schemas_of(database, index)
        except SourceError:
            unread.append(f"{database.corpus}/{database.db_id}")
    hits: list[_Hit] = []
    skeletons: dict[int, tuple[int, Leak]] = {}
    for one in shard.questions:
        for near in index.asked.near(one.question):
            hits.append(_Hit(near.place, index.leak(near, "question", one), one.question))
        leaks, alike = index.queries.near(one.gold_sql)
        for near in leaks:
            hits.append(_Hit(near.place, index.leak(near, "sql", one), one.gold_sql))
        for place in alike:
            number, first = skeletons.get(place) or (
                0,
                index.leak(Near(place, 1.0, ""), SKELETON, one),
            )
            skeletons[place] = number + 1, first
    if index.embed and shard.questions:
        nearest = _embedded(shard.benchmarks, index.embed).near(
            [q.question for q in shard.questions]
        )
        for one, found in zip(shard.questions, nearest, strict=True):
            for near in found:
                hits.append(_Hit(near.place, index.leak(near, "question", one), one.question))
    return _Outcome(schemas, unread, _nearest(hits), skeletons)


def _schemas_of(database: Database, index: _Benchmarks) -> Iterator[Leak]:
    profile = database.profile()
    for benchmark, schemas in index.schemas.items():
        for match in schemas.matches(profile):
            yield Leak(
                benchmark=benchmark,
                kind="schema",
                corpus=database.corpus,
                db_id=database.db_id,
                benchmark_db_id=match.other.db_id,
                score=match.score,
                evidence=match.evidence,
            )


def _nearest(hits: Iterable[_Hit]) -> list[_Hit]:
    """The best hit of every training question in every benchmark, and of every benchmark's."""
    best: dict[tuple[Any, ...], _Hit] = {}
    for hit in hits:
        leak = hit.leak
        mine = leak.benchmark, leak.kind, leak.corpus, leak.db_id, leak.question_id
        for key in (mine, (hit.place, leak.kind)):
            if key not in best or hit.rank < best[key].rank:
                best[key] = hit
    return list({(hit.place, hit.leak): hit for hit in best.values()}.values())


def _summary(
    benchmark: str,
    index: _Benchmarks,
    leaks: Iterable[Leak],
    hits: Iterable[_Hit],
    compared: Counter[str],
) -> BenchmarkLeaks:
    own = [leak for leak in leaks if leak.benchmark == benchmark]
    asked = [(p, one) for p, (name, one) in enumerate(index.questions) if name == benchmark]
    databases = {leak.benchmark_db_id for leak in own if leak.kind == "schema"}
    places: dict[str, set[int]] = {"question": set(), "sql": set(), SKELETON: set()}
    said: dict[Leak, tuple[str, str]] = {}
    for hit in hits:
        if hit.leak.benchmark == benchmark:
            places[hit.leak.kind].add(hit.place)
            other = index.questions[hit.place][1]
            theirs = other.question if hit.leak.kind == "question" else other.gold_sql
            said[hit.leak] = hit.said, theirs
    in_databases = {place for place, one in asked if one.db_id in databases}
    examples = []
    for kind in ("schema", "question", "sql"):
        for leak in nsmallest(
            EXAMPLES, (one for one in own if one.kind == kind), key=lambda one: (-one.score, one)
        ):
            mine, theirs = said.get(leak, ("", ""))
            examples.append(Example(leak=leak, training=mine, benchmark=theirs))
    return BenchmarkLeaks(
        benchmark=benchmark,
        databases=len(index.databases[benchmark]),
        questions=len(asked),
        schemas_compared=compared["databases"],
        questions_compared=compared["questions"],
        leaked_databases=len(databases),
        questions_of_leaked_databases=len(in_databases),
        leaked_questions=len(places["question"]),
        leaked_queries=len(places["sql"]),
        leaked=len(in_databases | places["question"] | places["sql"]),
        skeletons=len(places[SKELETON]),
        examples=tuple(examples),
    )


# The ledger: leaks.parquet, in each corpus and wherever it is asked for.


def write_ledger(found: Found, path: Path, *, threshold: float, corpus: str | None = None) -> None:
    """Writes the leaks to `path`, sorted; only one corpus's where it is named."""
    said = {one.benchmark: [one.databases, one.questions] for one in found.benchmarks}
    metadata = {
        **VERSIONS,
        "threshold": f"{threshold:g}",
        "benchmarks": msgspec.json.encode(said).decode(),
    }
    rows = (leak for leak in found.leaks if corpus in (None, leak.corpus))
    write_records(path, rows, arrow_schema(Leak), metadata=metadata)


def write_ledgers(found: Found, training: Side, *, threshold: float) -> None:
    """Writes leaks.parquet into each corpus of the training side, of its own leaks."""
    for corpus in training.corpora:
        write_ledger(found, corpus.root / LEAKS_FILE, threshold=threshold, corpus=corpus.name)
