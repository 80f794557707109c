"""A source as a corpus folder: databases in parallel, then the catalogue, the index last.

A run that was killed is simply run again: finished units are kept, and the folder ends up with
the bytes of an undisturbed run. A run under another configuration is refused.
"""

import gc
import hashlib
import heapq
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from envbuild import __version__
from envbuild.corpora.source import INDEX_FILE, INDEX_FORMAT, PARTS_FOLDER, READERS, Source
from envbuild.engine.fanout import run_shards, shard_of
from envbuild.errors import ConfigurationError, CorpusError, CorpusFolderError
from envbuild.io.files import (
    TEMPORARY_SUFFIX,
    changed_entries,
    only_writer,
    sha256_file,
    write_bytes,
    writing,
)
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.materialize.build import Built, build_database
from envbuild.records.corpus import DatabaseRecord, DatabaseRow, Question, Reject, TableRow
from envbuild.sql.connect import SQLITE_VERSION

UNIT_BYTES = 4 * 1024 * 1024
"""Payload a unit holds before it is closed; a tenth of a second of work or two."""
UNIT_DATABASES = 32
MAX_NAME_BYTES = 150
"""Leaves room for endings and temporary names within the 255 of a file system."""
_GROUP_ROWS = 16 * 1024
_CONFIGURATION_FILE = "configuration.json"
_UNSAFE = re.compile(r"""[^\w .,+=()'&!~@%{}\[\]-]|\.{2,}""")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)


T = TypeVar("T", bound=msgspec.Struct)


class CorpusSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a materialize came to; the counts of corpus.json."""

    name: str
    root: str
    said: str
    """What the reader saw."""
    complete: bool
    """False while other shards are missing: then there is no corpus yet."""
    resumed: bool = False
    """The folder was complete already, and nothing was built."""
    databases: int = 0
    failed: int = 0
    """Databases that could not be built; each is in rejects."""
    undecodable_cells: int = 0
    description_files: int = 0
    """CSV files of column descriptions (BIRD's) copied beside their databases."""
    tables: int = 0
    rows: int = 0
    rows_offered: int = 0
    rows_stored: int = 0
    rows_refused: int = 0
    ddl_statements: int = 0
    ddl_refused: int = 0
    fk_violations: int = 0
    questions: int = 0
    questions_refused: int = 0
    questions_outside: int = 0
    """Questions about databases that `--limit` or `--split` left out: not offered."""
    rejects: dict[str, int] = {}
    """Reason -> how many; `transpiled` and `folded` are notes about what was taken after all."""


_SUMMED = [n for n in CorpusSummary.__struct_fields__ if n in DatabaseRow.__struct_fields__]
_COUNTED = ("databases", "failed", "undecodable_cells", "description_files", *_SUMMED)


class Entry(NamedTuple):
    """One database on its way: what to build, and where."""

    position: int
    """Within the source: the catalogue's order."""
    record: DatabaseRecord | Reject
    """A Reject for what the reader could not read: then there is nothing to build."""
    file: str
    """Relative to the corpus folder."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one database: one of the two is there."""

    index: int
    built: Built | None = None
    reject: Reject | None = None


class Unit(NamedTuple):
    """The databases one worker builds before it reports."""

    root: Path
    """The corpus folder."""
    part: str
    """File that says the unit is done, with what came of it."""
    entries: list[Entry]
    link: bool


def build_corpus(
    source: Source,
    out: Path,
    *,
    name: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    link: bool = False,
    workers: int | None = None,
    engine: str = "local",
    shard: tuple[int, int] = (0, 1),
    on_built: Callable[[int], None] = lambda built: None,
) -> CorpusSummary:
    """Materializes `source` into `out/<name>`; the same bytes for any workers, engine or shards.

    `limit` takes the first databases only. `shard` (I, N) builds that share; whoever completes the
    last share writes the catalogue. `on_built` hears of every few databases. Raises OutputError
    where `out` cannot be written, and ConfigurationError where the folder was begun otherwise.
    """
    name = safe_name(name or source.name)
    root = Path(out) / name
    configuration = {  # everything that decides the bytes: no paths, workers or times
        "name": name,
        "reader": source.kind,
        "revision": source.revision,
        "source": {f"{p.parent.name}/{p.name}": sha256_file(p) for p in source.files},
        "options": {"split": split, "limit": limit, "link": link, **source.options},
        "sqlite": SQLITE_VERSION,
        "envbuild": __version__,
    }

    def finish() -> dict[str, Any]:
        limited = limit is not None or split is not None
        counts = _assemble(root, source, split=split, limited=limited)
        licence = source.licence or READERS[source.kind].licence
        said = {"said": source.description, "licence": licence}
        return {**configuration, **said, "counts": counts}

    resumed = (root / INDEX_FILE).is_file()
    index = build_folder(
        root,
        configuration,
        units=lambda: iter_units(
            source.databases(), root, shard=shard, link=link, limit=limit, split=split
        ),
        build=build_unit,
        on_crash=build_unit_singly,
        finish=finish,
        workers=workers,
        engine=engine,
        shard=shard,
        on_built=on_built,
    )
    if index is None:
        return CorpusSummary(name=name, root=str(root), said=source.description, complete=False)
    return CorpusSummary(
        name=name,
        root=str(root),
        said=index["said"],
        complete=True,
        resumed=resumed,
        **index["counts"],
    )


def build_folder(
    root: Path,
    configuration: dict[str, Any],
    *,
    units: Callable[[], Iterable[Any]],
    build: Callable[[Any], int],
    on_crash: Callable[[Any, str], int],
    finish: Callable[[], dict[str, Any]],
    workers: int | None,
    engine: str,
    shard: tuple[int, int],
    on_built: Callable[[int], None],
) -> dict[str, Any] | None:
    """The index of the corpus folder `root` once it is whole; None while other shards are missing.

    `build` writes the part file of a unit, as `write_part` does; units that have theirs are not
    built again. `finish` writes the catalogue from all parts and returns the index, which is
    written last. Raises ConfigurationError where the folder has another configuration, and
    OutputError where another process writes it.
    """
    index_file, parts = root / INDEX_FILE, root / PARTS_FOLDER
    if index_file.is_file():
        index: dict[str, Any] = msgspec.json.decode(index_file.read_bytes())
        _compare(index, configuration, f"{root} holds a corpus made")
        shutil.rmtree(parts, ignore_errors=True)
        return index
    own = own_parts(root, shard)
    with writing(own):
        own.mkdir(parents=True, exist_ok=True)
    file, begun = parts / _CONFIGURATION_FILE, {**configuration, "shards": shard[1]}
    if file.is_file():
        _compare(msgspec.json.decode(file.read_bytes()), begun, f"{root} was begun")
    else:
        write_bytes(file, msgspec.json.encode(begun))
    with only_writer(own, of=root):
        remove_temporary(own)
        missing = (unit for unit in units() if not Path(unit.part).is_file())
        for built in run_shards(
            build, missing, workers=workers, engine=engine, on_crash=on_crash, shared_file=file
        ):
            on_built(built)
        write_bytes(own / "done", b"")
        shards = (own_parts(root, (number, shard[1])) for number in range(shard[1]))
        if not all((other / "done").is_file() for other in shards):
            return None
        remove_temporary(root)
        index = {"format": INDEX_FORMAT, **finish()}
        write_bytes(index_file, msgspec.json.format(msgspec.json.encode(index), indent=2) + b"\n")
        shutil.rmtree(parts, ignore_errors=True)
        return index


def _compare(before: dict[str, Any], now: dict[str, Any], done: str) -> None:
    changed = changed_entries({key: before.get(key) for key in now}, now)
    differing = [
        f"{re.sub(r'^options[.]', '--', key)} ({then!r} then, {since!r} now)"
        for key, then, since in changed
    ]
    if differing:
        raise ConfigurationError(
            f"{done} with another configuration: {'; '.join(differing)}; "
            "choose another --out or name, or remove that folder"
        )


def own_parts(root: Path, shard: tuple[int, int]) -> Path:
    """Where a shard keeps its part files until the corpus is whole."""
    return root / PARTS_FOLDER / f"{shard[0]}-of-{shard[1]}"


def write_part(part: str, outcomes: Sequence[msgspec.Struct]) -> int:
    """Keeps what became of a unit's databases; how many they were."""
    write_bytes(Path(part), msgspec.msgpack.encode(outcomes))
    return len(outcomes)


def iter_outcomes(root: Path, outcome: type[T], *, key: Callable[[T], int]) -> Iterator[T]:
    """The outcomes of all shards in the order of `key`; parts are read one by one."""

    decoder = msgspec.msgpack.Decoder(list[outcome])  # type: ignore[valid-type]

    def of_shard(folder: Path) -> Iterator[T]:
        for part in sorted(folder.glob("*.msgpack")):
            yield from decoder.decode(part.read_bytes())

    shards = sorted((root / PARTS_FOLDER).glob("*-of-*"))
    return heapq.merge(*map(of_shard, shards), key=key)


def write_rows(
    root: Path, name: str, record: type[msgspec.Struct], rows: Iterable[msgspec.Struct]
) -> int:
    """Writes a Parquet file of the corpus's catalogue; how many rows it has."""
    named = (msgspec.structs.replace(row, corpus=root.name) for row in rows)
    path = root / f"{name}.parquet"
    return write_records(path, named, arrow_schema(record), group=_GROUP_ROWS)


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
    taken: set[str] = set()
    number = size = databases_taken = 0
    entries: list[Entry] = []

    def unit() -> Unit:
        return Unit(root, str(own_parts(root, shard) / f"{number:06}.msgpack"), entries, link)

    for index, record in enumerate(databases):
        file = ""
        if isinstance(record, DatabaseRecord):
            if split is not None and record.split not in ("", split):
                continue
            if limit is not None and databases_taken >= limit:
                break
            databases_taken += 1
            name = claim_name(record.db_id, taken)
            file = f"databases/{name}/{name}.sqlite"
        if shard_of(record.db_id, shard[1]) != shard[0]:
            continue
        entries.append(Entry(index, record, file))
        if isinstance(record, DatabaseRecord):
            size += len(record.payload) + len(record.ddl)
        if size >= UNIT_BYTES or len(entries) >= UNIT_DATABASES:
            yield unit()
            entries, size, number = [], 0, number + 1
    yield unit()


def build_unit(unit: Unit) -> int:
    """Builds the unit's databases and writes its part file; how many there were.

    What a database's own content prevents becomes a Reject. Raises OutputError for the disk.
    """
    return write_part(unit.part, [_build((entry, unit)) for entry in unit.entries])


def build_unit_singly(unit: Unit, reason: str) -> int:
    """The same for a unit whose worker died: each database in a process of its own.

    The one that kills its process becomes a Reject `worker_died`; the others are built.
    """
    singles = [(entry, unit) for entry in unit.entries]

    def died(single: tuple[Entry, Unit], why: str) -> Outcome:
        return _failed(single[0], "worker_died", why or reason)

    # two workers, since one would run in this process
    return write_part(unit.part, list(run_shards(_build, singles, workers=2, on_crash=died)))


def _build(single: tuple[Entry, Unit]) -> Outcome:
    entry, unit = single
    if isinstance(entry.record, Reject):
        return Outcome(index=entry.position, reject=entry.record)
    path = unit.root / entry.file
    remove_temporary(path.parent)
    gc.disable()  # a payload is millions of small objects and no cycle
    try:
        built = build_database(entry.record, path, link=unit.link)
    except CorpusError as e:
        if path.parent.is_dir():
            path.parent.rmdir()
        return _failed(entry, e.reason, e.detail)
    finally:
        gc.enable()
    database = msgspec.structs.replace(built.database, sqlite_file=entry.file)
    return Outcome(index=entry.position, built=msgspec.structs.replace(built, database=database))


def _failed(entry: Entry, reason: str, detail: str) -> Outcome:
    reject = Reject(db_id=entry.record.db_id, kind="database", reason=reason, detail=detail)
    return Outcome(index=entry.position, reject=reject)


def remove_temporary(folder: Path) -> None:
    """Removes what a killed run left half written in `folder`."""
    for stale in folder.glob(f"*{TEMPORARY_SUFFIX}*"):
        stale.unlink(missing_ok=True)


def _assemble(root: Path, source: Source, *, split: str | None, limited: bool) -> dict[str, Any]:
    """Writes the four Parquet files of `root`; the counts that corpus.json keeps.

    `limited` says that databases were left out on purpose, so questions about unknown ones are
    not offered instead of refused. Parts are read once a file, one at a time.
    """
    counts: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
    built: set[str] = set()
    failed: set[str] = set()
    for outcome in _outcomes(root):
        if outcome.built is not None:
            row = outcome.built.database
            if not (root / row.sqlite_file).is_file():
                raise CorpusFolderError(
                    f"{root / row.sqlite_file} is gone since it was built: remove "
                    f"{root / PARTS_FOLDER} and run again"
                )
            built.add(row.db_id)
            counts["databases"] += 1
            counts.update({name: getattr(row, name) for name in _SUMMED})
            counts["description_files"] += outcome.built.description_files
            counts["undecodable_cells"] += sum(t.undecodable_cells for t in outcome.built.tables)
        elif outcome.reject is not None:
            failed.add(outcome.reject.db_id)
            counts["failed"] += 1
    refused: list[Reject] = []
    reasons: Counter[str] = Counter()
    known, outside = built | failed, 0

    def questions() -> Iterator[Question]:
        """Every question offered is taken, refused for a reason, or outside and counted."""
        nonlocal outside
        seen: set[int] = set()
        for question in source.questions():
            other_split = split is not None and getattr(question, "split", "") not in ("", split)
            if other_split or (limited and question.db_id not in known):
                outside += 1
            elif isinstance(question, Reject):
                refused.append(question)
            elif reason := _refusal(question, built, failed, seen):
                reject = Reject(
                    db_id=question.db_id,
                    question_id=question.question_id,
                    kind="question",
                    reason=reason,
                    detail=question.style,
                )
                refused.append(reject)
            else:
                yield question

    def rejects() -> Iterator[Reject]:
        for outcome in _outcomes(root):
            yield from outcome.built.rejects if outcome.built else ()
            yield from (outcome.reject,) if outcome.reject else ()
        yield from refused

    write = partial(write_rows, root)
    write("databases", DatabaseRow, (o.built.database for o in _outcomes(root) if o.built))
    write("tables", TableRow, (t for o in _outcomes(root) if o.built for t in o.built.tables))
    taken = write("questions", Question, questions())
    write("rejects", Reject, (r for r in rejects() if not reasons.update((r.reason,))))
    return {
        **counts,
        "questions": taken,
        "questions_refused": len(refused),
        "questions_outside": outside,
        "rejects": dict(sorted(reasons.items())),
    }


def _refusal(question: Question, built: set[str], failed: set[str], seen: set[int]) -> str:
    """The reason why a question is not taken; empty where it is, and then it is among the seen."""
    if question.db_id not in built:
        if not question.db_id:
            return "missing_db_id"
        return "database_not_built" if question.db_id in failed else "unknown_db_id"
    key = hash((question.question_id, question.style))
    if key in seen:
        return "duplicate_question_id"
    seen.add(key)
    return ""


def _outcomes(root: Path) -> Iterator[Outcome]:
    return iter_outcomes(root, Outcome, key=lambda outcome: outcome.index)


def claim_name(db_id: str, taken: set[str]) -> str:
    """The database's file name: the db_id itself where that is safe and not among the `taken`
    ones, else a safe form with its digest; adds it to them.

    Of two that differ only in case the first keeps its own, so ask in the source's order.
    """
    name = safe_name(db_id)
    if _folded(name) in taken:
        name = _with_digest(name, db_id)
    taken.add(_folded(name))
    return name


def safe_name(db_id: str) -> str:
    """`db_id` itself where every file system takes it, else a form of it with its digest."""
    trimmed = _UNSAFE.sub("_", db_id).strip(" .").lstrip("-~")
    fits = len(trimmed.encode("utf-8", "replace")) <= MAX_NAME_BYTES
    if trimmed == db_id and fits and not _RESERVED.match(trimmed):
        return trimmed
    return _with_digest(trimmed, db_id)


def _with_digest(name: str, db_id: str) -> str:
    digest = hashlib.sha256(db_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    room = MAX_NAME_BYTES - len(digest) - 1
    short = name.encode("utf-8", "replace")[:room].decode("utf-8", "ignore").strip(" .")
    return f"{short}-{digest}" if short else digest


def _folded(name: str) -> str:
    """Equal for names that some file system takes for the same: other case, other composition."""
    return unicodedata.normalize("NFKC", name).casefold()
