"""A corpus amplified into a new corpus folder: databases in parallel, the index last.

The originals are only read. A run that was killed is run again: finished units are kept. A run
under another configuration is refused.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from envbuild import __version__
from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.engine.fanout import chunked, shard_of
from envbuild.errors import CorpusError, UsageError
from envbuild.generate.database import amplify_database
from envbuild.io.files import sha256_file, write_bytes
from envbuild.io.sorting import iter_grouped
from envbuild.materialize.build import TableCounts, copy_descriptions, database_row, table_rows
from envbuild.materialize.corpus import (
    build_folder,
    iter_outcomes,
    own_parts,
    write_part,
    write_rows,
)
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
    """Its tables as the source's catalogue has them."""
    source: str
    """The SQLite file, never written."""
    file: str
    """The new SQLite file."""
    golds: tuple[Gold, ...]


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """The databases one worker amplifies before it reports."""

    part: str
    """File that says the unit is done, with its outcomes."""
    entries: tuple[Entry, ...]
    settings: AmplifySettings


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One database of the new corpus."""

    database: DatabaseRow
    tables: tuple[TableRow, ...]
    growth: Growth
    reject: Reject | None = None
    """Why no row was added, where none could be."""


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
    configuration = {  # everything that decides the bytes: the source's index stands for its files
        "name": folder.name,
        "amplified": {
            "settings": msgspec.to_builtins(settings),
            "limit": limit,
            "corpus_sha256": sha256_file(folder.root / INDEX_FILE),
        },
        "sqlite": SQLITE_VERSION,
        "envbuild": __version__,
    }
    resumed = (root / INDEX_FILE).is_file()
    index = build_folder(
        root,
        configuration,
        units=lambda: _units(folder, root, settings, limit=limit, shard=shard),
        build=amplify_unit,
        on_crash=copy_unit,
        finish=lambda: {**folder.index, **configuration, "counts": _assemble(root, folder)},
        workers=workers,
        engine=engine,
        shard=shard,
        on_built=on_done,
    )
    if index is None:
        return CorpusGrowth(name=folder.name, root=str(root), complete=False)
    counts = index["counts"]["amplified"]
    return CorpusGrowth(name=folder.name, root=str(root), complete=True, resumed=resumed, **counts)


def parse_rows(text: str) -> tuple[int, int]:
    """`LOW:HIGH` as two numbers, 1 <= LOW <= HIGH. Raises UsageError otherwise."""
    low, _, high = text.partition(":")
    if low.isdigit() and high.isdigit() and 1 <= int(low) <= int(high):
        return int(low), int(high)
    raise UsageError(f"--rows takes LOW:HIGH with 1 <= LOW <= HIGH, such as 30:70; got {text!r}")


def _units(
    folder: CorpusFolder,
    root: Path,
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
                database=row,
                tables=tuple(tables.get(row.db_id, ())),
                source=str(folder.database_path(row.db_id)),
                file=str(root / row.sqlite_file),
                golds=next(golds),
            )
            for row in rows
        )
        part = own_parts(root, shard) / f"{number:06}.msgpack"
        yield Unit(part=str(part), entries=entries, settings=settings)


def _golds(folder: CorpusFolder, db_ids: Sequence[str]) -> Iterator[tuple[Gold, ...]]:
    """The distinct golds of each database in turn; the first question of a gold names it."""
    questions = folder.root / "questions.parquet"
    for _, asked in iter_grouped(questions, AskedGold, by="db_id", keys=db_ids):
        golds: dict[str, Gold] = {}
        for question in asked:
            gold = Gold(question_id=question.question_id, sql=question.gold_sql)
            golds.setdefault(question.gold_sql, gold)
        yield tuple(golds.values())


def amplify_unit(unit: Unit) -> int:
    """Amplifies the unit's databases and writes its part file; how many there were."""
    return _finish(unit, [_amplify(entry, unit.settings) for entry in unit.entries])


def copy_unit(unit: Unit, reason: str) -> int:
    """The same for a unit whose worker died: its databases are copied as they are."""
    return _finish(unit, [_copied(entry, "worker_died", reason) for entry in unit.entries])


def _finish(unit: Unit, outcomes: list[Outcome]) -> int:
    for entry in unit.entries:
        copy_descriptions(Path(entry.source).parent, Path(entry.file).parent)
    return write_part(unit.part, outcomes)


def _amplify(entry: Entry, settings: AmplifySettings) -> Outcome:
    image, db_id = read_image(Path(entry.source)), entry.database.db_id
    try:
        grown = amplify_database(image, entry.golds, settings=settings, db_id=db_id)
    except (SQLiteError, CorpusError) as e:
        return _copied(entry, "not_amplified", str(e))
    write_bytes(Path(entry.file), grown.image)
    return _catalogued(entry, grown.growth)


def _copied(entry: Entry, reason: str, detail: str) -> Outcome:
    image, db_id = read_image(Path(entry.source)), entry.database.db_id
    write_bytes(Path(entry.file), image)
    return Outcome(
        database=_stored(entry.database, Path(entry.file)),
        tables=entry.tables,
        growth=Growth(tables=(), golds=(), rows=()),
        reject=Reject(db_id=db_id, kind="database", reason=reason, detail=detail),
    )


def _stored(row: DatabaseRow, file: Path) -> DatabaseRow:
    return msgspec.structs.replace(row, sha256=sha256_file(file), bytes=file.stat().st_size)


def _catalogued(entry: Entry, growth: Growth) -> Outcome:
    """The database's rows of the catalogue: what was offered once, and what was added, together."""
    old = entry.database
    known = {table.table: table for table in entry.tables}
    counts = {}
    connection = open_read_only(Path(entry.file))
    try:
        rows = count_table_rows(connection)
        for table in growth.tables:
            before = known[table.table]
            counts[table.table] = TableCounts(
                rows=rows[table.table],
                offered=before.rows_offered + table.rows_added,
                refused=before.rows_refused,
                undecodable=before.undecodable_cells,
            )
        schema = read_schema(connection)
        tables = table_rows(connection, schema.tables, counts, db_id=old.db_id)
    finally:
        connection.close()
    summed = database_row(
        tables,
        db_id=old.db_id,
        split=old.split,
        unknown_rows=old.rows_refused - sum(table.rows_refused for table in entry.tables),
        ddl_statements=old.ddl_statements,
        ddl_refused=old.ddl_refused,
    )
    placed = msgspec.structs.replace(summed, sqlite_file=old.sqlite_file)
    return Outcome(database=_stored(placed, Path(entry.file)), tables=tables, growth=growth)


def _assemble(root: Path, folder: CorpusFolder) -> dict[str, Any]:
    """Writes the Parquet files of the new corpus; the counts that corpus.json keeps.

    Beside the catalogue of CONTRACT 2: `added_rows.parquet`, every added row with its rowid;
    `amplified_tables.parquet` and `amplified_golds.parquet`, each table and gold before and after.
    A stored result describes the rows its corpus was published with, so it is left out.
    """
    place = {row.db_id: number for number, row in enumerate(folder.databases())}

    def outcomes() -> Iterator[Outcome]:
        # a corpus's added rows are read part by part, in the source's order, once a file
        return iter_outcomes(root, Outcome, key=lambda one: place[one.database.db_id])

    write = partial(write_rows, root)
    write("databases", DatabaseRow, (o.database for o in outcomes()))
    write("tables", TableRow, (table for o in outcomes() for table in o.tables))
    write("added_rows", AddedRow, (row for o in outcomes() for row in o.growth.rows))
    write("amplified_tables", TableGrowth, (t for o in outcomes() for t in o.growth.tables))
    write("amplified_golds", GoldState, (gold for o in outcomes() for gold in o.growth.golds))
    taken = {o.database.db_id for o in outcomes()}
    questions = (
        msgspec.structs.replace(question, stored_result=None)
        for question in folder.iter_questions()
        if question.db_id in taken
    )
    write("questions", Question, questions)
    refused = [o.reject for o in outcomes() if o.reject is not None]
    kept = [r for r in folder.rejects() if r.db_id in taken or not r.db_id]
    write("rejects", Reject, [*kept, *refused])
    growth = _growth(root, folder, outcomes())
    own = msgspec.to_builtins(growth)
    for key in ("name", "root", "complete", "resumed"):
        del own[key]
    before = folder.index["counts"]
    rows = {key: before[key] + growth.rows_added for key in ("rows", "rows_offered", "rows_stored")}
    return {**before, **rows, "databases": growth.databases, "amplified": own}


def _growth(root: Path, folder: CorpusFolder, outcomes: Iterable[Outcome]) -> CorpusGrowth:
    before: list[int] = []
    after: list[int] = []
    scores: list[tuple[float, float]] = []
    counts: Counter[str] = Counter()
    known = {row.db_id: row.fk_violations for row in folder.databases()}
    for outcome in outcomes:
        violations = known[outcome.database.db_id]
        counts["databases"] += 1
        counts["not_amplified"] += outcome.reject is not None
        counts["rejected_batches"] += outcome.growth.rejected_batches
        if violations >= 0 and outcome.reject is None:
            counts["orphans_added"] += max(0, outcome.database.fk_violations - violations)
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
    counted: dict[str, Any] = dict(counts)
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
        **counted,
    )
