"""A small real database, and the small manifest."""

from pathlib import Path

import apsw
import pytest

from tests.env.shop import SHOP
from tests.small_manifest import write_small_manifest


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE series (value INT)")
    connection.executemany("INSERT INTO series VALUES (?)", [(n,) for n in range(1, 41)])
    connection.execute(SHOP)
    connection.execute("DROP TABLE series")
    connection.close()
    return path


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_manifest(tmp_path_factory.mktemp("music"))
