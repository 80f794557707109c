"""A file's rows by the value of a column, in passes that each hold a few."""

from pathlib import Path

import msgspec
import pytest

from envbuild.errors import CorpusFolderError
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.io.sorting import SortedRecords, count_values, iter_grouped


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds."""

    key: str
    number: int
    text: str = ""


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """A part of it, without the column it is grouped by."""

    number: int


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [Row(key=f"k{number % 10}", number=number, text="x" * 50) for number in range(1000)]
    write_records(tmp_path / "rows.parquet", rows, arrow_schema(Row), group=90)
    return tmp_path / "rows.parquet"


def test_every_key_comes_once_with_all_its_rows(file: Path) -> None:
    keys = ["k7", "none", "k0", "k3"]
    found = list(iter_grouped(file, Number, by="key", keys=keys))
    assert [key for key, _ in found] == keys
    numbers = {key: [row.number for row in rows] for key, rows in found}
    assert numbers == {
        "none": [],
        **{f"k{last}": list(range(last, 1000, 10)) for last in (7, 0, 3)},
    }


def test_values_are_counted(file: Path) -> None:
    assert count_values(file, "key") == {f"k{last}": 100 for last in range(10)}


def test_a_file_without_the_column_is_a_corpus_fault(file: Path) -> None:
    with pytest.raises(CorpusFolderError):
        list(iter_grouped(file, Row, by="db_id", keys=["k1"]))


def test_a_folder_may_be_named_like_a_pattern(tmp_path: Path) -> None:
    for name in ("a*", "a?", "[a]", "it's"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "rows.parquet"
        write_records(path, [Row(key=name, number=1)], arrow_schema(Row))
        assert list(iter_grouped(path, Number, by="key", keys=[name])) == [
            (name, [Number(number=1)])
        ]
        assert count_values(path, "key") == {name: 1}


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record."""

    name: str
    number: int


def by_name(row: Record) -> tuple[str | int, ...]:
    return (row.name,)


def test_the_order_is_that_of_a_stable_sort_however_many_runs() -> None:
    rows = [Record(name=f"n{number * 7919 % 101:03}", number=number) for number in range(1000)]
    for held in (7, 64, 1000, 5000):
        found = SortedRecords(Record, by_name, held=held)
        for row in rows:
            found.add(row)
            assert len(found.fresh) < held or held == 1000
        assert len(found) == 1000
        assert list(found) == sorted(rows, key=by_name)
        assert list(found) == sorted(rows, key=by_name)  # as often as asked


def test_more_can_be_added_after_reading() -> None:
    found = SortedRecords(Record, by_name, held=3)
    for number in (5, 1, 4):
        found.add(Record(name=str(number), number=number))
    assert [row.number for row in found] == [1, 4, 5]
    found.add(Record(name="2", number=2))
    assert [row.number for row in found] == [1, 2, 4, 5]
