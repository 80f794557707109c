"""A benchmark's questions with a system's predictions beside their golds."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from envbuild.corpora.source import Source
from envbuild.errors import SourceError, UsageError
from envbuild.evaluate.answers import questions_in_place, read_predictions
from envbuild.io.json_stream import decode_json
from envbuild.records.corpus import DatabaseRecord
from false_rewards.records import Answer


class _Line(msgspec.Struct):
    """A line that carries its own gold: no id has to be matched."""

    db_id: str
    gold_sql: str
    predicted_sql: str | None
    """None, as null or NaN, where there is no prediction."""


def database_paths(source: Source) -> dict[str, Path]:
    """db_id -> SQLite file of a source with ready databases.

    Raises SourceError where it has none.
    """
    paths = {
        one.db_id: Path(one.sqlite_file)
        for one in source.databases()
        if isinstance(one, DatabaseRecord) and one.sqlite_file
    }
    if not paths:
        raise SourceError(f"{source.name} holds no SQLite files: give a Spider or BIRD folder")
    return paths


def read_all_answers(
    sources: Sequence[Source], predictions: Sequence[Path]
) -> list[tuple[dict[str, Path], list[Answer]]]:
    """Of each source: its databases, and the answers of every file that is for it.

    Each file's answers go under its name as the system; a source that no file is for has its
    questions alone. Raises UsageError where two files have one name, since they would count as one
    system, and what `read_answers` raises for a file that is for no source.
    """
    systems = [path.stem for path in predictions]
    if len(set(systems)) < len(systems):
        raise UsageError(f"predictions files need different names, got {', '.join(systems)}")
    paths = [database_paths(source) for source in sources]
    found: list[list[Answer]] = [[] for _ in sources]
    for path, system in zip(predictions, systems, strict=True):
        refusals = []
        for source, databases, answers in zip(sources, paths, found, strict=True):
            try:
                own = read_answers(source, databases, path)
            except SourceError as e:
                refusals.append(e)
                continue
            if any(answer.predicted_sql is not None for answer in own):
                answers += [msgspec.structs.replace(answer, system=system) for answer in own]
        if len(refusals) == len(sources):
            raise SourceError(f"{path}: {refusals[0]}") from refusals[0]
    return [
        (databases, answers or read_answers(source, databases, None))
        for source, databases, answers in zip(sources, paths, found, strict=True)
    ]


def read_answers(
    source: Source, databases: Iterable[str], predictions: Path | None
) -> list[Answer]:
    """Every question over these databases, with its prediction where the file has one.

    Lines that carry `db_id`, `gold_sql` and `predicted_sql` are taken as they are; any other form
    is matched by question id. Predictions for other databases are left out.
    """
    known = set(databases)
    own = _own_golds(predictions) if predictions else []
    if any(line.db_id in known for line in own):
        return [
            Answer(
                question_id=f"{number:06}",
                db_id=line.db_id,
                gold_sql=line.gold_sql,
                predicted_sql=line.predicted_sql,
            )
            for number, line in enumerate(own)
            if line.db_id in known
        ]
    offered = questions_in_place(source.questions())
    questions = [q for q in offered if q.db_id in known and q.gold_sql]
    fits = predictions is not None and not own
    sql = read_predictions(predictions, offered).sql if fits and predictions else {}
    return [
        Answer(
            question_id=f"{number:06}",
            db_id=question.db_id,
            gold_sql=question.gold_sql,
            predicted_sql=sql.get(question.question_id),
        )
        for number, question in enumerate(questions)
    ]


def _own_golds(path: Path) -> list[_Line]:
    """The file's lines, where each carries its gold; none where the file is of another form."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as e:
        raise SourceError(f"cannot read {path}: {e.strerror}") from None
    try:
        return [msgspec.convert(decode_json(line), _Line) for line in lines if line.strip()]
    except msgspec.MsgspecError:
        return []
