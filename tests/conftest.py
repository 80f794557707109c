"""What every test has: a cache of its own."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["ENVBUILD_CACHE"] = str(tmp_path_factory.mktemp("cache"))
