"""What every test has: the project installed, and a cache of its own."""

import os
from importlib.util import find_spec

import pytest

if find_spec("msgspec") is None:
    raise pytest.UsageError("install the project first: pip install --editable '.[dev]'")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["ENVBUILD_CACHE"] = str(tmp_path_factory.mktemp("cache"))
