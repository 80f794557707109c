"""The question pool: the manifest's rows that may be trained on, filled by shares a bucket.

Columns only, never whole records: a manifest of 2.5 million rows fits.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import msgspec
import polars as pl

from envbuild.curriculum.held_out import leaks, schema_fingerprint
from envbuild.curriculum.schedule import EVERYTHING, apportion, exact
from envbuild.engine.seeds import derived_random
from envbuild.errors import UsageError
from envbuild.manifest.read import open_manifest
from envbuild.records.corpus import EVALUATION_SPLITS
from envbuild.records.curriculum import BucketFill, Schedule
from envbuild.schema.read import read_schema_of

_COLUMNS = ("row_id", "split", "style", "question", "bucket", "signal", "sqlite_file")


class PoolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asked of the pool; its values are in the schedule's metadata."""

    size: int | None = None
    """Questions wanted; None: the most for which every bucket can give its share."""
    seed: int = 0
    styles: tuple[str, ...] = ()
    """Phrasings to keep; empty keeps all."""
    min_signal: float | None = None
    """Rows measured below it stay out; rows not measured stay in, counted."""
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
    rows = _read_rows(manifest)
    is_test = pl.col("split").str.to_lowercase().is_in(EVALUATION_SPLITS)
    train, held_out = rows.filter(~is_test), rows.filter(is_test)
    notes = []
    if train.is_empty() and not held_out.is_empty():
        splits = ", ".join(sorted(set(held_out["split"])))
        notes.append(f"every row is of a test split ({splits}); the pool is made of them")
        train, held_out = held_out, train
    left_out: Counter[str] = Counter()
    if held_out.height:
        left_out["test_split"] = held_out.height
    others = [_read_rows(path) for path in test]
    held_out = pl.concat([held_out, *others])
    train = _keep(train, choice, left_out)
    train = _keep_apart(train, held_out, left_out)
    unmeasured = train["signal"].null_count()
    if train.is_empty():
        raise UsageError(f"no row of the manifest may be drawn ({_counted(left_out)})")
    rows_a_bucket, fills, notes_of_fill = _fill(train, schedule, choice, left_out)
    return Pool(
        rows=rows_a_bucket,
        fills=fills,
        left_out=dict(sorted(left_out.items())),
        test_rows=held_out.height,
        unmeasured=unmeasured,
        notes=(*notes, *notes_of_fill),
    )


def lengths_a_bucket(folder: Path) -> dict[str, list[int]]:
    """Masked lengths of a manifest's rows a bucket, shortest bucket first."""
    columns = open_manifest(folder).columns("bucket", "masked_length")
    frame = cast(pl.DataFrame, pl.from_arrow(columns))
    grouped = frame.group_by("bucket").agg("masked_length")
    lengths: dict[str, list[int]] = dict(grouped.iter_rows())
    return dict(sorted(lengths.items(), key=lambda entry: (min(entry[1]), entry[0])))


def _read_rows(folder: Path) -> pl.DataFrame:
    manifest = open_manifest(folder)
    frame = cast(pl.DataFrame, pl.from_arrow(manifest.columns(*_COLUMNS)))
    root = str(manifest.root.absolute())
    file = pl.col("sqlite_file")
    whole = pl.when(file.str.starts_with("/")).then(file).otherwise(pl.lit(f"{root}/") + file)
    return frame.with_columns(sqlite_file=whole)


def _keep(rows: pl.DataFrame, choice: PoolChoice, left_out: Counter[str]) -> pl.DataFrame:
    if choice.styles:
        known = sorted(set(rows["style"]) - {""})
        for style in choice.styles:
            if style not in known:
                names = ", ".join(known) or "none: this manifest has one phrasing a question"
                raise UsageError(f"no phrasing {style!r} in the manifest; it has {names}")
        kept = rows.filter(pl.col("style").is_in(choice.styles))
        left_out["other_style"] += rows.height - kept.height
        rows = kept
    if choice.min_signal is not None:
        kept = rows.filter(pl.col("signal").is_null() | (pl.col("signal") >= choice.min_signal))
        left_out["low_signal"] += rows.height - kept.height
        rows = kept
    return rows


def _keep_apart(
    train: pl.DataFrame, held_out: pl.DataFrame, left_out: Counter[str]
) -> pl.DataFrame:
    if held_out.is_empty() or train.is_empty():
        return train
    files = sorted(set(train["sqlite_file"]) | set(held_out["sqlite_file"]))
    reasons = leaks(
        train.select("row_id", "sqlite_file", "question").iter_rows(),
        held_out.select("row_id", "sqlite_file", "question").iter_rows(),
        fingerprints={file: schema_fingerprint(read_schema_of(Path(file))) for file in files},
    )
    left_out.update(reasons.values())
    return train.filter(~pl.col("row_id").is_in(list(reasons)))


def _fill(
    rows: pl.DataFrame, schedule: Schedule, choice: PoolChoice, left_out: Counter[str]
) -> tuple[dict[str, tuple[str, ...]], tuple[BucketFill, ...], list[str]]:
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
    size = choice.size if choice.size is not None else _largest(offered, shares, buckets)
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
    return chosen, tuple(fills), notes


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


def _largest(
    offered: Mapping[str, Sequence[str]], shares: Sequence[Fraction], buckets: Sequence[str]
) -> int:
    """The most questions for which every bucket can give its share; all, where one is empty."""
    total = sum(len(ids) for ids in offered.values())
    sizes = [
        len(offered[name]) / share for name, share in zip(buckets, shares, strict=True) if share
    ]
    if not all(sizes):
        return total
    size = min(total, math.ceil(min(sizes)))
    while any(
        count > len(offered[name])
        for name, count in zip(buckets, apportion(size, shares), strict=True)
    ):
        size -= 1
    return size


def _counted(left_out: Counter[str]) -> str:
    return (
        ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
        or "it is empty"
    )
