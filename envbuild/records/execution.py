"""What running one piece of SQL came to, and what comparing its result with a gold's did."""

from enum import StrEnum
from typing import Any

import msgspec

Value = None | int | float | str | bytes
"""A cell as SQLite stores it."""
Row = tuple[Value, ...]
Rows = tuple[Row, ...]


class UndecodableText(str):
    """Text that is not valid in its database's encoding: shown with U+FFFD, equal by its bytes.

    So it equals neither text with a U+FFFD of its own nor other bytes that look the same.
    """

    __slots__ = ("encoding", "raw")
    raw: bytes
    encoding: str

    def __new__(cls, raw: bytes, encoding: str) -> "UndecodableText":
        """`encoding`: a codec's name, such as UTF-8."""
        text = super().__new__(cls, raw.decode(encoding, errors="replace"))
        text.raw, text.encoding = raw, encoding
        return text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UndecodableText):
            return False if isinstance(other, str) else NotImplemented
        return (self.raw, self.encoding) == (other.raw, other.encoding)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.raw, self.encoding))

    def __reduce__(self) -> tuple[Any, ...]:
        return UndecodableText, (self.raw, self.encoding)


class Outcome(StrEnum):
    """How a run ended (CONTRACT 7)."""

    OK = "ok"
    ERROR = "error"
    """SQLite refused the statement or failed while running it."""
    DENIED = "denied"
    """It asked for more than reading the main database."""
    TIMEOUT = "timeout"
    """VM steps or wall clock spent."""
    TRUNCATED = "truncated"
    """More rows or bytes than the cap; the rows are the first ones."""
    INVALID = "invalid"
    """No statement, several statements, or not text."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one run may use; VM steps decide first, so that every machine gives the same verdict."""

    vm_steps: int = 200_000_000
    """SQLite virtual-machine instructions, counted in thousands; decides before the clock does.

    The default is 1 to 4.5 s of CPU (counting joins, sorting) where it was measured, so the clock
    speaks only on a machine that is seven times slower.
    """
    seconds: float = 30.0
    """Wall clock."""
    rows: int = 100_000
    """Rows fetched."""
    result_bytes: int = 64 * 1024 * 1024
    """Bytes of the rows as MessagePack, the form in which gold results are kept."""
    value_bytes: int = 1_000_000
    """Longest single string or blob that SQLite may form."""
    sql_bytes: int = 100_000
    """Longest SQL text, in UTF-8 bytes."""
    temporary_bytes: int = 256 * 1024 * 1024
    """Temporary files that sorting and grouping may fill, and memory that values may."""


class QueryResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run's outcome and rows."""

    outcome: Outcome
    columns: tuple[str, ...] = ()
    """Result column names, in order; empty unless ok or truncated."""
    rows: Rows = ()
    error: str = ""
    """One sentence without any path; empty when ok."""
    lossy: bool = False
    """True where a cell may be an `UndecodableText`, shown with U+FFFD."""
    parsed: bool = True
    """False where SQLite could not read the text as one statement: a syntax error, or invalid."""

    @property
    def ok(self) -> bool:
        """True when every row of the result is here."""
        return self.outcome is Outcome.OK


class Verdict(StrEnum):
    """The word for one comparison; the last four are unscored: null, never 0."""

    EQUAL = "equal"
    DIFFERENT = "different"
    PREDICTED_ERROR = "predicted_error"
    PREDICTED_TIMEOUT = "predicted_timeout"
    PREDICTED_TRUNCATED = "predicted_truncated"
    NO_PREDICTION = "no_prediction"
    GOLD_ERROR = "gold_error"
    GOLD_TIMEOUT = "gold_timeout"
    GOLD_TRUNCATED = "gold_truncated"
    SERVER_ERROR = "server_error"
    """No answer was given, for no fault of the policy: its server failed."""

    @property
    def scored(self) -> bool:
        """False where the gold could not be run to its end, or the server gave no answer."""
        return self is not Verdict.SERVER_ERROR and not self.value.startswith("gold_")

    @property
    def correct(self) -> bool | None:
        """True, False, or None where it is unscored."""
        return self is Verdict.EQUAL if self.scored else None
