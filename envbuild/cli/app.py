"""The `envbuild` command: registers every command, turns errors into exit codes."""

import errno
import importlib
import sys
import traceback
from typing import NoReturn

import typer
from typer.core import TyperGroup

from envbuild import __version__
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

_MODULES = (
    "data",
    "preflight",
    "questions",
    "episodes",
    "reports",
    "run",
)
RESUMED = frozenset(("amplify", "demo", "manifest", "materialize", "rollout", "run"))
"""Commands that go on where an interrupted call of them stopped."""


class WholeSentences(TyperGroup):
    """The list of commands with each first sentence whole: wrapped, where typer would cut it."""

    def format_commands(self, ctx, formatter):  # type: ignore[no-untyped-def]  # typer's own classes
        """Writes the list."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [
            (name, command.get_short_help_str(limit=400))
            for name, command in sorted(commands, key=lambda pair: pair[0])
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(shown)


app = typer.Typer(
    name="envbuild",
    cls=WholeSentences,
    no_args_is_help=True,
    add_completion=False,
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


for _module in _MODULES:
    importlib.import_module(f"envbuild.cli.{_module}").register(app)


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
        if e.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
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
