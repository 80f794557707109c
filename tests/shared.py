"""Where the real data lies, and how a command is run; without their data tests skip."""

import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

REPO = Path(__file__).parent.parent


def shared_folder() -> Path | None:
    """`$ENVBUILD_SHARED`, else `../shared` beside the checkout; None where there is none."""
    named = os.environ.get("ENVBUILD_SHARED")
    candidates = [Path(named)] if named else [REPO.parent / "shared", _main_checkout() / "shared"]
    return next((path for path in candidates if (path / "data").is_dir()), None)


def shared_data(*parts: str) -> Path:
    """A path below the shared data folder; skips the test where it is absent."""
    shared = shared_folder()
    if shared is None:
        pytest.skip("the shared data folder is absent (set ENVBUILD_SHARED)")
    path = shared.joinpath("data", *parts)
    if not path.exists():
        pytest.skip(f"shared data has no {'/'.join(parts)}")
    return path


def envbuild(*arguments: object, typed: str = "", **variables: str) -> CompletedProcess[str]:
    """A command of ours after its end, 80 columns wide."""
    return subprocess.run(
        [sys.executable, "-m", "envbuild", *map(str, arguments)],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80", **variables},
    )


def _main_checkout() -> Path:
    found = subprocess.run(
        ["git", "-C", str(REPO), "rev-parse", "--path-format=absolute", "--git-common-dir"],
        capture_output=True,
        text=True,
        check=False,
    )
    return Path(found.stdout.strip() or REPO).parent.parent
