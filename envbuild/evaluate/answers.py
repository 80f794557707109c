"""Other people's predictions files, matched to questions by id, never silently by position.

Forms read: BIRD's `{"0": "SQL\\t----- bird -----\\tdb_id", …}` whose keys are positions in the
official files and question ids in forks; Spider's one SQL a line (a blank line is no prediction);
JSON lines with `question_id` or `id` and `predicted_sql`, `prediction`, `pred` or `sql`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import SourceError, UsageError
from envbuild.io.json_stream import decode_json
from envbuild.records.corpus import Question, Reject

BIRD_SEPARATOR = "\t----- bird -----\t"
KEYS = ("auto", "id", "position")
_SQL_NAMES = ("predicted_sql", "prediction", "pred_sql", "pred", "sql", "SQL")
_ID_NAMES = ("question_id", "id", "instance_id")
_NO_ID = "(no id)"
"""The key of an entry whose id is null or NaN: no question is called so."""


class Predictions(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted SQL by question id, and how the file was read."""

    sql: dict[str, str]
    """question_id -> SQL; questions without a prediction are absent."""
    said: str
    """One sentence: the form, and whether keys were ids or positions."""
    unknown: tuple[str, ...] = ()
    """Keys of the file that match no question."""


def read_predictions(
    path: Path, questions: Sequence[Question], *, keys: str = "auto"
) -> Predictions:
    """The predictions of a file for these questions (in the benchmark's own order).

    `keys` settles a BIRD file whose keys fit both ways. Raises SourceError for a file of no known
    form or that cannot belong to these questions, UsageError for an unknown `keys`.
    """
    if keys not in KEYS:
        raise UsageError(f"--keys takes {', '.join(KEYS)}; got {keys!r}")
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SourceError(f"no predictions file {path}") from None
    except UnicodeDecodeError as e:
        raise SourceError(f"{path} is not UTF-8 text: {e}") from None
    first = text.lstrip()[:1]
    if first == "[":
        return _match_records(_json_array(text), questions, form="JSON array")
    if first != "{":
        return _match_lines(text, questions)
    if (whole := _json_object(text)) is not None:
        return _match_bird(whole, questions, keys=keys)
    return _match_records(_json_lines(text), questions, form="JSON lines")


def questions_in_place(offered: Iterable[Question | Reject]) -> list[Question]:
    """Every record of a benchmark at its own position, for predictions that are keyed by it.

    A record that is no question (its gold is missing, say) stands there without gold and text.
    """
    return [
        Question(question_id=one.question_id, db_id=one.db_id, question="", gold_sql="")
        if isinstance(one, Reject)
        else one
        for one in offered
    ]


def quote_some(ids: Sequence[str]) -> str:
    """The first ids in quotes, and how many more there are."""
    return ", ".join(map(repr, ids[:3])) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


def _json_object(text: str) -> dict[str, Any] | None:
    """The whole text as one `{key: SQL}` object; None where it is a line of JSON lines."""
    try:
        whole = msgspec.convert(decode_json(text), dict[str, Any])
    except msgspec.MsgspecError:
        return None
    return None if set(_ID_NAMES) & set(whole) else whole


def _json_array(text: str) -> Sequence[object]:
    try:
        return msgspec.convert(decode_json(text), list[object])
    except msgspec.MsgspecError as e:
        raise SourceError(f"not a JSON array of predictions: {e}") from None


def _json_lines(text: str) -> list[object]:
    records: list[object] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            if line.strip():
                records.append(msgspec.convert(decode_json(line), dict[str, object]))
        except msgspec.MsgspecError as e:
            raise SourceError(f"line {number} is not a JSON object: {e}") from None
    return records


def _match_bird(
    whole: Mapping[str, Any], questions: Sequence[Question], *, keys: str
) -> Predictions:
    by_position = {str(i): q for i, q in enumerate(questions)}
    by_id = {q.question_id: q for q in questions}
    # what is no text (null, NaN, the number that BIRD's own script writes) is no prediction
    split = {key: _split_bird(sql if isinstance(sql, str) else "") for key, sql in whole.items()}
    if keys == "auto":
        keys = _tell_keys({key: db_id for key, (_, db_id) in split.items()}, by_position, by_id)
    index = by_id if keys == "id" else by_position
    found, unknown = {}, []
    for key, (sql, db_id) in split.items():
        question = index.get(key)
        if question is None:
            unknown.append(key)
        elif db_id and question.db_id and db_id != question.db_id:
            raise SourceError(
                f"prediction {key!r} is for database {db_id!r} but the question of that {keys} is "
                f"over {question.db_id!r}: another release or split of the benchmark?"
            )
        elif sql.strip():
            found[question.question_id] = sql
    return Predictions(sql=found, said=f"BIRD form, keys are {keys}s", unknown=tuple(unknown))


def _tell_keys(
    databases: Mapping[str, str],
    by_position: Mapping[str, Question],
    by_id: Mapping[str, Question],
) -> str:
    """`id` or `position`: the reading under which more keys find a question over their database."""
    if all(key == q.question_id for key, q in by_position.items()):
        return "id"  # the two readings are the same
    ids, positions = (
        sum(key in index and db_id in ("", index[key].db_id) for key, db_id in databases.items())
        for index in (by_id, by_position)
    )
    if not ids and not positions:
        raise SourceError(
            "no key of this file is an id or a position of these questions: the file has "
            f"{quote_some(list(databases))}, the questions have {quote_some(list(by_id))}"
        )
    if ids == positions:
        raise SourceError(
            "these keys fit equally well as question ids and as positions: "
            "say which with --keys id or --keys position"
        )
    return "id" if ids > positions else "position"


def _split_bird(value: str) -> tuple[str, str]:
    sql, separator, db_id = value.rpartition(BIRD_SEPARATOR)
    return (sql, db_id.strip()) if separator else (value, "")


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    sql: str
    db_id: str
    text: str
    """The question, with single blanks."""


def _match_records(
    records: Sequence[object], questions: Sequence[Question], *, form: str
) -> Predictions:
    """By id; where the ids belong to another subset of the benchmark, by database and text."""
    entries = [_entry(record, form=form) for record in records]
    by_id = {q.question_id: q for q in questions}
    misfit = next(
        (e for e in entries if e.key in by_id and not _same_question(e, by_id[e.key])), None
    )
    if misfit is not None and not all(e.db_id and e.text for e in entries):
        raise SourceError(
            f"{form}: {misfit.key!r} is a question over {by_id[misfit.key].db_id!r} here, but the "
            f"prediction is for {misfit.db_id!r}: another release or subset of the benchmark?"
        )
    keys = [entry.key for entry in entries]
    twice = next((k for k, times in Counter(keys).items() if times > 1 and k != _NO_ID), None)
    if twice is not None:
        raise SourceError(f"{form}: question {twice!r} is predicted twice")
    waiting: dict[tuple[str, str], list[Question]] = {}
    for question in reversed(questions):  # equal texts are taken in their order
        waiting.setdefault((question.db_id, _plain(question.question)), []).append(question)
    found: dict[str, str] = {}
    unknown = []
    for entry in entries:
        if misfit is None:
            matched = by_id.get(entry.key)
        else:
            same = waiting.get((entry.db_id, entry.text))
            matched = same.pop() if same else None
        if matched is None:
            unknown.append(entry.key)
        elif entry.sql.strip():
            found[matched.question_id] = entry.sql
    how = "matched by database and question text" if misfit else "keyed by question id"
    return Predictions(sql=found, said=f"{form}, {how}", unknown=tuple(unknown))


def _entry(record: object, *, form: str) -> _Entry:
    if not isinstance(record, dict):
        raise SourceError(f"{form}: every entry must be an object with an id and SQL")
    ids = [record[name] for name in _ID_NAMES if name in record]
    sqls = [record[name] for name in _SQL_NAMES if name in record]
    if not ids or not sqls:
        raise SourceError(
            f"{form}: an entry needs one of {', '.join(_ID_NAMES)} and one of "
            f"{', '.join(_SQL_NAMES)}; this one has {', '.join(map(str, record))}"
        )
    return _Entry(
        key=next((str(one) for one in ids if one is not None), _NO_ID),
        sql=sqls[0] if isinstance(sqls[0], str) else "",
        db_id=str(record.get("db_id") or ""),
        text=_plain(str(record.get("question") or "")),
    )


def _same_question(entry: _Entry, question: Question) -> bool:
    """False where the entry names another database, or another text, than the question does."""
    pairs = ((entry.db_id, question.db_id), (entry.text, _plain(question.question)))
    return all(not (told and asked) or told == asked for told, asked in pairs)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _match_lines(text: str, questions: Sequence[Question]) -> Predictions:
    lines = text.split("\n")
    if lines and not lines[-1].strip():
        lines.pop()
    if len(lines) != len(questions):
        raise SourceError(
            f"{len(lines)} lines for {len(questions)} questions: one SQL a line is matched by "
            "position and must cover every question (leave a blank line where there is none)"
        )
    found = {}
    for question, line in zip(questions, lines, strict=True):
        sql = line.rstrip("\r")
        head, tab, tail = sql.rpartition("\t")
        if tab and tail.strip() == question.db_id:  # Spider's gold files append the db_id
            sql = head
        if sql.strip():
            found[question.question_id] = sql
    return Predictions(sql=found, said="one SQL a line, by position")
