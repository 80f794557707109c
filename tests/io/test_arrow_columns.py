"""Arrow columns from buffers equal those that pyarrow itself makes."""

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from envbuild.io.parquet import arrow_column

CASES: list[tuple[list[Any], pa.DataType]] = [
    (["a", "é😀", None, ""], pa.string()),
    ([], pa.string()),
    ([None, None], pa.string()),
    ([None] * 17 + ["x"], pa.string()),
    ([1, -(2**63), None, 2**63 - 1], pa.int64()),
    ([1.5, None, float("inf"), 3], pa.float64()),
    ([b"\0", None, b""], pa.binary()),
    ([["a"], [], None, ["b", "c"]], pa.list_(pa.string())),
    ([True, None], pa.bool_()),
    ([1, 2], pa.int16()),
]


@pytest.mark.parametrize(("values", "kind"), CASES)
def test_the_same_array_as_pyarrow_makes(values: list[Any], kind: pa.DataType) -> None:
    column = arrow_column(values, kind)
    column.validate(full=True)
    assert column.equals(pa.array(values, type=kind))
    assert column.null_count == sum(value is None for value in values)


def test_what_does_not_fit_is_refused() -> None:
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
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"
