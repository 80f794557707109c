"""The README against the command line: every command has its row, its help and an example."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import COMMANDS as GROUPS
from envbuild.cli.app import app

README = (Path(__file__).parent.parent / "README.md").read_text()
COMMANDS = sorted(entry.partition(":")[2] for group in GROUPS.values() for entry in group)

runner = CliRunner()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    found = runner.invoke(app, [command, "--help"])
    assert found.exit_code == 0
    assert f"envbuild {command}" in " ".join(found.stdout.split())


def test_commands_that_the_readme_shows_exist() -> None:
    code = "\n".join(re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL))
    shown = set(re.findall(r"^envbuild ([a-z-]+)", code, flags=re.MULTILINE))
    assert shown <= set(COMMANDS)


def test_files_that_the_readme_links_exist() -> None:
    root = Path(__file__).parent.parent
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (root / target).exists(), target


def test_the_usage_line_says_once_that_an_argument_repeats() -> None:
    for command in COMMANDS:
        usage = runner.invoke(app, [command, "--help"]).stdout.split("\n\n")[0]
        assert "...}..." not in usage and "...]]..." not in usage, usage


def test_help_lists_every_command_with_its_first_sentence() -> None:
    shown = " ".join(runner.invoke(app, ["--help"]).stdout.split())
    for command in COMMANDS:
        sentence = runner.invoke(app, [command, "--help"]).stdout.split("\n\n")[1]
        assert f"{command} {' '.join(sentence.split())}" in shown
