"""The catalogue of an amplified corpus from its units' outcomes."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.records.amplified import AddedRow, CorpusGrowth, GoldState, TableGrowth
from envbuild.records.corpus import DatabaseRow, Question, Reject, TableRow
from envbuild.signal.amplify.units import Outcome, read_part


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
