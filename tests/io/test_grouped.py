"""A file's rows by the value of a column, in passes that each hold a few."""

from pathlib import Path

import msgspec
import pytest

from envbuild.errors import CorpusFolderError
from envbuild.io.grouped import count_values, first_record, iter_grouped
from envbuild.io.parquet import arrow_schema, write_records


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


@pytest.mark.parametrize("held", [1, 100, 250, 10_000])
def test_every_key_comes_once_with_all_its_rows(file: Path, held: int) -> None:
    keys = ["k7", "none", "k0", "k3"]
    found = list(iter_grouped(file, Number, by="key", keys=keys, held=held))
    assert [key for key, _ in found] == keys
    numbers = {key: [row.number for row in rows] for key, rows in found}
    assert numbers == {
        "none": [],
        **{f"k{last}": list(range(last, 1000, 10)) for last in (7, 0, 3)},
    }


def test_counts_and_the_first_row(file: Path) -> None:
    assert count_values(file, "key") == {f"k{last}": 100 for last in range(10)}
    assert first_record(file, Row, by="key", value="k9") == Row(key="k9", number=9, text="x" * 50)
    assert first_record(file, Number, by="text", value="y") is None


def test_a_file_without_the_column_is_a_corpus_fault(file: Path) -> None:
    with pytest.raises(CorpusFolderError):
        list(iter_grouped(file, Row, by="db_id", keys=["k1"]))
