"""Rows of a Parquet file by the value of one text column, whatever order they stand in.

A published corpus mixes its databases: 2.5 million questions are more than memory should hold,
and one database's are spread over the whole file.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from envbuild.errors import CorpusFolderError
from envbuild.io.parquet import READ_ROWS, columns_known, open_parquet, to_records

R = TypeVar("R", bound=msgspec.Struct)

ROWS_HELD = 64 * 1024
"""Rows in memory at once, about; each pass over the file reads as many and skips the others
without making them Python objects."""


def iter_grouped(
    path: Path, record: type[R], *, by: str, keys: Iterable[str], held: int = ROWS_HELD
) -> Iterator[tuple[str, list[R]]]:
    """Each key, in the order given, with the rows whose column `by` holds it, in file order.

    At most about `held` rows are in memory, or those of one key where it has more. Raises
    CorpusFolderError for a file that is missing, damaged, or holds other records.
    """
    counts = count_values(path, by)
    for run in _runs(keys, counts, held):
        found = _rows_of(path, record, by, run) if any(counts[key] for key in run) else {}
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


def _rows_of(path: Path, record: type[R], by: str, keys: list[str]) -> dict[str, list[R]]:
    file = open_parquet(path)
    chosen = pa.array(keys, pa.string())
    columns = [by, *(name for name in columns_known(file, record) if name != by)]
    found: dict[str, list[R]] = defaultdict(list)
    for group in range(file.num_row_groups):
        own = file.read_row_group(group, columns=[by]).column(0)
        if not pc.any(pc.is_in(own, value_set=chosen)).as_py():
            continue
        for batch in file.iter_batches(row_groups=[group], columns=columns, batch_size=READ_ROWS):
            mine = batch.filter(pc.is_in(batch.column(by), value_set=chosen))
            values = mine.column(by).to_pylist()
            for key, row in zip(values, to_records(path, mine, record), strict=True):
                found[key].append(row)
    return found
