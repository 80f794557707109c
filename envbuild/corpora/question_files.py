"""Question files of the folder corpora: JSON records under the names each benchmark uses."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.phrasings import questions_of_row
from envbuild.io.json_stream import iter_json
from envbuild.records.corpus import Question, Reject


class QuestionFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of questions and the split its records belong to."""

    path: Path
    split: str
    prefix: str = ""
    """Before each question id, where ids of several files would clash."""


class SourceRecord(msgspec.Struct):
    """The fields that Spider, BIRD, SynSQL and their kin use; all others are skipped unread."""

    db_id: Any = None
    question_id: Any = None
    question: Any = None
    query: Any = None
    sql: Any = None
    SQL: Any = None
    evidence: Any = None
    external_knowledge: Any = None
    difficulty: Any = None
    hardness: Any = None
    sql_complexity: Any = None
    question_style: Any = None
    gold_tables: Any = None

    @property
    def gold_sql(self) -> Any:
        """Spider's `query` comes beside a parsed `sql` object, so only text counts."""
        return next((q for q in (self.SQL, self.query, self.sql) if isinstance(q, str)), None)


def question_files(paths: Iterable[Path], split_of: dict[Path, str]) -> list[QuestionFile]:
    """The files with their splits; ids get a prefix only where there are several files."""
    ordered = list(paths)
    several = len(ordered) > 1
    return [
        QuestionFile(path=p, split=split_of[p], prefix=f"{p.stem}-" if several else "")
        for p in ordered
    ]


def iter_questions(files: Iterable[QuestionFile]) -> Iterator[Question | Reject]:
    """The questions in file order; without an id of its own, a question's is its position."""
    for file in files:
        for position, record in enumerate(iter_json(file.path, SourceRecord)):
            own = record.question_id
            row = {
                "question_id": f"{file.prefix}{position if own is None else own}",
                "db_id": record.db_id,
                "split": file.split,
                "sql": record.gold_sql,
                "question": record.question,
                "style": record.question_style,
                "evidence": record.evidence or record.external_knowledge,
                "difficulty": record.difficulty or record.sql_complexity or record.hardness,
                "relevant_tables": _bare_names(record.gold_tables),
                "stored_result": None,
            }
            yield from questions_of_row(row, position)


def _bare_names(names: Any) -> Any:
    """Table names without the `db#sep#` that BEAVER puts before them."""
    if not isinstance(names, list):
        return None
    return [str(name).rpartition("#sep#")[2] for name in names]
