"""Checks of a database's questions as texts: placeholders, and questions asked twice."""

import re
from collections import defaultdict
from collections.abc import Iterator

from envbuild.corpora.wording import is_placeholder
from envbuild.preflight.drafts import Draft
from envbuild.preflight.subjects import DatabaseSubject
from envbuild.records.corpus import Question

_SPACE = re.compile(r"\s+")


def placeholder_phrasing(database: DatabaseSubject) -> Iterator[Draft]:
    """Questions whose text asks nothing: `...`, `<string>`, `**Moderate**`, an empty text."""
    found: dict[str, list[Question]] = defaultdict(list)
    for question in database.given.questions:
        if is_placeholder(question.question):
            found[question.question_id].append(question)
    for question_id, phrasings in sorted(found.items()):
        styles = ", ".join(sorted({q.style for q in phrasings if q.style}))
        yield _about(
            database,
            "placeholder_phrasing",
            f"the question is a placeholder{f' ({styles})' if styles else ''}",
            question_id,
            count=len(phrasings),
            example=phrasings[0].question or "(empty)",
        )


def duplicate_questions(database: DatabaseSubject) -> Iterator[Draft]:
    """The same text asked twice of one database; with two different golds one of them is wrong."""
    asked: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for question in database.given.questions:
        if not is_placeholder(question.question):
            key = (_folded(question.question), _folded(question.evidence))
            asked[key].setdefault(question.question_id, question.gold_sql)
    for (text, _), golds in sorted(asked.items()):
        if len(golds) < 2:
            continue
        first = next(iter(golds))
        several = len({_folded(sql) for sql in golds.values()}) > 1
        others = ", ".join(list(golds)[1:6])
        message = f"asked again as {others}, " + (
            "with other gold SQL" if several else "with the same gold SQL"
        )
        draft = _about(
            database, "duplicate_questions", message, first, count=len(golds) - 1, example=text
        )
        yield draft if several else draft.as_note()


def _folded(text: str) -> str:
    return _SPACE.sub(" ", text).strip().rstrip(" ?.!;").casefold()


def _about(
    database: DatabaseSubject,
    code: str,
    message: str,
    question_id: str,
    *,
    count: int,
    example: str,
) -> Draft:
    return Draft(
        corpus=database.given.corpus,
        db_id=database.given.row.db_id,
        code=code,
        message=message,
        question_id=question_id,
        count=count,
        example=example,
    )
