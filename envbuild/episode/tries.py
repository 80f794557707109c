"""Preparing what may be an answer: how often, and for how long, one completion may ask for it."""

import time
from collections.abc import Callable

from envbuild.records.execution import Outcome, QueryResult

Prepare = Callable[[str], QueryResult]
"""What preparing a query comes to, without running it."""
MOST_PREPARED = 64
"""Texts of one completion that are prepared."""
MOST_SECONDS = 1.0
"""Wall clock after which no other one is: planning a single join of sixty tables takes seconds."""


class Tries:
    """What one completion may have prepared, counted over all that look into it."""

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare
        self._left = MOST_PREPARED
        self._deadline = time.monotonic() + MOST_SECONDS

    def prepare(self, sql: str) -> QueryResult | None:
        """What SQLite makes of a text; None where no more may be asked."""
        self._left -= 1
        if self._left < 0 or time.monotonic() > self._deadline:
            return None
        return self._prepare(sql)


def prepares(result: QueryResult) -> bool:
    """Whether SQLite would run it."""
    return result.outcome in (Outcome.OK, Outcome.TRUNCATED)
