"""`envbuild export`: a manifest in a trainer's own layout."""

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.options import JsonOption, print_json, warn


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("export")(export)


def export(
    manifest: Annotated[Path, typer.Argument(help="A manifest folder.")],
    to: Annotated[str, typer.Option("--to", help="trl, verl, skyrl, verifiers, nemo or datasets.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write.")],
    schedule: Annotated[
        Path | None,
        typer.Option("--schedule", help="schedule.parquet; default: the manifest's own, if any."),
    ] = None,
    preset: Annotated[
        str,
        typer.Option("--preset", help="Rules of the episode: default, several-calls, one-call."),
    ] = "default",
    schema: Annotated[
        str, typer.Option("--schema", help="withheld, or full: the DDL is in the prompt.")
    ] = "withheld",
    prompts: Annotated[
        Path | None, typer.Option("--prompts", help="TOML file that replaces the prompts.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Remove an export there of other settings or inputs."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """A manifest in a trainer's own layout, in schedule order.

    Questions and prompts stand in the columns that a trainer shows; no answer does. What `pool`
    keeps out is not in the training file, with or without a schedule; rows of an evaluation split
    are in the test file.

    Example: envbuild export manifest/ --to trl --out data/trl
    """
    import msgspec

    from envbuild.adapters.export import export_manifest
    from envbuild.adapters.rollouts import Rollouts
    from envbuild.cli.tables import print_table
    from envbuild.episode.prompts import load_prompts

    # An export shows no answer, so it judges by no gold: whichever SQLite made them will do.
    rollouts = Rollouts(manifest, prompts=load_prompts(prompts), rerun_golds=True)
    written = export_manifest(
        out,
        to=to,
        rollouts=rollouts,
        preset=preset,
        schema=schema,
        schedule=schedule,
        replace=replace,
    )
    if not rollouts.splits["train"]:
        warn("no row of the manifest may be trained on: there is no training file")
    elif to != "datasets" and not written.scheduled:
        warn("no schedule: the rows are in row_id order (`envbuild pool --write` makes one)")
    if written.left_out:
        told = ", ".join(f"{count:,} {reason}" for reason, count in written.left_out.items())
        warn(f"rows in no file, as `pool` keeps them out: {told}")
    if json:
        document = msgspec.to_builtins(written)
        del document["format"]
        print_json("export", {**document, "out": str(out)})
        return
    print_table(
        ("file", "rows"),
        [(name, f"{count:,}") for name, count in written.files.items()],
        title=f"{to} layout in {out}",
        right=(1,),
    )
