"""The `envbuild` command: registers every command, turns errors into exit codes."""

import importlib
import pkgutil
import sys

import typer
from typer.core import TyperGroup

import envbuild.cli
from envbuild import __version__
from envbuild.cli.options import BUG, INTERRUPTED, USAGE
from envbuild.errors import EnvbuildError, OperatorError


class WholeSentences(TyperGroup):
    """The list of commands with each first sentence whole: wrapped, where typer would cut it."""

    def format_commands(self, ctx, formatter):  # type: ignore[no-untyped-def]  # typer's own classes
        """Writes the list."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [
            (name, command.get_short_help_str(limit=400))
            for name, command in commands
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

        typer.echo(f"envbuild {__version__} (SQLite {SQLITE_VERSION})")
        raise typer.Exit()


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show versions and exit."
    ),
) -> None:
    pass


for _module in sorted(m.name for m in pkgutil.iter_modules(envbuild.cli.__path__)):
    if _module.endswith("_command"):
        importlib.import_module(f"envbuild.cli.{_module}").register(app)


def main() -> None:
    """Runs the command line and exits with the contract's codes."""
    try:
        app(standalone_mode=True)
    except OperatorError as e:
        typer.echo(f"envbuild: {e}", err=True)
        sys.exit(USAGE)
    except KeyboardInterrupt:
        typer.echo("envbuild: stopped", err=True)
        sys.exit(INTERRUPTED)
    except EnvbuildError as e:
        typer.echo(f"envbuild: {e}", err=True)
        sys.exit(USAGE)
    except Exception:  # noqa: BLE001 - the one place where our own bugs end
        import traceback

        traceback.print_exc()
        typer.echo("envbuild: this is our bug, please report it with the lines above", err=True)
        sys.exit(BUG)
