"""Other people's predictions files, matched to questions by id, never silently by position.

Forms read: BIRD's `{"0": "SQL\\t----- bird -----\\tdb_id", …}` whose keys are positions in the
official files and question ids in forks; Spider's one SQL a line (a blank line is no prediction);
JSON lines with `question_id` or `id` and `predicted_sql`, `prediction`, `pred` or `sql`.
"""

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
    if first == "{" and (whole := _json_object(text)) is not None:
        return _match_bird(whole, questions, keys=keys)
    if first == "{":
        return _match_jsonl(text, questions)
    if first == "[":
        return _match_records(_decode(text), questions, form="JSON array")
    return _match_lines(text, questions)


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
    """The whole text as one `{key: SQL}` object; None where it is a line of JSON lines.

    What is no text (null, NaN, the number that BIRD's own script writes) is no prediction.
    """
    try:
        whole = msgspec.convert(decode_json(text), dict[str, Any])
    except msgspec.MsgspecError:
        return None
    return None if set(_ID_NAMES) & set(whole) else whole


def _match_bird(
    whole: Mapping[str, Any], questions: Sequence[Question], *, keys: str
) -> Predictions:
    by_position = {str(i): q for i, q in enumerate(questions)}
    by_id = {q.question_id: q for q in questions}
    split = {key: _split_bird(sql if isinstance(sql, str) else "") for key, sql in whole.items()}
    if keys == "auto":
        keys = _tell_keys(split, by_position, by_id)
    index = by_id if keys == "id" else by_position
    found, unknown = {}, []
    for key, (sql, db_id) in split.items():
        question = index.get(key)
        if question is None:
            unknown.append(key)
            continue
        if db_id and db_id != (question.db_id or db_id):
            raise SourceError(
                f"prediction {key!r} is for database {db_id!r} but the question of that {keys} is "
                f"over {question.db_id!r}: another release or split of the benchmark?"
            )
        found[question.question_id] = sql
    return Predictions(
        sql={k: v for k, v in found.items() if v.strip()},
        said=f"BIRD form, keys are {keys}s",
        unknown=tuple(unknown),
    )


def _tell_keys(
    split: Mapping[str, tuple[str, str]],
    by_position: Mapping[str, Question],
    by_id: Mapping[str, Question],
) -> str:
    """`id` or `position`: the reading under which more keys find a question over their database."""
    if all(key == q.question_id for key, q in by_position.items()):
        return "id"  # the two readings are the same

    def fits(index: Mapping[str, Question]) -> int:
        return sum(
            key in index and db_id in ("", index[key].db_id) for key, (_, db_id) in split.items()
        )

    ids, positions = fits(by_id), fits(by_position)
    if not ids and not positions:
        raise SourceError(
            "no key of this file is an id or a position of these questions: the file has "
            f"{quote_some(list(split))}, the questions have {quote_some(list(by_id))}"
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


def _match_jsonl(text: str, questions: Sequence[Question]) -> Predictions:
    records = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = msgspec.convert(decode_json(line), dict[str, object])
        except msgspec.MsgspecError as e:
            raise SourceError(f"line {number} is not a JSON object: {e}") from None
        records.append(record)
    return _match_records(records, questions, form="JSON lines")


def _match_records(
    records: Sequence[object], questions: Sequence[Question], *, form: str
) -> Predictions:
    """By id; where the ids belong to another subset of the benchmark, by database and text."""
    entries = [_entry(record, form=form) for record in records]
    by_id = {q.question_id: q for q in questions}
    misfit = next(
        (e for e in entries if e.key in by_id and not _same_question(e, by_id[e.key])), None
    )
    if misfit is not None and not all(e.db_id and e.question for e in entries):
        raise SourceError(
            f"{form}: {misfit.key!r} is a question over {by_id[misfit.key].db_id!r} here, but the "
            f"prediction is for {misfit.db_id!r}: another release or subset of the benchmark?"
        )
    matched = (
        _by_text(entries, questions) if misfit is not None else [by_id.get(e.key) for e in entries]
    )
    found: dict[str, str] = {}
    unknown = []
    seen: set[str] = set()
    for entry, question in zip(entries, matched, strict=True):
        if entry.key in seen and entry.key != _NO_ID:
            raise SourceError(f"{form}: question {entry.key!r} is predicted twice")
        seen.add(entry.key)
        if question is None:
            unknown.append(entry.key)
        elif entry.sql.strip():
            found[question.question_id] = entry.sql
    how = "matched by database and question text" if misfit else "keyed by question id"
    return Predictions(sql=found, said=f"{form}, {how}", unknown=tuple(unknown))


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    sql: str
    db_id: str
    question: str


def _entry(record: object, *, form: str) -> _Entry:
    if not isinstance(record, dict):
        raise SourceError(f"{form}: every entry must be an object with an id and SQL")
    ids = [record[name] for name in _ID_NAMES if name in record]
    key = next((str(one) for one in ids if one is not None), _NO_ID if ids else None)
    name = next((name for name in _SQL_NAMES if name in record), None)
    if key is None or name is None:
        raise SourceError(
            f"{form}: an entry needs one of {', '.join(_ID_NAMES)} and one of "
            f"{', '.join(_SQL_NAMES)}; this one has {', '.join(map(str, record))}"
        )
    return _Entry(
        key=key,
        sql=record[name] if isinstance(record[name], str) else "",
        db_id=str(record.get("db_id") or ""),
        question=str(record.get("question") or ""),
    )


def _same_question(entry: _Entry, question: Question) -> bool:
    """False where the entry names another database, or another text, than the question does."""
    asked, told = question.question.split(), entry.question.split()
    same_database = not (question.db_id and entry.db_id) or question.db_id == entry.db_id
    return same_database and (not (asked and told) or asked == told)


def _by_text(entries: Sequence[_Entry], questions: Sequence[Question]) -> list[Question | None]:
    """Each entry's question by database and text; equal texts are taken in their order."""
    waiting: dict[tuple[str, str], list[Question]] = {}
    for question in reversed(questions):
        key = (question.db_id, " ".join(question.question.split()))
        waiting.setdefault(key, []).append(question)
    return [
        same.pop() if (same := waiting.get((e.db_id, " ".join(e.question.split())))) else None
        for e in entries
    ]


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


def _decode(text: str) -> Sequence[object]:
    try:
        return msgspec.convert(decode_json(text), list[object])
    except msgspec.MsgspecError as e:
        raise SourceError(f"not a JSON array of predictions: {e}") from None
