"""A handful of databases built at once: what a worker gets, does, and leaves on the disk."""

import gc
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from envbuild.corpora.folder_files import PARTS_FOLDER
from envbuild.engine.fanout import run_shards
from envbuild.engine.shards import shard_of
from envbuild.errors import CorpusError
from envbuild.io.files import TEMPORARY_SUFFIX, write_bytes
from envbuild.materialize.build import build_database
from envbuild.materialize.catalogue import Built
from envbuild.materialize.names import FileNames
from envbuild.records.corpus import DatabaseRecord, Reject

UNIT_BYTES = 4 * 1024 * 1024
"""Payload a unit holds before it is closed; a tenth of a second of work or two."""
UNIT_DATABASES = 32


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One database on its way: what to build, and where."""

    index: int
    """Position within the source: the catalogue's order."""
    record: DatabaseRecord
    file: str
    """Relative to the corpus folder."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one database: one of the two is there."""

    index: int
    built: Built | None = None
    reject: Reject | None = None


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """The databases one worker builds before it reports."""

    root: str
    """The corpus folder."""
    part: str
    """File that says the unit is done, with what came of it; relative to `root`."""
    entries: tuple[Entry | Outcome, ...]
    """Outcomes stand for what the reader itself could not read."""
    link: bool

    @property
    def part_path(self) -> Path:
        """Where the part file stands."""
        return Path(self.root) / self.part


def iter_units(
    databases: Iterable[DatabaseRecord | Reject],
    root: Path,
    *,
    shard: tuple[int, int],
    link: bool,
    limit: int | None,
    split: str | None,
) -> Iterator[Unit]:
    """The source cut into units: by its order and sizes alone, whatever builds them.

    Of several shards only the own one is cut; file names are given over all of them.
    """
    names = FileNames()
    folder = f"{PARTS_FOLDER}/{shard[0]}-of-{shard[1]}"
    entries: list[Entry | Outcome] = []
    size = number = taken = 0

    def unit() -> Unit:
        part = f"{folder}/{number:06}.msgpack"
        return Unit(root=str(root), part=part, entries=tuple(entries), link=link)

    for index, record in enumerate(databases):
        if isinstance(record, Reject):
            if shard_of(record.db_id, shard[1]) == shard[0]:
                entries.append(Outcome(index=index, reject=record))
            continue
        if split is not None and record.split not in ("", split):
            continue
        if limit is not None and taken >= limit:
            break
        taken += 1
        name = names.claim(record.db_id)
        if shard_of(record.db_id, shard[1]) != shard[0]:
            continue
        file = f"databases/{name}/{name}.sqlite"
        entries.append(Entry(index=index, record=record, file=file))
        size += len(record.payload) + len(record.ddl)
        if size >= UNIT_BYTES or len(entries) >= UNIT_DATABASES:
            yield unit()
            entries, size, number = [], 0, number + 1
    yield unit()


def build_unit(unit: Unit) -> int:
    """Builds the unit's databases and writes its part file; how many there were.

    What a database's own content prevents becomes a Reject. Raises OutputError for the disk.
    """
    outcomes = [
        entry if isinstance(entry, Outcome) else _build(entry, unit) for entry in unit.entries
    ]
    return _finish(unit, outcomes)


def build_unit_singly(unit: Unit, reason: str) -> int:
    """The same for a unit whose worker died: each database in a process of its own.

    The one that kills its process becomes a Reject `worker_died`; the others are built.
    """
    singles = [msgspec.structs.replace(unit, entries=(entry,)) for entry in unit.entries]
    outcomes = run_shards(
        _build_single,
        singles,
        workers=2,  # one would run in this process
        on_crash=lambda single, why: _died(single.entries[0], why or reason),
    )
    return _finish(unit, list(outcomes))


def read_part(path: Path) -> list[Outcome]:
    """The outcomes that `build_unit` left."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Outcome])


def _finish(unit: Unit, outcomes: list[Outcome]) -> int:
    write_bytes(unit.part_path, msgspec.msgpack.encode(outcomes))
    return sum(outcome.built is not None or outcome.reject is not None for outcome in outcomes)


def _build_single(unit: Unit) -> Outcome:
    (entry,) = unit.entries
    return entry if isinstance(entry, Outcome) else _build(entry, unit)


def _build(entry: Entry, unit: Unit) -> Outcome:
    path = Path(unit.root) / entry.file
    remove_temporary(path.parent)
    gc.disable()  # a payload is millions of small objects and no cycle
    try:
        built = build_database(entry.record, path, link=unit.link)
    except CorpusError as e:
        if path.parent.is_dir():
            path.parent.rmdir()
        return Outcome(index=entry.index, reject=_rejected(entry, e.reason, e.detail))
    finally:
        gc.enable()
    database = msgspec.structs.replace(built.database, sqlite_file=entry.file)
    return Outcome(index=entry.index, built=msgspec.structs.replace(built, database=database))


def remove_temporary(folder: Path) -> None:
    """Removes what a killed run left half written in `folder`."""
    for stale in folder.glob(f"*{TEMPORARY_SUFFIX}*"):
        stale.unlink(missing_ok=True)


def _died(entry: Entry | Outcome, reason: str) -> Outcome:
    if isinstance(entry, Outcome):
        return entry
    return Outcome(index=entry.index, reject=_rejected(entry, "worker_died", reason))


def _rejected(entry: Entry, reason: str, detail: str) -> Reject:
    return Reject(db_id=entry.record.db_id, kind="database", reason=reason, detail=detail)
