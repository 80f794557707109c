"""One published row with its SQL as questions: one a phrasing, placeholders kept."""

from collections.abc import Iterator
from typing import Any

import msgspec

from envbuild.io.json_stream import decode_json
from envbuild.records.corpus import Question, Reject

_LEGACY_STYLES = {"verbose (original)": "verbose"}


def questions_of_row(row: dict[str, Any], position: int) -> Iterator[Question | Reject]:
    """The questions of a row, its phrasings being text, an object of them, or JSON text of one.

    A phrasing that is null was never offered; a row without any, or without SQL, is a Reject
    (`no_phrasing`, `no_gold_sql`). Placeholders like `...` stay: preflight reports them.
    """
    question_id, db_id = _text(row["question_id"]), _text(row["db_id"])

    def rejected(reason: str) -> Reject:
        return Reject(
            db_id=db_id, question_id=question_id, kind="question", index=position, reason=reason
        )

    sql = _text(row["sql"])
    if not sql.strip():
        yield rejected("no_gold_sql")
        return
    phrasings = _phrasings(row["question"])
    if not phrasings:
        yield rejected("no_phrasing")
    result = row["stored_result"]
    for style, text in phrasings.items():
        yield Question(
            question_id=question_id,
            db_id=db_id,
            split=_text(row["split"]),
            question=text,
            style=style or _text(row["style"]),
            evidence=_text(row["evidence"]),
            gold_sql=sql,
            difficulty=_text(row["difficulty"]),
            stored_result=None if result is None else _text(result),
            relevant_tables=_names(row["relevant_tables"]),
        )


def _phrasings(value: Any) -> dict[str, str]:
    """Style -> text; the style is empty where the row has one phrasing only."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = decode_json(value)
        except msgspec.DecodeError:
            return {"": value}
    if isinstance(value, dict):
        return {
            _LEGACY_STYLES.get(str(style), _text(style)): _text(text)
            for style, text in value.items()
            if isinstance(text, str)
        }
    return {"": value} if isinstance(value, str) else {}


def _names(value: Any) -> tuple[str, ...]:
    """A list of table names, or JSON text of one; what is neither gives none."""
    if isinstance(value, str) and value:
        try:
            value = decode_json(value)
        except msgspec.DecodeError:
            return ()
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
