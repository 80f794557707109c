"""A corpus's databases cut into shards, each database with its questions, tables and rejects."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from envbuild.preflight.check_database import CheckShard
from envbuild.preflight.measure import CountedDatabase, MeasuredCorpus
from envbuild.preflight.subjects import DatabaseInput
from envbuild.records.corpus import Question, Reject, TableRow
from envbuild.records.execution import Limits

DATABASES_A_SHARD, QUESTIONS_A_SHARD = 64, 400


def iter_shards(
    measured: MeasuredCorpus, rejects: Iterable[Reject], limits: Limits
) -> Iterator[CheckShard]:
    """The corpus's databases, each with its questions, tables and rejects, a few at a time."""
    tables: dict[str, list[TableRow]] = defaultdict(list)
    for table in measured.folder.tables():
        tables[table.db_id].append(table)
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
                tables=tuple(tables[database.row.db_id]),
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
    by_database: dict[str, list[Question]] = defaultdict(list)
    for question in measured.folder.iter_questions():
        by_database[question.db_id].append(question)
    for database in measured.databases:
        yield database, by_database.pop(database.row.db_id, [])
