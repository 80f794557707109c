"""A corpus amplified into a new corpus folder: databases in parallel, the index last.

The originals are only read. A run that was killed is run again: finished units are kept. A run
under another configuration is refused.
"""

import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from envbuild import __version__
from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE, INDEX_FORMAT, PARTS_FOLDER
from envbuild.engine.fanout import chunked, run_shards, shard_of
from envbuild.errors import ConfigurationError, CorpusError, UsageError
from envbuild.generate.database import amplify_database
from envbuild.io.files import sha256_file, write_bytes, writing
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.io.sorting import iter_grouped
from envbuild.materialize.build import TableCounts, copy_descriptions, database_row, table_rows
from envbuild.records.corpus import DatabaseRow, Question, Reject, TableRow
from envbuild.records.signal import (
    AddedRow,
    AmplifySettings,
    CorpusGrowth,
    Gold,
    GoldState,
    Growth,
    TableGrowth,
)
from envbuild.schema.read import read_schema
from envbuild.signal.corpus import AskedGold
from envbuild.sql.connect import SQLITE_VERSION, SQLiteError, open_read_only, read_image
from envbuild.sql.files.inspect import count_table_rows

DATABASES_A_UNIT = 4


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One database to amplify."""

    database: DatabaseRow
    tables: tuple[TableRow, ...]
    """Its tables as the source's catalogue has them; none from a plain folder."""
    source: str
    """The SQLite file, never written."""
    golds: tuple[Gold, ...]


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """The databases one worker amplifies before it reports."""

    root: str
    """The new corpus folder."""
    part: str
    """File that says the unit is done; relative to `root`."""
    entries: tuple[Entry, ...]
    settings: AmplifySettings


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One database of the new corpus."""

    database: DatabaseRow
    tables: tuple[TableRow, ...]
    growth: Growth
    reject: Reject | None = None
    """Why no row was added, where none could be."""


def amplify_unit(unit: Unit) -> int:
    """Amplifies the unit's databases and writes its part file; how many there were."""
    return _finish(unit, [_amplify(entry, unit) for entry in unit.entries])


def copy_unit(unit: Unit, reason: str) -> int:
    """The same for a unit whose worker died: its databases are copied as they are."""
    return _finish(unit, [_copied(entry, unit, "worker_died", reason) for entry in unit.entries])


def read_part(path: Path) -> list[Outcome]:
    """The outcomes a unit left."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Outcome])


def _finish(unit: Unit, outcomes: list[Outcome]) -> int:
    for entry in unit.entries:
        new = Path(unit.root) / entry.database.sqlite_file
        copy_descriptions(Path(entry.source).parent, new.parent)
    write_bytes(Path(unit.root) / unit.part, msgspec.msgpack.encode(outcomes))
    return len(outcomes)


def _amplify(entry: Entry, unit: Unit) -> Outcome:
    image = read_image(Path(entry.source))
    try:
        grown = amplify_database(
            image, entry.golds, settings=unit.settings, db_id=entry.database.db_id
        )
    except (SQLiteError, CorpusError) as e:
        return _copied(entry, unit, "not_amplified", str(e))
    path = Path(unit.root) / entry.database.sqlite_file
    write_bytes(path, grown.image)
    return _catalogued(entry, path, grown.growth)


def _copied(entry: Entry, unit: Unit, reason: str, detail: str) -> Outcome:
    path = Path(unit.root) / entry.database.sqlite_file
    write_bytes(path, read_image(Path(entry.source)))
    database = msgspec.structs.replace(
        entry.database, sha256=sha256_file(path), bytes=path.stat().st_size
    )
    return Outcome(
        database=database,
        tables=entry.tables,
        growth=Growth(tables=(), golds=(), rows=()),
        reject=Reject(db_id=database.db_id, kind="database", reason=reason, detail=detail),
    )


def _catalogued(entry: Entry, path: Path, growth: Growth) -> Outcome:
    """The database's rows of the catalogue: what was offered once, and what was added, together."""
    connection = open_read_only(path)
    try:
        schema = read_schema(connection)
        rows = count_table_rows(connection)
        known = {table.table: table for table in entry.tables}
        added = {table.table: table.rows_added for table in growth.tables}
        counts = {}
        for table in schema.tables:
            before = known.get(table.name)
            offered = before.rows_offered if before else rows[table.name] - added[table.name]
            counts[table.name] = TableCounts(
                rows=rows[table.name],
                offered=offered + added[table.name],
                refused=before.rows_refused if before else 0,
                undecodable=before.undecodable_cells if before else 0,
            )
        tables = table_rows(connection, schema.tables, counts, db_id=entry.database.db_id)
    finally:
        connection.close()
    summed = database_row(tables, db_id=entry.database.db_id, split=entry.database.split)
    old = entry.database
    total = sum(added.values())
    return Outcome(
        database=msgspec.structs.replace(
            summed,
            sqlite_file=old.sqlite_file,
            sha256=sha256_file(path),
            bytes=path.stat().st_size,
            rows_offered=(old.rows_offered + total) if entry.tables else summed.rows_offered,
            rows_stored=(old.rows_stored + total) if entry.tables else summed.rows_stored,
            rows_refused=old.rows_refused,
            ddl_statements=old.ddl_statements,
            ddl_refused=old.ddl_refused,
        ),
        tables=tables,
        growth=growth,
    )


def assemble(root: Path, folder: CorpusFolder, shards: Sequence[Path]) -> CorpusGrowth:
    """Writes the Parquet files of the new corpus; what its amplification came to.

    Beside the catalogue of CONTRACT 2: `added_rows.parquet`, every added row with its rowid;
    `amplified_tables.parquet` and `amplified_golds.parquet`, each table and gold before and after.
    A stored result describes the rows its corpus was published with, so it is left out.
    """
    named = {"corpus": folder.name}
    place = {row.db_id: number for number, row in enumerate(folder.databases())}
    parts = [part for shard in shards for part in sorted(shard.glob("*.msgpack"))]
    # only names are held: a corpus's added rows are read part by part, in the source's order
    order = sorted(
        (place[outcome.database.db_id], number, within)
        for number, part in enumerate(parts)
        for within, outcome in enumerate(read_part(part))
    )

    def outcomes() -> Iterator[Outcome]:
        held, loaded = -1, []
        for _, number, within in order:
            if number != held:
                held, loaded = number, read_part(parts[number])
            yield loaded[within]

    _write(root, "databases.parquet", DatabaseRow, (o.database for o in outcomes()), named)
    _write(root, "tables.parquet", TableRow, (t for o in outcomes() for t in o.tables), named)
    _write(
        root, "added_rows.parquet", AddedRow, (r for o in outcomes() for r in o.growth.rows), named
    )
    _write(
        root,
        "amplified_tables.parquet",
        TableGrowth,
        (t for o in outcomes() for t in _tables(o)),
        named,
    )
    _write(
        root,
        "amplified_golds.parquet",
        GoldState,
        (g for o in outcomes() for g in o.growth.golds),
        named,
    )
    taken = {o.database.db_id for o in outcomes()}
    questions = (
        msgspec.structs.replace(question, stored_result=None)
        for question in folder.iter_questions()
        if question.db_id in taken
    )
    _write(root, "questions.parquet", Question, questions, named)
    refused = [o.reject for o in outcomes() if o.reject is not None]
    kept = [r for r in folder.rejects() if r.db_id in taken or not r.db_id]
    _write(root, "rejects.parquet", Reject, [*kept, *refused], named)
    return _growth(root, folder, outcomes())


def _tables(outcome: Outcome) -> Iterable[TableGrowth]:
    db_id = outcome.database.db_id
    return (msgspec.structs.replace(table, db_id=db_id) for table in outcome.growth.tables)


def _write(
    root: Path,
    file: str,
    record: type[msgspec.Struct],
    rows: Iterable[msgspec.Struct],
    named: dict[str, str],
) -> None:
    renamed = (msgspec.structs.replace(row, **named) for row in rows)
    write_records(root / file, renamed, arrow_schema(record))


def _growth(root: Path, folder: CorpusFolder, outcomes: Iterable[Outcome]) -> CorpusGrowth:
    before: list[int] = []
    after: list[int] = []
    counts: Counter[str] = Counter()
    scores: list[tuple[float, float]] = []
    known = {row.db_id: row.fk_violations for row in folder.databases()}
    for outcome in outcomes:
        counts["databases"] += 1
        counts["not_amplified"] += outcome.reject is not None
        counts["rejected_batches"] += outcome.growth.rejected_batches
        if known[outcome.database.db_id] >= 0 and outcome.reject is None:
            violations = outcome.database.fk_violations - known[outcome.database.db_id]
            counts["orphans_added"] += max(0, violations)
        for table in outcome.growth.tables:
            before.append(table.rows_before)
            after.append(table.rows_before + table.rows_added)
        for gold in outcome.growth.golds:
            counts["golds"] += 1
            counts["golds_failing"] += gold.rows_before < 0
            counts["empty_before"] += gold.rows_before == 0
            counts["empty"] += gold.rows_after == 0
            counts["tie_sensitive"] += gold.tie_sensitive
            counts["mutants"] += gold.mutants
            if gold.mutants and gold.rows_after >= 0:
                scores.append((gold.killed_before / gold.mutants, gold.killed / gold.mutants))
    return CorpusGrowth(
        name=folder.name,
        root=str(root),
        complete=True,
        tables=len(after),
        rows_before=sum(before),
        rows_added=sum(after) - sum(before),
        rows_a_table_before=statistics.median(before) if before else 0.0,
        rows_a_table=statistics.median(after) if after else 0.0,
        signal_before=statistics.fmean(s for s, _ in scores) if scores else None,
        signal=statistics.fmean(s for _, s in scores) if scores else None,
        databases=counts["databases"],
        not_amplified=counts["not_amplified"],
        orphans_added=counts["orphans_added"],
        golds=counts["golds"],
        golds_failing=counts["golds_failing"],
        empty_before=counts["empty_before"],
        empty=counts["empty"],
        tie_sensitive=counts["tie_sensitive"],
        mutants=counts["mutants"],
        rejected_batches=counts["rejected_batches"],
    )


_CONFIGURATION_FILE = "configuration.json"


def amplify_corpus(
    folder: CorpusFolder,
    out: Path,
    *,
    settings: AmplifySettings,
    limit: int | None = None,
    workers: int | None = None,
    engine: str = "local",
    shard: tuple[int, int] = (0, 1),
    on_done: Callable[[int], None] = lambda done: None,
) -> CorpusGrowth:
    """Amplifies a corpus into `out/<name>`; the same bytes for any workers, engine or shards.

    `limit` takes the first databases only. `shard` (I, N) amplifies that share; whoever completes
    the last share writes the catalogue. Raises UsageError where the new folder would be the old
    one, ConfigurationError where it was begun otherwise.
    """
    root = Path(out) / folder.name
    if root.resolve() == folder.root.resolve():
        raise UsageError(f"--out {out} is where the corpus lies: choose another folder")
    configuration = _configuration(folder, settings, limit=limit)
    if (root / INDEX_FILE).is_file():
        return _finished(root, configuration)
    own = root / PARTS_FOLDER / f"{shard[0]}-of-{shard[1]}"
    with writing(root):
        own.mkdir(parents=True, exist_ok=True)
    _check_configuration(root, {**configuration, "shards": shard[1]})
    units = _units(folder, root, own.name, settings, limit=limit, shard=shard)
    missing = (unit for unit in units if not (root / unit.part).is_file())
    for done in run_shards(
        amplify_unit, missing, workers=workers, engine=engine, on_crash=copy_unit
    ):
        on_done(done)
    write_bytes(own / "done", b"")
    shards = [root / PARTS_FOLDER / f"{i}-of-{shard[1]}" for i in range(shard[1])]
    if not all((other / "done").is_file() for other in shards):
        return CorpusGrowth(name=folder.name, root=str(root), complete=False)
    growth = assemble(root, folder, shards)
    index = {
        **folder.index,
        "format": INDEX_FORMAT,
        **configuration,
        "counts": _counts(growth, folder.index.get("counts", {})),
    }
    write_bytes(root / INDEX_FILE, msgspec.json.format(msgspec.json.encode(index), indent=2))
    shutil.rmtree(root / PARTS_FOLDER, ignore_errors=True)
    return growth


def parse_rows(text: str) -> tuple[int, int]:
    """`LOW:HIGH` as two numbers, 1 <= LOW <= HIGH. Raises UsageError otherwise."""
    low, _, high = text.partition(":")
    if low.isdigit() and high.isdigit() and 1 <= int(low) <= int(high):
        return int(low), int(high)
    raise UsageError(f"--rows takes LOW:HIGH with 1 <= LOW <= HIGH, such as 30:70; got {text!r}")


def _units(
    folder: CorpusFolder,
    root: Path,
    part_folder: str,
    settings: AmplifySettings,
    *,
    limit: int | None,
    shard: tuple[int, int],
) -> Iterator[Unit]:
    tables: dict[str, list[TableRow]] = {}
    for table in folder.tables():
        tables.setdefault(table.db_id, []).append(table)
    own = [row for row in folder.databases()[:limit] if shard_of(row.db_id, shard[1]) == shard[0]]
    golds = _golds(folder, [row.db_id for row in own])
    for number, rows in enumerate(chunked(own, DATABASES_A_UNIT)):
        entries = tuple(
            Entry(
                database=_placed(row, folder),
                tables=tuple(tables.get(row.db_id, ())),
                source=str(folder.database_path(row.db_id)),
                golds=next(golds),
            )
            for row in rows
        )
        part = f"{PARTS_FOLDER}/{part_folder}/{number:06}.msgpack"
        yield Unit(root=str(root), part=part, entries=entries, settings=settings)


def _golds(folder: CorpusFolder, db_ids: Sequence[str]) -> Iterator[tuple[Gold, ...]]:
    """The distinct golds of each database in turn; the first question of a gold names it."""
    if not folder.catalogued:
        yield from (() for _ in db_ids)
        return
    questions = folder.root / "questions.parquet"
    for _, asked in iter_grouped(questions, AskedGold, by="db_id", keys=db_ids):
        golds: dict[str, Gold] = {}
        for question in asked:
            gold = Gold(question_id=question.question_id, sql=question.gold_sql)
            golds.setdefault(question.gold_sql, gold)
        yield tuple(golds.values())


def _placed(row: DatabaseRow, folder: CorpusFolder) -> DatabaseRow:
    """The row with its file where the new corpus has it; a plain folder's moves in `databases`."""
    if folder.catalogued:
        return row
    return msgspec.structs.replace(row, sqlite_file=f"databases/{row.sqlite_file}")


def _configuration(
    folder: CorpusFolder, settings: AmplifySettings, *, limit: int | None
) -> dict[str, Any]:
    """Everything that decides the bytes: the source's index stands for its files."""
    index = folder.root / INDEX_FILE
    return {
        "name": folder.name,
        "amplified": {
            "settings": msgspec.to_builtins(settings),
            "limit": limit,
            "corpus_sha256": sha256_file(index) if index.is_file() else "",
        },
        "sqlite": SQLITE_VERSION,
        "envbuild": __version__,
    }


def _check_configuration(root: Path, configuration: dict[str, Any]) -> None:
    file = root / PARTS_FOLDER / _CONFIGURATION_FILE
    if file.is_file():
        _compare(msgspec.json.decode(file.read_bytes()), configuration, root)
    else:
        write_bytes(file, msgspec.json.encode(configuration))


def _finished(root: Path, configuration: dict[str, Any]) -> CorpusGrowth:
    index = msgspec.json.decode((root / INDEX_FILE).read_bytes())
    _compare(index, configuration, root)
    counts = index["counts"]["amplified"]
    return CorpusGrowth(name=index["name"], root=str(root), complete=True, resumed=True, **counts)


def _counts(growth: CorpusGrowth, before: dict[str, Any]) -> dict[str, Any]:
    plain = msgspec.to_builtins(growth)
    for key in ("name", "root", "complete", "resumed"):
        del plain[key]
    rows = ("rows", "rows_offered", "rows_stored")
    counted = {key: before[key] + growth.rows_added for key in rows if key in before}
    return {**before, **counted, "databases": growth.databases, "amplified": plain}


def _compare(before: dict[str, Any], now: dict[str, Any], root: Path) -> None:
    differing = [
        f"{key} ({before.get(key)!r} then, {value!r} now)"
        for key, value in now.items()
        if before.get(key) != value
    ]
    if differing:
        raise ConfigurationError(
            f"{root} was begun under another configuration: {'; '.join(differing)}; "
            "choose another --out, or remove that folder"
        )
