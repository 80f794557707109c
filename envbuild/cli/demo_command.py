"""`envbuild demo`: the whole chain on the corpora that ship with the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import JsonOption, QuietOption, folder_path, print_json, warn

if TYPE_CHECKING:
    from envbuild.cli.run_command import EndedStage


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command("demo")
    def demo(
        out: Annotated[
            Path,
            typer.Option(
                "--out", callback=folder_path, help="Work folder; an earlier demo there is resumed."
            ),
        ] = Path("envbuild-demo"),
        quiet: QuietOption = False,
        json: JsonOption = False,
    ) -> None:
        """The whole chain, offline, in seconds: three small corpora become a question pool.

        The corpora are written in the three published layouts, with the flaws that real ones have:
        what preflight finds in them is expected. Exit 1 only where a stage could not run.

        Example: envbuild demo --out /tmp/demo
        """
        ended = _run(app, out, quiet=quiet)
        if json:
            _print_document(out, ended)
        else:
            _show(app, out)


def _run(app: typer.Typer, out: Path, *, quiet: bool) -> "list[EndedStage]":
    import io
    from contextlib import redirect_stderr, redirect_stdout

    from envbuild.cli.run_command import run_stages
    from envbuild.pipeline.config import (
        FORMAT,
        ManifestSection,
        Pipeline,
        PreflightSection,
        SourceSection,
    )
    from envbuild.pipeline.plan import DEMO, plan_stages

    pipeline = Pipeline(
        format=FORMAT,
        name="demo",
        source=SourceSection(paths=(DEMO,)),
        preflight=PreflightSection(signal="200"),
        manifest=ManifestSection(),
        workers=1,  # three small corpora are done before a second process has started
    )
    ended = []
    stages = plan_stages(pipeline, beside=Path(), out=out, until="manifest")
    for place, stage in enumerate(stages):
        if not quiet:
            warn(f"{place + 1}/{len(stages)} {stage.name}")
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            ended += run_stages(app, [stage], out=out, strict=False)
    return ended


def _print_document(out: Path, ended: "list[EndedStage]") -> None:
    from envbuild.corpora.folder import open_corpora
    from envbuild.manifest.read import open_manifest
    from envbuild.preflight.measure import measure_corpora
    from envbuild.preflight.thresholds import read_thresholds

    measured = measure_corpora(open_corpora(out / "corpus"), read_thresholds(None))
    document = {
        "out": str(out),
        "stages": [stage._asdict() for stage in ended],
        "rows_per_table": {m.folder.name: m.statistics for m in measured},
        "manifest": str(out / "manifest"),
        "rows": len(open_manifest(out / "manifest").row_ids),
        "preflight": str(out / "preflight.html"),
    }
    print_json("demo", document)


def _show(app: typer.Typer, out: Path) -> None:
    from envbuild.cli.preflight_text import print_rows
    from envbuild.cli.run_command import invoke
    from envbuild.corpora.folder import open_corpora
    from envbuild.preflight.measure import measure_corpora
    from envbuild.preflight.thresholds import read_thresholds

    corpus, manifest = out / "corpus", out / "manifest"
    measured = measure_corpora(open_corpora(corpus), read_thresholds(None))
    print_rows([(m.folder.name, m.statistics) for m in measured])
    typer.echo("\nBuckets of the first corpus, by masked length of the gold SQL")
    invoke(app, ("buckets", str(corpus / measured[0].folder.name), "--shares", "0.20,0.25,0.55"))
    typer.echo("One sampled schema")
    invoke(app, ("sample", str(corpus / "demo_sqale"), "--limit", "1", "--tables", "6"))
    typer.echo(f"The question pool:  {manifest / 'manifest.parquet'}")
    typer.echo(f"What is wrong:      {out / 'preflight.html'}")
    typer.echo(f"Try it yourself:    envbuild play {manifest}")
