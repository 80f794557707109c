"""The blocks of the trainers' pages that a GPU would run, for the trainers' own checks."""

import os
import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def page_command(page: str, program: str) -> str:
    """The one line of `docs/training/<page>` that starts `program`, without its comment."""
    text = (ROOT / "docs" / "training" / page).read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]
    (found,) = (line.strip() for line in lines if program in line)
    return found


def printed_arguments(page: str, *options: str, **folders: str) -> list[str]:
    """What the page's `start.sh` line hands its trainer.

    `options` and `folders` are taken in place of the page's own, where they are given.
    """
    words = shlex.split(page_command(page, "start.sh"))
    given = {name: value for name, found, value in (w.partition("=") for w in words) if found}
    script, *own = (word for word in words if "=" not in word)
    done = subprocess.run(
        ["sh", str(ROOT / script), "--print", *(options or own)],
        env={**os.environ, **given, **folders},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
