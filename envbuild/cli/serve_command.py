"""`envbuild serve`: the environment as a server."""

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.options import RerunGoldsOption, warn
from envbuild.errors import UsageError


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("serve")(serve)


def serve(
    manifest: Annotated[Path, typer.Argument(help="A manifest folder.")],
    openenv: Annotated[
        bool, typer.Option("--openenv", help="Speak OpenEnv (HTTP and WebSocket).")
    ] = False,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free port.")] = 8000,
    sessions: Annotated[
        int, typer.Option("--sessions", min=1, help="Episodes at once, at most.")
    ] = 256,
    rerun_golds: RerunGoldsOption = False,
) -> None:
    """The manifest's questions as an environment server.

    Needs `pip install '.[openenv]'` in a checkout. Runs until Ctrl-C.

    Example: envbuild serve manifest/ --openenv --port 8000
    """
    if not openenv:
        raise UsageError("say which protocol to speak; there is one: --openenv")
    from envbuild.adapters.openenv import listen, make_app, run_server

    app = make_app(manifest, sessions=sessions, rerun_golds=rerun_golds)
    with listen(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        warn(f"serving {manifest} on http://{shown}:{listening.getsockname()[1]}")
        run_server(app, listening)
