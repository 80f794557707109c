"""A corpus's databases cut into shards, each database with its questions and rejects."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from envbuild.io.parquet import iter_records
from envbuild.io.sorting import iter_grouped
from envbuild.preflight.check_database import CheckShard
from envbuild.preflight.measure import CountedDatabase, MeasuredCorpus
from envbuild.preflight.subjects import DatabaseInput
from envbuild.records.corpus import Question, Reject
from envbuild.records.execution import Limits
from envbuild.sql.connect import has_log

DATABASES_A_SHARD, QUESTIONS_A_SHARD = 64, 400


class TableText(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a row of tables.parquet that says whether its text decodes."""

    db_id: str
    undecodable_cells: int = 0


def iter_shards(
    measured: MeasuredCorpus, rejects: Iterable[Reject], limits: Limits
) -> Iterator[CheckShard]:
    """The corpus's databases, each with its questions and rejects, a few at a time."""
    decodable = _decodable(measured)
    refused_in: dict[str, list[Reject]] = defaultdict(list)
    for reject in rejects:
        refused_in[reject.db_id].append(reject)
    batch: list[DatabaseInput] = []
    questions = 0
    for database, asked in _with_questions(measured):
        batch.append(
            DatabaseInput(
                corpus=measured.folder.name,
                row=database.row,
                path=database.path,
                row_counts=database.counts,
                unreadable=database.unreadable,
                decodable=database.row.db_id in decodable,
                rejects=tuple(refused_in[database.row.db_id]),
                questions=tuple(asked),
            )
        )
        questions += len(asked)
        if len(batch) >= DATABASES_A_SHARD or questions >= QUESTIONS_A_SHARD:
            yield CheckShard(databases=tuple(batch), limits=limits)
            batch, questions = [], 0
    if batch:
        yield CheckShard(databases=tuple(batch), limits=limits)


def _with_questions(
    measured: MeasuredCorpus,
) -> Iterator[tuple[CountedDatabase, list[Question]]]:
    """Every database with its questions, whatever order the questions stand in."""
    folder = measured.folder
    if not folder.catalogued:
        yield from ((database, []) for database in measured.databases)
        return
    by_id = {database.row.db_id: database for database in measured.databases}
    file = folder.root / "questions.parquet"
    for db_id, asked in iter_grouped(file, Question, by="db_id", keys=by_id):
        yield by_id[db_id], asked


def _decodable(measured: MeasuredCorpus) -> set[str]:
    """Databases whose very bytes materialize has looked through and found all text decodable."""
    if not measured.folder.catalogued:
        return set()
    catalogued: set[str] = set()
    bad: set[str] = set()
    for table in iter_records(measured.folder.root / "tables.parquet", TableText):
        (bad if table.undecodable_cells else catalogued).add(table.db_id)
    unchanged = {
        database.row.db_id
        for database in measured.databases
        if database.path.is_file()
        and database.path.stat().st_size == database.row.bytes
        and not has_log(str(database.path.absolute()))
    }
    return (catalogued & unchanged) - bad
