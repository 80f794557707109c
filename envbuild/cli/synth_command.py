"""`envbuild synth`: a seeded synthetic source in a published layout."""

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.options import JsonOption, SeedOption, folder_path, print_json


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command(epilog="Example: envbuild synth sqale --databases 200 --out synthetic/ --seed 1")
    def synth(
        shape: Annotated[str, typer.Argument(help="sqale, synsql or bird.")],
        databases: Annotated[int, typer.Option("--databases", min=0, help="How many databases.")],
        out: Annotated[
            Path, typer.Option("--out", callback=folder_path, help="Folder the source goes into.")
        ],
        seed: SeedOption = 0,
        json: JsonOption = False,
    ) -> None:
        """Writes a synthetic source, shaped and laid out like a real corpus.

        Its gold queries ask for values that are there, so their results mean something.
        """
        from envbuild.cli.tables import print_table
        from envbuild.corpora.synthetic.shapes import write_shape

        summary = write_shape(shape, out, databases=databases, seed=seed)
        if json:
            print_json("synth", {"seed": seed, "written": summary})
            return
        print_table(
            ("shape", "databases", "tables", "rows", "questions"),
            [
                (
                    summary.shape,
                    f"{summary.databases:,}",
                    f"{summary.tables:,}",
                    f"{summary.rows:,}",
                    f"{summary.questions:,}",
                )
            ],
            right=range(1, 5),
        )
        typer.echo(f"written to {summary.out}; next: envbuild materialize {summary.out}")
