"""`envbuild run`: every stage of a pipeline file, resuming."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from envbuild.cli.options import (
    FINDINGS,
    INTERRUPTED,
    OK,
    USAGE,
    EngineOption,
    JsonOption,
    QuietOption,
    WorkersOption,
    folder_path,
    print_json,
    warn,
)

if TYPE_CHECKING:
    from envbuild.pipeline.plan import PlannedStage


class EndedStage(NamedTuple):
    """One stage of a run."""

    name: str
    command: tuple[str, ...]
    done: bool
    """An earlier run had ended it, over the same inputs; it was not run again."""
    exit_code: int | None
    """None: not run, in a dry run."""
    resumed: bool = False
    """An earlier run had ended it; it is asked again, and builds only what its sources changed."""


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
            typer.Option(
                "--out",
                callback=folder_path,
                help="Work folder; default: ./envbuild-NAME, where the command is run.",
            ),
        ] = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Show the commands and which are done.")
        ] = False,
        strict: Annotated[
            bool, typer.Option("--strict", help="Stop at the first stage that ends with 1.")
        ] = False,
        workers: WorkersOption = None,
        engine: EngineOption = "local",
        quiet: QuietOption = False,
        json: JsonOption = False,
    ) -> None:
        """All stages of a pipeline, each resumed or skipped where it is done.

        Paths in the file count from the file's own folder; what is built goes to --out.
        Goes on past findings unless --strict. --workers goes before the file's own number; another
        number or engine makes no stage run again. Exit 1: some stage ended with 1.

        Example: envbuild run pipelines/demo.toml --dry-run
        """
        from envbuild.io.files import check_folder
        from envbuild.pipeline.config import read_pipeline
        from envbuild.pipeline.plan import check_paths, plan_stages

        declared = read_pipeline(pipeline)
        folder = out or Path(f"envbuild-{declared.name}")
        check_folder(folder)
        check_paths(declared, beside=pipeline.parent)
        stages = plan_stages(
            declared,
            beside=pipeline.parent,
            out=folder,
            until=until,
            workers=workers,
            engine=engine,
            quiet=quiet,
        )
        if dry_run:
            ended = _planned(stages, folder)
        elif json:  # stdout is the one document, so what the stages say goes beside it
            with redirect_stdout(sys.stderr):
                ended = run_stages(app, stages, out=folder, strict=strict)
        else:
            ended = run_stages(app, stages, out=folder, strict=strict)
        if json:
            shown = [stage._asdict() for stage in ended]
            print_json("run", {"out": str(folder), "dry_run": dry_run, "stages": shown})
        elif dry_run:
            _show(ended)
        failed = [stage.name for stage in ended if stage.exit_code]
        if failed:
            warn(f"ended with 1: {', '.join(failed)}")
        raise typer.Exit(FINDINGS if failed else OK)


def run_stages(
    app: typer.Typer, stages: "list[PlannedStage]", *, out: Path, strict: bool
) -> list[EndedStage]:
    """Runs the stages in order and says how each ended; a done stage is skipped.

    What a stage raises ends the run; the stages before it stay done.
    """
    import shlex

    from envbuild.pipeline.plan import (
        DEMO_NAMES,
        DoneStage,
        demo_sources,
        inputs_digest,
        is_done,
        is_own_manifest,
        outputs_digest,
        read_progress,
        write_progress,
    )
    from envbuild.sql.connect import VERSIONS

    progress = read_progress(out)
    ended: list[EndedStage] = []
    for stage in stages:
        done = is_done(stage, progress, out)
        if done:
            code = progress[stage.name].exit_code
            warn(f"{stage.name}: done before, exit {code}")
        else:
            sources = demo_sources(out)
            if any(str(sources / name) in stage.arguments for name in DEMO_NAMES):
                from envbuild.corpora.synthetic.shapes import write_demo_sources

                write_demo_sources(sources)
            arguments = stage.arguments
            if stage.name == "manifest" and is_own_manifest(progress, out):
                arguments += ("--replace",)
            warn(f"$ envbuild {shlex.join(arguments)}")
            code = invoke(app, arguments)
            progress[stage.name] = DoneStage(
                digest=stage.digest,
                inputs=inputs_digest(stage.name, out),
                outputs=outputs_digest(stage.name, out),
                exit_code=code,
                versions=VERSIONS,
            )
            write_progress(out, progress)
        ended.append(EndedStage(stage.name, stage.arguments, done, code))
        if strict and code:
            warn(f"{stage.name} ended with {code}: stopped, as --strict asks")
            break
    return ended


def invoke(app: typer.Typer, arguments: tuple[str, ...]) -> int:
    """The exit code, 0 or 1, of one command run in this process; what it raises is raised here.

    Ctrl-C inside it is Ctrl-C of the whole run. Any other code ends the run with it.
    """
    try:
        code = app(list(arguments), standalone_mode=False)
    except SystemExit as e:
        code = e.code
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (None, OK, FINDINGS):
        raise typer.Exit(code if isinstance(code, int) else USAGE)
    return code or OK


def _planned(stages: "list[PlannedStage]", out: Path) -> list[EndedStage]:
    from envbuild.pipeline.plan import is_done, is_resumed, read_progress

    progress = read_progress(out)
    return [
        EndedStage(
            stage.name,
            stage.arguments,
            is_done(stage, progress, out),
            None,
            is_resumed(stage, progress),
        )
        for stage in stages
    ]


def _show(planned: list[EndedStage]) -> None:
    import shlex

    for stage in planned:
        mark = "done" if stage.done else "check" if stage.resumed else "to do"
        typer.echo(f"{mark:<6} envbuild {shlex.join(stage.command)}")
    if any(stage.resumed for stage in planned):
        warn("check: ended before; asked again, it builds only what has changed in its sources")
