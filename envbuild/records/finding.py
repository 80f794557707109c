"""One thing preflight found."""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """It ruins a reward; exit 1."""
    WARNING = "warning"
    """Exit 1 under --strict."""
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding about a corpus, database, table or question: a row of findings.parquet."""

    corpus: str
    code: str
    """The name of the check that found it, e.g. `fk_orphans`, `empty_gold`."""
    severity: Severity
    db_id: str = ""
    table: str = ""
    question_id: str = ""
    count: int = 1
    """How many cases this row stands for (orphan rows, refused rows, …)."""
    message: str = ""
    """One sentence, no path."""
    example: str = ""
    """The smallest thing that shows it: a value, a statement, a query."""
