"""`envbuild bench`: throughput of each stage on this machine."""

from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from envbuild.cli.options import JsonOption, print_json

MOST_COLUMNS = 5
"""A table with more is listed instead."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("bench")(bench)


def bench(
    stages: Annotated[
        list[str] | None, typer.Argument(metavar="STAGE", help="Default: every stage.")
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
        if len(heads) > MOST_COLUMNS:
            _list_figures(name, lines)
            continue
        print_table(
            heads,
            [[_figure(line.get(head, "")) for head in heads] for line in lines],
            title=name,
            right=[
                place
                for place, head in enumerate(heads)
                if not any(isinstance(line.get(head), str) for line in lines)
            ],
        )


def _list_figures(stage: str, lines: Iterable[Mapping[str, object]]) -> None:
    """One figure a line: more columns than 80 characters can head."""
    typer.echo(stage)
    for line in lines:
        typer.echo(f" {line['what']}")
        for key, value in line.items():
            if key != "what":
                typer.echo(f"   {key:<28} {_figure(value):>10}")
    typer.echo("")


def _figure(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else str(value)
