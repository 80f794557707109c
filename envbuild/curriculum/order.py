"""The schedule as a file: every question of every step, in the order a trainer reads it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from envbuild.curriculum.draw import Draws
from envbuild.curriculum.pool import Pool, PoolChoice
from envbuild.errors import CorpusFolderError
from envbuild.io.files import sha256_file
from envbuild.io.parquet import arrow_schema, parquet_metadata, read_records, write_records
from envbuild.records.manifest import Schedule, ScheduleRow
from envbuild.sql.connect import VERSIONS

FORMAT = "envbuild.schedule/1"
FILE = "schedule.parquet"


class OrderedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule file's rows and how they came about."""

    rows: tuple[ScheduleRow, ...]
    """Sorted by step, then slot."""
    schedule: Schedule
    seed: int
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
        "manifest_sha256": sha256_file(manifest / "manifest.parquet"),
    }
    return write_records(path, _every_row(draws), arrow_schema(ScheduleRow), metadata=metadata)


def read_schedule_file(path: Path) -> OrderedSchedule:
    """A schedule file, checked. Raises CorpusFolderError where it is missing or something else."""
    metadata = parquet_metadata(path)
    if metadata.get("format") != FORMAT:
        raise CorpusFolderError(f"{path} is not a schedule written by `envbuild pool --write`")
    return OrderedSchedule(
        rows=tuple(read_records(path, ScheduleRow)),
        schedule=msgspec.json.decode(metadata["schedule"], type=Schedule),
        seed=int(metadata["seed"]),
        manifest_sha256=metadata["manifest_sha256"],
    )


def _every_row(draws: Draws) -> Iterator[ScheduleRow]:
    for step in range(draws.schedule.steps):
        yield from draws.at(step).rows
