"""Parquet files: columns as pyarrow makes them, rows grouped and sorted while few are held."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from envbuild.errors import CorpusFolderError
from envbuild.io.parquet import arrow_column, arrow_schema, write_records
from envbuild.io.sorting import SortedRecords, count_values, iter_grouped


def test_columns_are_those_that_pyarrow_makes() -> None:
    for values, kind in (
        (["a", "é😀", None, ""], pa.string()),
        ([], pa.string()),
        ([None] * 17 + ["x"], pa.string()),
        ([1, -(2**63), None, 2**63 - 1], pa.int64()),
        ([1.5, None, float("inf"), 3], pa.float64()),
        ([b"\0", None, b""], pa.binary()),
        ([["a"], [], None, ["b", "c"]], pa.list_(pa.string())),
        ([True, None], pa.bool_()),
    ):
        column = arrow_column(values, kind)
        column.validate(full=True)
        assert column.equals(pa.array(values, type=kind))
        assert column.null_count == values.count(None)
    with pytest.raises(UnicodeEncodeError):
        arrow_column(["\ud83d"], pa.string())
    with pytest.raises(OverflowError):
        arrow_column([2**63], pa.int64())


def test_pandas_stays_out() -> None:
    pytest.importorskip("pandas")
    program = (
        "import sys, pyarrow as pa; from envbuild.io.parquet import arrow_column;"
        "arrow_column(['a', None], pa.string()); print('pandas' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "False", run.stderr


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds."""

    key: str
    number: int


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """A part of it, without the column it is grouped by."""

    number: int


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [Row(key=f"k{number % 10}", number=number) for number in range(1000)]
    write_records(tmp_path / "rows.parquet", rows, arrow_schema(Row), group=90)
    return tmp_path / "rows.parquet"


def test_every_key_comes_once_with_all_its_rows(file: Path) -> None:
    keys = ["k7", "none", "k0", "k3", "last"]
    found = list(iter_grouped(file, Number, by="key", keys=keys))
    assert [key for key, _ in found] == keys
    for key, rows in found:
        expected = range(int(key[1]), 1000, 10) if key.startswith("k") else ()
        assert [row.number for row in rows] == list(expected)
    assert count_values(file, "key") == {f"k{last}": 100 for last in range(10)}
    with pytest.raises(CorpusFolderError):
        list(iter_grouped(file, Row, by="db_id", keys=["k1"]))


@pytest.mark.parametrize("name", ["a*", "a?", "[a]", "it's"])
def test_a_folder_may_be_named_like_a_pattern(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    path = tmp_path / name / "rows.parquet"
    write_records(path, [Row(key=name, number=1)], arrow_schema(Row))
    assert list(iter_grouped(path, Number, by="key", keys=[name])) == [(name, [Number(number=1)])]
    assert count_values(path, "key") == {name: 1}


def by_key(row: Row) -> tuple[str | int, ...]:
    return (row.key,)


@pytest.mark.parametrize("held", [7, 64, 1000, 5000])
def test_the_order_is_that_of_a_stable_sort_however_many_are_held(held: int) -> None:
    rows = [Row(key=f"n{number * 7919 % 101:03}", number=number) for number in range(1000)]
    found = SortedRecords(Row, by_key, held=held)
    for count, row in enumerate(rows, 1):
        found.add(row)
        assert len(found.fresh) <= held
        if count in (500, 1000):  # as often as asked, and more can be added afterwards
            assert list(found) == list(found) == sorted(rows[:count], key=by_key)
    assert len(found) == 1000
