"""What passes between a process and its SQL worker: length-prefixed MessagePack frames."""

from typing import IO

import msgspec

from envbuild.records.execution import Limits, Outcome, QueryResult
from envbuild.sql.results import decode_rows, encode_rows


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One statement to run."""

    key: int
    """The database, as the asking session numbers it."""
    sql: str
    limits: Limits
    seconds: float
    """What is left of the wall clock."""
    path: str = ""
    """Given, with or instead of `image`, where the worker does not know the key."""
    image: bytes | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: a `QueryResult`, its rows encoded."""

    outcome: Outcome | None = None
    """None for the greeting and for an unknown key."""
    columns: tuple[str, ...] = ()
    rows: bytes = b""
    error: str = ""
    lossy: bool = False
    parsed: bool = True
    unknown: bool = False
    """The worker has not opened this database: ask again with its path or image."""

    @classmethod
    def of(cls, result: QueryResult) -> "Answer":
        """The answer that carries this result."""
        return cls(
            outcome=result.outcome,
            columns=result.columns,
            rows=encode_rows(result.rows),
            error=result.error,
            lossy=result.lossy,
            parsed=result.parsed,
        )

    def result(self) -> QueryResult:
        """The result that it carries."""
        assert self.outcome is not None  # a worker that knows the database answers with an outcome
        return QueryResult(
            outcome=self.outcome,
            columns=self.columns,
            rows=decode_rows(self.rows) if self.rows else (),
            error=self.error,
            lossy=self.lossy,
            parsed=self.parsed,
        )


def write_frame(stream: IO[bytes], body: bytes) -> None:
    """Writes one frame, whole, also to a stream without a buffer."""
    left = memoryview(len(body).to_bytes(4) + body)
    while left:
        left = left[stream.write(left) :]
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None at the end of the stream, also within a frame."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    size = int.from_bytes(head)
    body = stream.read(size)
    return body if len(body) == size else None
