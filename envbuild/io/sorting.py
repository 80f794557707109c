"""Rows by the value of a column, and records in the order of a key, however many there are.

A published corpus mixes its databases: 2.5 million questions are more than memory should hold.
DuckDB groups and sorts, and goes to temporary files where its memory is not enough.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import duckdb
import msgspec
import pyarrow as pa

from envbuild.errors import CorpusFolderError, OutputError
from envbuild.io.parquet import READ_ROWS, columns_known, open_parquet, to_records

R = TypeVar("R", bound=msgspec.Struct)

MEMORY = 128 * 2**20
"""Bytes that DuckDB may hold before it uses the disk, beside the row groups it is reading."""
RECORDS_HELD = 8192
"""Records kept as Python objects before they go to DuckDB."""


def iter_grouped(
    path: Path, record: type[R], *, by: str, keys: Iterable[str]
) -> Iterator[tuple[str, list[R]]]:
    """Each key, in the order given, with the rows whose column `by` holds it, in file order.

    One key's rows are in memory at a time. Raises CorpusFolderError for a file that is missing,
    damaged, or holds other records.
    """
    wanted = list(keys)
    if not wanted:
        return
    with _reading(path) as database:
        # an ENUM orders as its values are listed, and a sort needs less memory than a join
        values = pa.table({"key": pa.array(wanted, pa.string())})
        database.register("wanted", values)
        database.execute("CREATE TYPE key_order AS ENUM (SELECT key FROM wanted)")
        names = ", ".join(f"rows.{_quoted(n)}" for n in columns_known(open_parquet(path), record))
        query = f"""SELECT enum_code(place)::INTEGER AS place, {names}
            FROM (SELECT *, TRY_CAST({_quoted(by)} AS key_order) AS place
                FROM read_parquet(?, file_row_number=true)) AS rows
            WHERE place IS NOT NULL ORDER BY rows.place, rows.file_row_number"""
        found = (
            pair
            for batch in database.sql(query, params=[_literal(path)]).to_arrow_reader(READ_ROWS)
            for pair in zip(
                batch.column(0).to_pylist(),
                to_records(path, batch.drop_columns(["place"]), record),
                strict=True,
            )
        )
        done = 0
        for place, pairs in groupby(found, key=itemgetter(0)):
            yield from ((key, []) for key in wanted[done:place])
            yield wanted[place], [row for _, row in pairs]
            done = place + 1
    yield from ((key, []) for key in wanted[done:])


def count_values(path: Path, column: str) -> Counter[str]:
    """How many rows hold each value of a text column; null counts as empty text."""
    with _reading(path) as database:
        query = f"SELECT coalesce({_quoted(column)}, ''), count(*) FROM read_parquet(?) GROUP BY 1"
        return Counter(dict(database.execute(query, [_literal(path)]).fetchall()))


class SortedRecords(Generic[R]):
    """Takes records in any order, and gives them by `key`, as often as asked.

    `key` gives a tuple of texts and integers; equal keys come in the order they were added.
    """

    def __init__(
        self,
        record: type[R],
        key: Callable[[R], tuple[str | int, ...]],
        *,
        held: int = RECORDS_HELD,
    ) -> None:
        self.key, self.held = key, held
        self.fresh: list[R] = []
        """Records that DuckDB does not have yet."""
        self._database: duckdb.DuckDBPyConnection | None = None
        self._count = 0
        self._order = ""
        self._decoder = msgspec.msgpack.Decoder(record)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[R]:
        if self._database is None:
            yield from sorted(self.fresh, key=self.key)
            return
        self._store()
        cursor = self._database.cursor()
        cursor.execute(f"SELECT packed FROM records ORDER BY {self._order}")
        while rows := cursor.fetchmany(self.held):
            for (packed,) in rows:
                yield self._decoder.decode(packed)

    def add(self, record: R) -> None:
        """Takes one more record. Raises OutputError where the disk is full."""
        self.fresh.append(record)
        self._count += 1
        if len(self.fresh) >= self.held:
            self._store()

    def _store(self) -> None:
        if not self.fresh:
            return
        keys = list(zip(*map(self.key, self.fresh), strict=True))
        columns: dict[str, Sequence[Any]] = {f"key{n}": values for n, values in enumerate(keys)}
        self._order = ", ".join([*columns, "added"])
        columns["added"] = range(self._count - len(self.fresh), self._count)
        columns["packed"] = [msgspec.msgpack.encode(record) for record in self.fresh]
        rows = pa.table({name: pa.array(values) for name, values in columns.items()})
        try:
            if self._database is None:
                self._database = _open()
                self._database.execute("CREATE TABLE records AS SELECT * FROM rows LIMIT 0")
            self._database.execute("INSERT INTO records SELECT * FROM rows")
        except duckdb.Error as e:
            raise OutputError(f"cannot sort in {tempfile.gettempdir()}: {e}") from e
        del rows
        self.fresh = []


def _open(reading: int = 0) -> duckdb.DuckDBPyConnection:
    """A database in memory that may use the disk, and asks the network for nothing."""
    return duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{(MEMORY + reading) // 2**20}MiB",
            "temp_directory": tempfile.gettempdir(),
            "threads": 1,
            "autoinstall_known_extensions": False,
        },
    )


@contextmanager
def _reading(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database to read one Parquet file with; DuckDB's complaints are the file's fault."""
    with open_parquet(path) as file:  # its sentences for what is missing, or no Parquet
        groups = range(file.metadata.num_row_groups)
        largest = max((file.metadata.row_group(n).total_byte_size for n in groups), default=0)
    with _open(reading=4 * largest) as database:
        try:
            yield database
        except duckdb.OutOfMemoryException as e:
            raise OutputError(f"cannot sort {path}: {e}") from e
        except duckdb.Error as e:
            raise CorpusFolderError(f"{path} is damaged or not ours: {e}") from e


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(path: Path) -> str:
    """The path as a pattern that matches it alone: DuckDB reads `*`, `?` and `[` as patterns."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in str(path))
