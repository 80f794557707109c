"""Files and folders while they are written."""

from pathlib import Path

import pytest

from envbuild.errors import OutputError
from envbuild.io.locks import only_writer


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    second = only_writer(tmp_path)
    with only_writer(tmp_path), pytest.raises(OutputError, match="another run"):
        second.__enter__()
    with only_writer(tmp_path):
        pass
