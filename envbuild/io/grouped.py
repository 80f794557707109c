"""Rows of a Parquet file by the value of one text column, whatever order they stand in.

A published corpus mixes its databases: 2.5 million questions are more than memory should hold,
and one database's are spread over the whole file.
"""

import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from envbuild.errors import CorpusFolderError
from envbuild.io.files import writing
from envbuild.io.parquet import READ_ROWS, columns_known, open_parquet, to_records

R = TypeVar("R", bound=msgspec.Struct)

ROWS_HELD = 64 * 1024
"""Rows that are Python objects at once, about."""


def iter_grouped(
    path: Path, record: type[R], *, by: str, keys: Iterable[str], held: int = ROWS_HELD
) -> Iterator[tuple[str, list[R]]]:
    """Each key, in the order given, with the rows whose column `by` holds it, in file order.

    At most about `held` rows are in memory, or those of one key where it has more; a larger file
    is first dealt out into as many heaps, in a temporary file without a name. Raises
    CorpusFolderError for a file that is missing, damaged, or holds other records.
    """
    keys = list(keys)
    counts = count_values(path, by) if keys else Counter[str]()
    runs = list(_runs(keys, counts, held))
    with _Heaps() as heaps:
        if len(runs) > 1:
            heaps.deal(_batches(path, record, by), by, runs)
        for number, run in enumerate(runs):
            batches = heaps.read(number) if len(runs) > 1 else _batches(path, record, by)
            found: dict[str, list[R]] = defaultdict(list)
            chosen = pa.array(run, pa.string())
            for batch in batches:
                mine = batch.filter(pc.is_in(batch.column(by), value_set=chosen))
                values = mine.column(by).to_pylist()
                for key, row in zip(values, to_records(path, mine, record), strict=True):
                    found[key].append(row)
            for key in run:
                yield key, found.pop(key, [])


def first_record(path: Path, record: type[R], *, by: str, value: str) -> R | None:
    """The first row whose column `by` holds the value, as a record; None where there is none."""
    file = open_parquet(path)
    for group in range(file.num_row_groups):
        place = file.read_row_group(group, columns=[by]).column(0).index(value).as_py()
        if place < 0:
            continue
        columns = columns_known(file, record)
        for batch in file.iter_batches(row_groups=[group], columns=columns, batch_size=READ_ROWS):
            if place < batch.num_rows:
                return to_records(path, batch.slice(place, 1), record)[0]
            place -= batch.num_rows
    return None


def count_values(path: Path, column: str) -> Counter[str]:
    """How many rows hold each value of a text column; null counts as empty text."""
    counts: Counter[str] = Counter()
    file = open_parquet(path)
    try:
        for batch in file.iter_batches(columns=[column], batch_size=64 * 1024):
            for found in pc.value_counts(batch.column(0)).to_pylist():
                counts[found["values"] or ""] += found["counts"]
    except (pa.ArrowException, OSError, KeyError, IndexError) as e:
        raise CorpusFolderError(f"{path} is damaged or not ours: {e}") from e
    return counts


def _runs(keys: Iterable[str], counts: Counter[str], held: int) -> Iterator[list[str]]:
    """Neighbouring keys that have at most `held` rows together, or one that has more."""
    run: list[str] = []
    rows = 0
    for key in keys:
        if run and rows + counts[key] > held:
            yield run
            run, rows = [], 0
        run.append(key)
        rows += counts[key]
    if run:
        yield run


def _batches(path: Path, record: type[R], by: str) -> Iterator[pa.RecordBatch]:
    """The file's rows, few at a time: the fields of the record, and the column `by`."""
    file = open_parquet(path)
    columns = [by, *(name for name in columns_known(file, record) if name != by)]
    batches = file.iter_batches(columns=columns, batch_size=READ_ROWS)
    try:
        yield from batches
    except (pa.ArrowException, OSError) as e:
        raise CorpusFolderError(f"{path} is damaged or not ours: {e}") from e


class _Heaps:
    """Rows dealt out on the disk by the run of keys they belong to, in file order."""

    def __init__(self) -> None:
        self.schema: pa.Schema = None
        self.places: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        """Run to offset, size and unpacked size of each of its batches."""
        self.codec = pa.Codec("lz4")
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> "_Heaps":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def deal(self, batches: Iterable[pa.RecordBatch], by: str, runs: list[list[str]]) -> None:
        keys = pa.array([key for run in runs for key in run], pa.string())
        run_of = pa.array([number for number, run in enumerate(runs) for _ in run], pa.int32())
        for batch in batches:
            self.schema = batch.schema
            numbers = run_of.take(pc.index_in(batch.column(by), value_set=keys))
            for number in pc.unique(numbers).to_pylist():
                if number is not None:  # null: a key that nobody asked for
                    self._put(number, batch.filter(pc.equal(numbers, number)))

    def _put(self, number: int, batch: pa.RecordBatch) -> None:
        plain = batch.serialize()
        with writing(Path(tempfile.gettempdir())):
            packed = self.codec.compress(plain)
            self.places[number].append((self._file.tell(), packed.size, plain.size))
            self._file.write(packed)

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        self._file.flush()
        for offset, size, unpacked in self.places[number]:
            packed = os.pread(self._file.fileno(), size, offset)
            plain = self.codec.decompress(packed, decompressed_size=unpacked)
            yield pa.ipc.read_record_batch(plain, self.schema)
