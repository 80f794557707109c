"""Files and folders while they are written."""

import errno
from pathlib import Path

import pytest

from envbuild.errors import OutputError
from envbuild.io.files import only_writer, output_reason


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    second = only_writer(tmp_path)
    with only_writer(tmp_path), pytest.raises(OutputError, match="another run"):
        second.__enter__()
    with only_writer(tmp_path):
        pass


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_read_only_folder_asks_for_no_option_that_may_not_be(number: int) -> None:
    said = output_reason(OSError(number, "no"))
    assert "not writable" in said and "--" not in said
