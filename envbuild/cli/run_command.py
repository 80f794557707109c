"""`envbuild run`: every stage of a pipeline file, resuming."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import FINDINGS, OK, warn

if TYPE_CHECKING:
    from envbuild.pipeline.plan import PlannedStage


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command("run")
    def run(
        pipeline: Annotated[
            Path, typer.Argument(help="A pipeline file, such as pipelines/*.toml.")
        ],
        until: Annotated[
            str,
            typer.Option("--until", help="Last stage: materialize, preflight, buckets, manifest."),
        ] = "pool",
        out: Annotated[
            Path | None,
            typer.Option("--out", help="Work folder; default: ./envbuild-NAME."),
        ] = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Show the commands and which are done.")
        ] = False,
        strict: Annotated[
            bool, typer.Option("--strict", help="Stop at the first stage that ends with 1.")
        ] = False,
    ) -> None:
        """All stages of a pipeline, each resumed or skipped where it is done.

        Goes on past findings unless --strict. Exit 1: some stage ended with 1.

        Example: envbuild run pipelines/demo.toml --dry-run
        """
        from envbuild.pipeline.config import read_pipeline
        from envbuild.pipeline.plan import plan_stages

        declared = read_pipeline(pipeline)
        folder = out or Path(f"envbuild-{declared.name}")
        stages = plan_stages(declared, beside=pipeline.parent, out=folder, until=until)
        if dry_run:
            _show(stages, folder)
            return
        codes = run_stages(app, stages, out=folder, strict=strict)
        raise typer.Exit(FINDINGS if any(codes) else OK)


def run_stages(
    app: typer.Typer, stages: "list[PlannedStage]", *, out: Path, strict: bool
) -> list[int]:
    """Runs the stages in order and returns their exit codes; a done stage is skipped.

    What a stage raises ends the run; the stages before it stay done.
    """
    import shlex

    from envbuild.pipeline.plan import (
        DEMO_NAMES,
        DoneStage,
        demo_sources,
        inputs_digest,
        is_done,
        read_progress,
        write_progress,
    )

    progress = read_progress(out)
    codes: list[int] = []
    for stage in stages:
        if is_done(stage, progress, out):
            warn(f"{stage.name}: done before, exit {progress[stage.name].exit_code}")
            codes.append(progress[stage.name].exit_code)
        else:
            sources = demo_sources(out)
            if any(str(sources / name) in stage.arguments for name in DEMO_NAMES):
                from envbuild.corpora.demo.write import write_demo_sources

                write_demo_sources(sources)
            warn(f"$ envbuild {shlex.join(stage.arguments)}")
            codes.append(invoke(app, stage.arguments))
            progress[stage.name] = DoneStage(
                digest=stage.digest,
                inputs=inputs_digest(stage.name, out),
                exit_code=codes[-1],
            )
            write_progress(out, progress)
        if strict and codes[-1]:
            warn(f"{stage.name} ended with {codes[-1]}: stopped, as --strict asks")
            break
    return codes


def invoke(app: typer.Typer, arguments: tuple[str, ...]) -> int:
    """The exit code of one command run in this process; what it raises is raised here."""
    try:
        code = app(list(arguments), standalone_mode=False)
    except SystemExit as e:
        code = e.code
    return code if isinstance(code, int) else OK


def _show(stages: "list[PlannedStage]", out: Path) -> None:
    import shlex

    from envbuild.pipeline.plan import is_done, read_progress

    progress = read_progress(out)
    for stage in stages:
        mark = "done" if is_done(stage, progress, out) else "to do"
        typer.echo(f"{mark:<6} envbuild {shlex.join(stage.arguments)}")
