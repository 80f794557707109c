"""Records sorted on the disk: the order, the ties, the memory, and nothing left behind."""

from pathlib import Path

import msgspec

from envbuild.io.sorted_records import SortedRecords


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One record."""

    name: str
    number: int


def by_name(row: Row) -> str:
    return row.name


def test_the_order_is_that_of_a_stable_sort_however_many_runs(tmp_path: Path) -> None:
    rows = [Row(name=f"n{number * 7919 % 101:03}", number=number) for number in range(1000)]
    for held in (7, 64, 1000, 5000):
        found = SortedRecords(Row, by_name, near=tmp_path, held=held)
        for row in rows:
            found.add(row)
            assert len(found.fresh) < held or held == 1000
        assert len(found) == 1000
        assert list(found) == sorted(rows, key=by_name)
        assert list(found) == sorted(rows, key=by_name)  # as often as asked
    assert list(tmp_path.iterdir()) == []


def test_more_can_be_added_after_reading(tmp_path: Path) -> None:
    found = SortedRecords(Row, by_name, near=tmp_path, held=3)
    for number in (5, 1, 4):
        found.add(Row(name=str(number), number=number))
    assert [row.number for row in found] == [1, 4, 5]
    found.add(Row(name="2", number=2))
    assert [row.number for row in found] == [1, 2, 4, 5]
