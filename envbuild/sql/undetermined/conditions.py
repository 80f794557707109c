"""The same database under other conditions: another row order, another time, other chance.

A gold query whose result changes under them is not determined by the data. The conditions act
through SQLite itself (a pragma, the clock of a virtual file system, a function of our own), never
through the query's text.
"""

import datetime
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from envbuild.records.execution import Limits, QueryResult
from envbuild.sql.comparing.tolerance import equal_bag_within
from envbuild.sql.connect import Connection, open_read_only, quote_name, read_only_uri
from envbuild.sql.executor import DEFAULT_LIMITS, Session
from envbuild.sql.verdicts import equal_bag

INSTANTS = ("1970-01-02 03:04:05", "2004-02-29 12:00:00", "2026-07-15 09:30:00", "2101-12-31 23:59")
"""The times (UTC) at which a query that reads the clock is run."""
_UNIX_EPOCH_MS = 210_866_760_000_000
"""1970-01-01 in SQLite's clock: milliseconds since noon of -4713-11-24."""
_names = itertools.count()


def open_reversed(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Session:
    """A session in which SQLite walks unordered scans from the other end."""
    connection = open_read_only(path)
    connection.execute("PRAGMA reverse_unordered_selects = ON", can_cache=False)
    return Session(connection, limits=limits)


def open_seeded(path: Path, *, seed: int, limits: Limits = DEFAULT_LIMITS) -> Session:
    """A session whose random() and randomblob() follow from `seed`."""
    connection = open_read_only(path)
    chance = random.Random(seed)

    def number(*_: object) -> int:
        return chance.getrandbits(64) - (1 << 63)

    def blob(*size: Any) -> bytes:
        return chance.randbytes(max(1, int(size[0] or 0)))

    connection.create_scalar_function("random", number, 0)
    connection.create_scalar_function("randomblob", blob, 1)
    return Session(connection, limits=limits)


ROW_ORDERS = ("kept", "reversed", *(f"shuffled {n}" for n in range(1, 5)))
"""Orders that rows may be put in by the order in which they arrive.

The shuffled ones change what stands in the middle too; they are the same at every run."""


class ReorderedSession:
    """A session in which `ORDER BY random()` puts rows in the order that a run asks for.

    With `tables`, every table hands out its rows in that order, whatever its keys and indexes: a
    temporary view stands before it, and what a view lacks (`rowid`, MATCH) fails.
    """

    def __init__(
        self, connection: Connection, *, tables: bool = False, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        """Over a connection whose own `random()` this replaces for good."""
        self._places: Iterator[int] = iter(())
        connection.create_scalar_function("random", lambda *_: next(self._places), 0)
        if tables:
            _stand_before_tables(connection)
        self._session = Session(connection, limits=limits)

    @classmethod
    def open(
        cls, path: Path, *, tables: bool, limits: Limits = DEFAULT_LIMITS
    ) -> "ReorderedSession":
        """Over a file, which is never written."""
        return cls(open_read_only(path), tables=tables, limits=limits)

    def run_in(self, order: str, sql: str) -> QueryResult:
        """What the statement comes to in one of ROW_ORDERS."""
        self._places = _places(order)
        return self._session.run(sql)

    def varies(self, sql: str) -> bool:
        """True where the orders give different multisets of rows.

        By more than the last digits of a float; a run that does not end well says nothing.
        """
        first = self.run_in(ROW_ORDERS[0], sql)
        others = (self.run_in(order, sql) for order in ROW_ORDERS[1:] if first.ok)
        return any(
            other.ok
            and not equal_bag(other.rows, first.rows)
            and not equal_bag_within(first.rows, other.rows, 0.0)
            for other in others
        )

    def close(self) -> None:
        """Releases the file."""
        self._session.close()


def _places(order: str) -> Iterator[int]:
    """The place of the first, second, third … row to arrive."""
    if order.startswith("shuffled"):
        chance = random.Random(order)
        return iter(lambda: chance.getrandbits(62), None)
    return itertools.count(0, -1 if order == "reversed" else 1)


def _stand_before_tables(connection: apsw.Connection) -> None:
    names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' "
    for (name,) in connection.execute(names + "ESCAPE '\\'", can_cache=False).fetchall():
        table = quote_name(str(name))
        connection.execute(
            # LIMIT keeps SQLite from dropping the ORDER BY of an inner query
            f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} ORDER BY random() LIMIT -1",
            can_cache=False,
        )


class ClockedSession:
    """A session whose clock stands where it is told to, and which knows whether it was read."""

    def __init__(self, path: Path, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._clock = _Clock(f"envbuild-clock-{next(_names)}")
        connection = apsw.Connection(
            # a file system of our own does not follow symbolic links as SQLite's does
            read_only_uri(Path(path).resolve()),
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            vfs=self._clock.name,
        )
        self._session = Session(connection, limits=limits)

    def run_at(self, instant: str, sql: str) -> QueryResult:
        """What the statement comes to when `now` is `instant` (`YYYY-MM-DD HH:MM`, UTC)."""
        self._clock.milliseconds = _clock_milliseconds(instant)
        self._clock.reads = 0
        return self._session.run(sql)

    @property
    def read_clock(self) -> bool:
        """True where the last run asked for the time."""
        return self._clock.reads > 0

    def close(self) -> None:
        """Releases the file and the clock."""
        self._session.close()
        self._clock.unregister()


class _Clock(apsw.VFS):
    """The default file system with a clock of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(name, base="")
        self.name = name
        self.milliseconds = _UNIX_EPOCH_MS
        self.reads = 0

    def xCurrentTimeInt64(self) -> int:  # noqa: N802 - the name SQLite's binding calls
        self.reads += 1
        return self.milliseconds


def _clock_milliseconds(instant: str) -> int:
    moment = datetime.datetime.fromisoformat(instant).replace(tzinfo=datetime.UTC)
    return _UNIX_EPOCH_MS + round(moment.timestamp() * 1000)
