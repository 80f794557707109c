"""A corpus's databases cut into shards, each database with its questions and rejects."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from envbuild.engine.shards import shard_of
from envbuild.io.parquet import iter_records, open_parquet
from envbuild.preflight.check_database import CheckShard
from envbuild.preflight.measure import CountedDatabase, MeasuredCorpus
from envbuild.preflight.subjects import DatabaseInput
from envbuild.records.corpus import Question, Reject
from envbuild.records.execution import Limits

DATABASES_A_SHARD, QUESTIONS_A_SHARD = 64, 400
QUESTIONS_HELD = 250_000
"""Questions in memory at once, about; more of them are read in several passes over the file."""


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
    asked = (
        open_parquet(folder.root / "questions.parquet").metadata.num_rows
        if folder.catalogued
        else 0
    )
    passes = max(1, -(-asked // QUESTIONS_HELD))
    turn = {d.row.db_id: shard_of(d.row.db_id, passes) for d in measured.databases}
    for number in range(passes):
        by_database: dict[str, list[Question]] = defaultdict(list)
        for question in folder.iter_questions():
            if turn.get(question.db_id) == number:
                by_database[question.db_id].append(question)
        for database in measured.databases:
            if turn[database.row.db_id] == number:
                yield database, by_database.pop(database.row.db_id, [])


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
        if database.path.is_file() and database.path.stat().st_size == database.row.bytes
    }
    return (catalogued & unchanged) - bad
