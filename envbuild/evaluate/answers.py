"""Other people's predictions files, matched to questions by id, never silently by position.

Forms read: BIRD's `{"0": "SQL\\t----- bird -----\\tdb_id", …}` whose keys are positions in the
official files and question ids in forks; Spider's one SQL a line (a blank line is no prediction);
JSON lines or a JSON array of entries with `question_id` or `id` and `predicted_sql`, `prediction`,
`pred` or `sql`. An entry that names its database and question is matched by them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import SourceError
from envbuild.io.json_stream import decode_json, iter_json
from envbuild.records.corpus import Question, Reject

BIRD_SEPARATOR = "\t----- bird -----\t"
_SQL_NAMES = ("predicted_sql", "prediction", "pred_sql", "pred", "sql", "SQL")
_ID_NAMES = ("question_id", "id", "instance_id")


class Predictions(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted SQL by question id, and how the file was read."""

    sql: dict[str, str]
    """question_id -> SQL; questions without a prediction are absent."""
    said: str
    """One sentence: the form, and what the questions were found by."""
    unknown: tuple[str, ...] = ()
    """Keys of the file that match no question."""


def read_predictions(path: Path, questions: Sequence[Question]) -> Predictions:
    """The predictions of a file for these questions (in the benchmark's own order).

    Raises SourceError for a file of no known form or that cannot belong to these questions.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SourceError(f"no predictions file {path}") from None
    except UnicodeDecodeError as e:
        raise SourceError(f"{path} is not UTF-8 text: {e}") from None
    if not text.lstrip().startswith(("{", "[")):
        return _match_lines(text, questions)
    try:
        whole = decode_json(text)
    except msgspec.MsgspecError:
        whole = None  # JSON lines, as a rule
    if isinstance(whole, dict) and whole.keys().isdisjoint(_ID_NAMES):
        return _match_bird(whole, questions)
    return _match_records(iter_json(path, dict[str, Any]), questions)


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


def _match_bird(whole: Mapping[str, Any], questions: Sequence[Question]) -> Predictions:
    """By the keys as ids or as positions, whichever finds more questions over their database."""
    # what is no text (null, NaN, the number that BIRD's own script writes) is no prediction
    split = {key: _split_bird(sql if isinstance(sql, str) else "") for key, sql in whole.items()}
    by_id = {q.question_id: q for q in questions}
    by_place = {str(place): q for place, q in enumerate(questions)}
    ids, places = (
        sum(key in index and db_id in ("", index[key].db_id) for key, (_, db_id) in split.items())
        for index in (by_id, by_place)
    )
    if not ids and not places:
        raise SourceError(
            "no key of this file is an id or a position of these questions: the file has "
            f"{quote_some(list(split))}, the questions have {quote_some(list(by_id))}"
        )
    if ids == places and any(by_id.get(key) is not by_place.get(key) for key in split):
        raise SourceError(
            "these keys fit equally well as question ids and as positions: write the predictions "
            "as JSON lines with question_id and sql"
        )
    index, how = (by_id, "id") if ids >= places else (by_place, "position")
    found, unknown = {}, []
    for key, (sql, db_id) in split.items():
        question = index.get(key)
        if question is None:
            unknown.append(key)
        elif db_id and question.db_id and db_id != question.db_id:
            raise SourceError(
                f"prediction {key!r} is for database {db_id!r} but the question of that {how} is "
                f"over {question.db_id!r}: another release or split of the benchmark?"
            )
        elif sql.strip():
            found[question.question_id] = sql
    return Predictions(sql=found, said=f"BIRD form, keys are {how}s", unknown=tuple(unknown))


def _split_bird(value: str) -> tuple[str, str]:
    sql, separator, db_id = value.rpartition(BIRD_SEPARATOR)
    return (sql, db_id.strip()) if separator else (value, "")


def _match_records(
    records: Iterable[Mapping[str, Any]], questions: Sequence[Question]
) -> Predictions:
    """By database and question text where an entry has both, since ids differ between subsets."""
    by_id = {q.question_id: q for q in questions}
    by_text: dict[tuple[str, str], list[Question]] = defaultdict(list)
    for question in questions:
        by_text[question.db_id, _plain(question.question)].append(question)
    found: dict[str, str] = {}
    matched: set[str] = set()
    unknown = []
    how = "keyed by question id"
    for record in records:
        ids = [record[name] for name in _ID_NAMES if name in record]
        sqls = [record[name] for name in _SQL_NAMES if name in record]
        if not ids or not sqls:
            raise SourceError(
                f"an entry needs one of {', '.join(_ID_NAMES)} and one of "
                f"{', '.join(_SQL_NAMES)}; this one has {', '.join(record)}"
            )
        key = next((str(one) for one in ids if one is not None), "(no id)")
        db_id, text = str(record.get("db_id") or ""), _plain(str(record.get("question") or ""))
        if db_id and text:
            how = "matched by database and question text"
            same = by_text[db_id, text]  # equal texts are taken by id, else in their order
            same.sort(key=lambda q: q.question_id != key)
            asked = same.pop(0) if same else None
        else:
            asked = by_id.get(key)
        if asked is None:
            unknown.append(key)
            continue
        if asked.question_id in matched:
            raise SourceError(f"question {key!r} is predicted twice")
        if db_id and asked.db_id and db_id != asked.db_id:
            raise SourceError(
                f"{key!r} is a question over {asked.db_id!r} here, but the prediction is for "
                f"{db_id!r}: another release or subset of the benchmark?"
            )
        matched.add(asked.question_id)
        if isinstance(sqls[0], str) and sqls[0].strip():
            found[asked.question_id] = sqls[0]
    return Predictions(sql=found, said=f"JSON entries, {how}", unknown=tuple(unknown))


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
