"""Findings as checks write them, before the table of codes gives them a severity."""

import msgspec

from envbuild.records.preflight import Finding, Severity

EXAMPLE_CHARACTERS = 300
"""An example longer than this is cut, and says so with an ellipsis."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A finding whose severity the table of codes decides."""

    corpus: str
    code: str
    message: str
    db_id: str = ""
    table: str = ""
    question_id: str = ""
    count: int = 1
    example: str = ""
    severity: Severity | None = None
    """Instead of the code's own."""
    evaluation: bool = False
    """The question is asked in an evaluation split only: no reward is paid for it."""

    def as_note(self) -> "Draft":
        """The same, but only a note."""
        return msgspec.structs.replace(self, severity=Severity.NOTE)


def as_finding(draft: Draft, severity: Severity) -> Finding:
    """The draft with its severity, its example cut to a readable length."""
    example = " ".join(draft.example.split())
    if len(example) > EXAMPLE_CHARACTERS:
        example = example[: EXAMPLE_CHARACTERS - 1] + "…"
    return Finding(
        corpus=draft.corpus,
        code=draft.code,
        severity=severity,
        db_id=draft.db_id,
        table=draft.table,
        question_id=draft.question_id,
        count=draft.count,
        message=draft.message,
        example=example,
    )
