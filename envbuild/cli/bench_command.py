"""`envbuild bench`: throughput of each stage on this machine."""

from typing import Annotated

import typer

from envbuild.cli.options import JsonOption, print_json


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("bench")(bench)


def bench(
    stages: Annotated[
        list[str] | None, typer.Argument(metavar="[STAGE ...]", help="Default: every stage.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Medians over this many.")] = 5,
    json: JsonOption = False,
) -> None:
    """Throughput of each stage on seeded synthetic shapes, beside a peer where one is installed.

    Example: envbuild bench mask gold_tables
    """
    import os
    import platform

    from envbuild.pipeline.bench import measure_stage, stage_names
    from envbuild.sql.connect import SQLITE_VERSION

    machine = {
        "python": platform.python_version(),
        "sqlite": SQLITE_VERSION,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
    }
    measured = {name: list(measure_stage(name, rounds=rounds)) for name in stages or stage_names()}
    if json:
        print_json("bench", {"machine": machine, "rounds": rounds, "stages": measured})
        return
    from envbuild.cli.tables import print_table

    typer.echo(", ".join(f"{key} {value}" for key, value in machine.items()))
    for name, lines in measured.items():
        heads = list(dict.fromkeys(key for line in lines for key in line))
        print_table(
            heads,
            [[_figure(line.get(head, "")) for head in heads] for line in lines],
            title=name,
            right=range(1, len(heads)),
        )


def _figure(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else str(value)
