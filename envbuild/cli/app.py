"""The `envbuild` command: its commands by group, errors turned into exit codes."""

import ast
import errno
import importlib
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from envbuild import __version__
from envbuild.cli.options import as_command
from envbuild.cli.output import (
    BUG,
    INTERRUPTED,
    PIPE_CLOSED,
    USAGE,
    drop_stdout,
    name_stdout,
    prepare_streams,
    say,
    warn,
)
from envbuild.errors import EnvbuildError

RESUMED = frozenset(("amplify", "demo", "manifest", "materialize", "rollout", "run"))
"""Commands that go on where an interrupted call of them stopped."""
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "Start here": ("run:demo", "episodes:play", "run:run"),
    "Data": ("data:materialize", "preflight:preflight", "data:amplify"),
    "Question pool": (
        "questions:buckets",
        "questions:sample",
        "questions:manifest",
        "questions:pool",
        "questions:export",
    ),
    "Episodes": ("episodes:rollout", "episodes:score", "episodes:view", "episodes:ask"),
    "Reports": (
        "reports:evaluate",
        "reports:compare",
        "leaks:leaks",
        "questions:ladder",
        "reports:card",
    ),
    "Expert": ("episodes:serve", "data:pack", "data:unpack", "data:synth"),
}
"""The groups that --help shows, each command as module:function below envbuild.cli.

In the order of the chain within a group. A module is imported when a command of it is called.
"""


def load_command(name: str) -> Callable[..., None]:
    """The function behind a command, as typer calls it."""
    where = next(entry for group in COMMANDS.values() for entry in group if _named(entry) == name)
    module = importlib.import_module(f"envbuild.cli.{where.partition(':')[0]}")
    return as_command(getattr(module, name))


def _named(entry: str) -> str:
    return entry.partition(":")[2]


class CommandTable(TyperGroup):
    """The commands by group, each loaded when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every name, in the order of --help."""
        return [_named(entry) for group in COMMANDS.values() for entry in group]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None where there is none."""
        if cmd_name not in self.list_commands(ctx):
            return None
        info = CommandInfo(name=cmd_name, callback=load_command(cmd_name))
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section a group, each command's first sentence whole."""
        for group, entries in COMMANDS.items():
            with formatter.section(group):
                formatter.write_dl([(_named(entry), _first_sentence(entry)) for entry in entries])


def _first_sentence(entry: str) -> str:
    """What a command does, read from its source: --help imports no command."""
    module, _, name = entry.partition(":")
    body = _read_module(module).body
    function = next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == name)
    return " ".join((ast.get_docstring(function) or "").partition("\n\n")[0].split())


@cache
def _read_module(name: str) -> ast.Module:
    return ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))


app = typer.Typer(
    name="envbuild",
    cls=CommandTable,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Training databases, question pools and environments for text-to-SQL agents.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from envbuild.sql.connect import SQLITE_VERSION

        say(f"envbuild {__version__} (SQLite {SQLITE_VERSION})")
        raise typer.Exit()


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show versions and exit."
    ),
) -> None:
    pass


def main() -> None:
    """Runs the command line and exits with the contract's codes."""
    prepare_streams()
    try:
        try:
            app(standalone_mode=True)
        finally:
            sys.stdout.flush()  # now, while a full disk can still be said in a sentence
    except SystemExit as e:
        if isinstance(e.__context__, BrokenPipeError):  # typer and rich would end it with 1
            _end_unread()
        if e.code == INTERRUPTED:  # typer ends an interrupted command without a word
            _say_interrupted()
        raise
    except KeyboardInterrupt:
        _say_interrupted()
        sys.exit(INTERRUPTED)
    except EnvbuildError as e:
        warn(f"envbuild: {e}")
        sys.exit(USAGE)
    except OSError as e:
        if e.errno == errno.EPIPE:
            _end_unread()
        if e.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES, errno.EPERM):
            _end_as_bug()
        what = f"cannot use {e.filename}" if e.filename else f"cannot write {name_stdout()}"
        drop_stdout()
        warn(f"envbuild: {what}: {e.strerror}")
        sys.exit(USAGE)
    except MemoryError:
        warn("envbuild: there is not enough memory: use fewer --workers, or a larger machine")
        sys.exit(USAGE)
    except Exception as e:  # noqa: BLE001 - the one place where our own bugs end
        if not _is_rays(e):
            _end_as_bug()
        first = (str(e).strip() or type(e).__name__).splitlines()[0]
        warn(f"envbuild: Ray failed: {first}; start it again, or use --engine local")
        sys.exit(USAGE)


def _is_rays(error: Exception) -> bool:
    """Whether Ray itself failed, not what a task of it ran."""
    kinds = type(error).__mro__
    return any(k.__module__.partition(".")[0] == "ray" for k in kinds) and not any(
        k.__name__ == "RayTaskError" for k in kinds
    )


def _say_interrupted() -> None:
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    more = ": run the same command again to go on" if command in RESUMED else ""
    warn(f"envbuild: interrupted{more}")


def _end_unread() -> NoReturn:
    """Whoever read the output has enough, as behind `| head`: that is no answer."""
    drop_stdout()
    sys.exit(PIPE_CLOSED)


def _end_as_bug() -> NoReturn:
    traceback.print_exc()
    warn("envbuild: this is our bug, please report it with the lines above")
    sys.exit(BUG)
