"""The question pool: the manifest's rows that may be trained on, filled by shares a bucket.

Columns only, never whole records: a manifest of 2.5 million rows fits.
"""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import polars as pl

from envbuild.curriculum.held_out import TEST_SPLIT, untrainable_rows
from envbuild.curriculum.schedule import EVERYTHING, apportion, exact, largest_total
from envbuild.engine.seeds import derived_random
from envbuild.errors import UsageError
from envbuild.manifest.read import open_manifest, select_rows
from envbuild.records.corpus import EVALUATION_SPLITS
from envbuild.records.manifest import BucketFill, Schedule

_COLUMNS = ("row_id", "bucket", "masked_length", "signal")


class PoolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked of the pool; its values are in the schedule's metadata."""

    size: int | None = None
    """Questions wanted; None: the most for which every bucket can give its share."""
    seed: int = 0
    where: str = ""
    """Expression that a row must satisfy, see `select_rows`; empty keeps all."""
    weigh_by_signal: bool = False
    """Where a bucket has more rows than its share wants, a row's chance follows its signal."""
    borrow: bool = False
    """What a bucket lacks comes from the nearest bucket that has rows to spare."""


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
    offered = offered_rows(manifest, choice, test=test)
    rows_a_bucket, fills, notes = _fill(offered.rows, schedule, choice, offered.left_out)
    return Pool(
        rows=rows_a_bucket,
        fills=fills,
        left_out=dict(sorted(offered.left_out.items())),
        test_rows=offered.test_rows,
        unmeasured=offered.rows["signal"].null_count(),
        notes=notes,
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
    frame = cast(pl.DataFrame, pl.from_arrow(opened.columns(*_COLUMNS)))
    rows = frame.filter(~pl.col("row_id").is_in(list(reasons)))
    if choice.where:
        kept = rows.filter(pl.col("row_id").is_in(select_rows(opened, choice.where)))
        left_out["not_selected"] += rows.height - kept.height
        rows = kept
    if rows.is_empty():
        raise UsageError(
            f"no row of the manifest may be trained on ({_counted(left_out)}); rows of the splits "
            f"{', '.join(EVALUATION_SPLITS)} never are"
        )
    return Offered(rows, left_out, test_rows)


def lengths_a_bucket(rows: pl.DataFrame) -> dict[str, list[int]]:
    """The column `masked_length` a value of `bucket`, shortest bucket first."""
    lengths: dict[str, list[int]] = dict(rows.group_by("bucket").agg("masked_length").iter_rows())
    return dict(sorted(lengths.items(), key=lambda entry: (min(entry[1]), entry[0])))


def _fill(
    rows: pl.DataFrame, schedule: Schedule, choice: PoolChoice, left_out: Counter[str]
) -> tuple[dict[str, tuple[str, ...]], tuple[BucketFill, ...], tuple[str, ...]]:
    if not schedule.buckets:
        rows = rows.with_columns(bucket=pl.lit(EVERYTHING))
    buckets = schedule.buckets or (EVERYTHING,)
    shares = [exact(share) for share in schedule.pool] if schedule.buckets else [Fraction(1)]
    strange = sorted(set(rows["bucket"]) - set(buckets))
    notes = []
    if strange:
        other = rows.filter(pl.col("bucket").is_in(strange)).height
        left_out["bucket_not_in_schedule"] += other
        notes.append(
            f"{other} rows are in buckets that the schedule does not name: {', '.join(strange)}"
        )
    offered = {name: _ranked(rows, name, choice) for name in buckets}
    most = largest_total([len(offered[name]) for name in buckets], shares)
    size = choice.size if choice.size is not None else most
    wanted = dict(zip(buckets, apportion(size, shares), strict=True))
    taken = {name: offered[name][: wanted[name]] for name in buckets}
    spare = {name: offered[name][wanted[name] :] for name in buckets}
    fills, chosen = [], {}
    for position, name in enumerate(buckets):
        borrowed: list[str] = []
        lenders = []
        nearest = sorted(
            buckets, key=lambda b: (abs(buckets.index(b) - position), buckets.index(b))
        )
        for lender in nearest if choice.borrow else ():
            lack = wanted[name] - len(taken[name]) - len(borrowed)
            if lack and spare[lender]:
                borrowed += spare[lender][:lack]
                spare[lender] = spare[lender][lack:]
                lenders.append(lender)
        chosen[name] = tuple(sorted((*taken[name], *borrowed)))
        fills.append(
            BucketFill(
                bucket=name,
                share=float(shares[position]),
                wanted=wanted[name],
                offered=len(offered[name]),
                taken=len(taken[name]),
                borrowed=len(borrowed),
                lenders=tuple(lenders),
            )
        )
    unused = sum(len(ids) for ids in spare.values())
    if unused:
        left_out["beyond_share"] += unused
    return chosen, tuple(fills), tuple(notes)


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


def _counted(left_out: Counter[str]) -> str:
    return (
        ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
        or "it is empty"
    )
