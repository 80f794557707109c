"""The question pool: which rows may be trained on, filled by shares a bucket, in step order as a
file.

`untrainable_rows` is the one rule for what may be trained on: pools, exports and adapters ask it.
It keeps test rows out, their schemas under another name, and their questions reworded: a schema is
known by its tables' and columns' names, whatever the database is called and in whatever order they
are declared, and a near-duplicate shares at least 0.8 of its words. Columns are read, never whole
records, so that a manifest of 2.5 million rows fits.
"""

import hashlib
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import polars as pl

from envbuild.engine.seeds import derived_random
from envbuild.errors import CorpusFolderError, UsageError
from envbuild.io.files import sha256_file
from envbuild.io.parquet import arrow_schema, parquet_metadata, read_records, write_records
from envbuild.manifest.read import ROWS_FILE, Manifest, open_manifest, select_rows
from envbuild.records.corpus import EVALUATION_SPLITS, Schema, is_evaluation_split
from envbuild.records.leaks import LEAK_CODES
from envbuild.records.manifest import BucketFill, Schedule, ScheduleRow
from envbuild.schema.read import read_schema_of
from envbuild.sql.connect import VERSIONS
from envbuild.train.schedule import EVERYTHING, Draws, apportion, exact, largest_total

NEAR = 0.8
"""Jaccard index of two questions' sets of words from which they count as near-duplicates."""
BATCH = 65536
"""Rows that are Python objects at a time."""
_WORD = re.compile(r"\w+")

TEST_SPLIT = "test_split"
SAME_SCHEMA = "shares_schema_with_test"
NEAR_DUPLICATE = "near_duplicate_of_test"


def untrainable_rows(manifest: Manifest, *, apart_from: Sequence[Manifest] = ()) -> dict[str, str]:
    """Why a row must not be trained on, by row id; every other row of the manifest may be.

    TEST_SPLIT: its split is an evaluation's. `leaked_schema`, `leaked_question`, `leaked_sql`: a
    benchmark has it, as `envbuild leaks` found. SAME_SCHEMA, NEAR_DUPLICATE: it gives a test row
    away, or any row of `apart_from`. Databases are opened only where something is held out.
    """
    held_out = [row for row in _rows(manifest) if is_evaluation_split(row.split)]
    reasons = _leaked_rows(manifest) | {row.row_id: TEST_SPLIT for row in held_out}
    held_out += [row for other in apart_from for row in _rows(other)]
    if not held_out or len(reasons) == len(manifest.rows):
        return reasons
    fingerprint = cache(lambda file: schema_fingerprint(read_schema_of(file)))
    schemas = {fingerprint(row.database) for row in held_out}
    near = NearDuplicates(row.question for row in held_out)
    for row in _rows(manifest):
        if row.row_id in reasons:
            continue
        if fingerprint(row.database) in schemas:
            reasons[row.row_id] = SAME_SCHEMA
        elif near.holds(row.question):
            reasons[row.row_id] = NEAR_DUPLICATE
    return reasons


def _leaked_rows(manifest: Manifest) -> dict[str, str]:
    """Row id -> its first leak among the findings."""
    frame = cast(pl.DataFrame, pl.from_arrow(manifest.columns("row_id", "findings")))
    leaked = frame.explode("findings").filter(pl.col("findings").is_in(list(LEAK_CODES)))
    return dict(leaked.sort("findings", descending=True).iter_rows())


class _Row(NamedTuple):
    row_id: str
    split: str
    question: str
    database: Path


def _rows(manifest: Manifest) -> Iterator[_Row]:
    path = cache(manifest.root.joinpath)
    columns = manifest.columns("row_id", "split", "question", "sqlite_file")
    for batch in columns.to_batches(max_chunksize=BATCH):
        parts = (column.to_pylist() for column in batch.columns)
        for row_id, split, question, file in zip(*parts, strict=True):
            yield _Row(row_id, split, question, path(file))


def schema_fingerprint(schema: Schema) -> str:
    """Hex digest of the names of tables and columns, order-free and case-insensitive."""
    tables = sorted(
        (table.name.casefold(), sorted(column.name.casefold() for column in table.columns))
        for table in schema.tables
    )
    return hashlib.blake2b(msgspec.json.encode(tables), digest_size=16).hexdigest()


def question_words(question: str) -> frozenset[str]:
    """The question's distinct words: folded case, no punctuation, compatibility forms unified."""
    plain = question if question.isascii() else unicodedata.normalize("NFKC", question)
    return frozenset(_WORD.findall(plain.casefold()))


class NearDuplicates:
    """Held-out questions, asked whether a question is nearly one of them.

    Exact, by prefix filtering: two sets with a Jaccard index of at least t share one of the
    rarest |set| - ceil(t |set|) + 1 words of each.
    """

    def __init__(self, questions: Iterable[str]) -> None:
        words = sorted({question_words(q) for q in questions}, key=sorted)
        self._frequency = Counter(word for each in words for word in each)
        self._by_word: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
        self._whole = set(words)
        for each in words:
            for word in self._prefix(each):
                self._by_word[word].append(each)

    def holds(self, question: str) -> bool:
        """True where a held-out question is the same or nearly so."""
        words = question_words(question)
        if words in self._whole:
            return True
        others = {other for word in self._prefix(words) for other in self._by_word.get(word, ())}
        return any(len(words & other) >= NEAR * len(words | other) for other in others)

    def _prefix(self, words: frozenset[str]) -> list[str]:
        length = len(words) - ceil(NEAR * len(words) - 1e-9) + 1
        known = [word for word in words if word in self._frequency]
        length -= len(words) - len(known)  # words that no held-out question has are the rarest
        if length <= 0:
            return []
        return sorted(known, key=lambda word: (self._frequency[word], word))[:length]


class PoolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked of the pool; its values are in the schedule's metadata."""

    size: int | None = None
    """Questions wanted; None: the most for which every bucket can give its share."""
    seed: int = 0
    where: str = ""
    """Expression that a row must satisfy, see `select_rows`; empty keeps all."""
    weigh_by_signal: bool = False
    """Where a bucket has more rows than its share wants, a row's chance follows its signal."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Row ids a bucket, and how they came to be chosen."""

    rows: dict[str, tuple[str, ...]]
    """Sorted ids under the bucket whose share they fill, in the schedule's order."""
    fills: tuple[BucketFill, ...]
    left_out: dict[str, int]
    """Rows of the manifest not offered to the pool, by reason."""
    test_rows: int
    """Rows that the pool was kept apart from."""
    unmeasured: int
    """Offered rows without a signal."""
    notes: tuple[str, ...] = ()
    """What the operator should know, one sentence each."""

    @property
    def size(self) -> int:
        """Questions in the pool."""
        return sum(len(ids) for ids in self.rows.values())

    @property
    def lacking(self) -> int:
        """Questions that the shares ask for and nothing filled."""
        return sum(fill.lacking for fill in self.fills)


def build_pool(
    manifest: Path, schedule: Schedule, choice: PoolChoice, *, test: Sequence[Path] = ()
) -> Pool:
    """The pool of a manifest folder; `test` names further manifests to keep apart from.

    Raises UsageError where an option leaves nothing to choose from.
    """
    rows, left_out, test_rows = offered_rows(manifest, choice, test=test)
    unmeasured = rows["signal"].null_count()
    buckets, shares = schedule.buckets, [exact(share) for share in schedule.pool]
    if not buckets:
        rows = rows.with_columns(bucket=pl.lit(EVERYTHING))
        buckets, shares = (EVERYTHING,), [Fraction(1)]
    notes = []
    unnamed = rows.filter(~pl.col("bucket").is_in(buckets))["bucket"]
    if len(unnamed):
        left_out["bucket_not_in_schedule"] += len(unnamed)
        notes.append(
            f"{len(unnamed)} rows are in buckets that the schedule does not name: "
            f"{', '.join(sorted(set(unnamed)))}"
        )
    ranked = {name: _ranked(rows, name, choice) for name in buckets}
    offered = [len(ids) for ids in ranked.values()]
    size = largest_total(offered, shares) if choice.size is None else choice.size
    wanted = apportion(size, shares)
    chosen = {
        name: tuple(sorted(ids[:count]))
        for (name, ids), count in zip(ranked.items(), wanted, strict=True)
    }
    if unused := sum(offered) - sum(map(len, chosen.values())):
        left_out["beyond_share"] += unused
    return Pool(
        rows=chosen,
        fills=tuple(
            BucketFill(
                bucket=name,
                share=float(share),
                wanted=count,
                offered=of,
                taken=len(chosen[name]),
            )
            for name, share, count, of in zip(buckets, shares, wanted, offered, strict=True)
        ),
        left_out=dict(sorted(left_out.items())),
        test_rows=test_rows,
        unmeasured=unmeasured,
        notes=tuple(notes),
    )


class Offered(NamedTuple):
    """The rows of a manifest that a pool may be filled with."""

    rows: pl.DataFrame
    """row_id, bucket, masked_length, signal."""
    left_out: Counter[str]
    """The other rows, by reason."""
    test_rows: int
    """Rows that these were kept apart from."""


def offered_rows(manifest: Path, choice: PoolChoice, *, test: Sequence[Path] = ()) -> Offered:
    """The rows that may be trained on and that the choice keeps; `test` as for `build_pool`.

    Raises UsageError where nothing is left.
    """
    opened, others = open_manifest(manifest), [open_manifest(path) for path in test]
    reasons = untrainable_rows(opened, apart_from=others)
    left_out = Counter(reasons.values())
    test_rows = left_out[TEST_SPLIT] + sum(len(other.rows) for other in others)
    columns = opened.columns("row_id", "bucket", "masked_length", "signal")
    frame = cast(pl.DataFrame, pl.from_arrow(columns))
    rows = frame.filter(~pl.col("row_id").is_in(list(reasons)))
    if choice.where:
        kept = rows.filter(pl.col("row_id").is_in(select_rows(opened, choice.where)))
        left_out["not_selected"] += rows.height - kept.height
        rows = kept
    if rows.is_empty():
        counts = [f"{count} {reason}" for reason, count in sorted(left_out.items())]
        raise UsageError(
            f"no row of the manifest may be trained on ({', '.join(counts) or 'it is empty'}); "
            f"rows of the splits "
            f"{', '.join(EVALUATION_SPLITS)} never are"
        )
    return Offered(rows, left_out, test_rows)


def lengths_a_bucket(rows: pl.DataFrame) -> dict[str, list[int]]:
    """The column `masked_length` a value of `bucket`, shortest bucket first."""
    lengths: dict[str, list[int]] = dict(rows.group_by("bucket").agg("masked_length").iter_rows())
    return dict(sorted(lengths.items(), key=lambda entry: (min(entry[1]), entry[0])))


def _ranked(rows: pl.DataFrame, bucket: str, choice: PoolChoice) -> list[str]:
    """The bucket's row ids, in the order in which the pool takes them."""
    own = rows.filter(pl.col("bucket") == bucket).sort("row_id")
    ids = own["row_id"].to_list()
    chance = derived_random(choice.seed, bucket, "pool")
    if not choice.weigh_by_signal:
        chance.shuffle(ids)
        return ids
    mean: Any = own["signal"].mean()
    weights = own["signal"].fill_null(1.0 if mean is None else mean).to_list()
    # exponential races: the first k are a weighted sample without replacement
    finish = [
        (-math.log(1.0 - chance.random()) / weight if weight > 0 else math.inf)
        for weight in weights
    ]
    return [row_id for _, row_id in sorted(zip(finish, ids, strict=True))]


# The schedule as a file: every question of every step, in the order a trainer reads it.


FORMAT = "envbuild.schedule/1"
FILE = "schedule.parquet"


class OrderedSchedule(NamedTuple):
    """A schedule file's rows and how they came about."""

    rows: list[ScheduleRow]
    """Sorted by step, then slot."""
    schedule: Schedule
    manifest_sha256: str
    """Of the manifest.parquet it was drawn from."""


def write_schedule(path: Path, draws: Draws, pool: Pool, choice: PoolChoice, manifest: Path) -> int:
    """Writes all steps of the schedule to one Parquet file; returns the number of rows.

    `manifest` is the folder whose pool it is. The same pool and seed give the same bytes.
    """
    metadata = {
        "format": FORMAT,
        **VERSIONS,
        "schedule": msgspec.json.encode(draws.schedule).decode(),
        "seed": str(draws.seed),
        "pool": msgspec.json.encode(choice).decode(),
        "pool_fills": msgspec.json.encode(pool.fills).decode(),
        "manifest_sha256": sha256_file(manifest / ROWS_FILE),
    }
    rows = (row for step in range(draws.schedule.steps) for row in draws.at(step).rows)
    return write_records(path, rows, arrow_schema(ScheduleRow), metadata=metadata)


def read_schedule_file(path: Path) -> OrderedSchedule:
    """A schedule file, checked. Raises CorpusFolderError where it is missing or something else."""
    metadata = parquet_metadata(path)
    if metadata.get("format") != FORMAT:
        raise CorpusFolderError(f"{path} is not a schedule written by `envbuild pool --write`")
    return OrderedSchedule(
        rows=read_records(path, ScheduleRow),
        schedule=msgspec.json.decode(metadata["schedule"], type=Schedule),
        manifest_sha256=metadata["manifest_sha256"],
    )
