"""Commands over several stages: run, demo."""

import io
import shlex
import sys
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from envbuild.cli import options
from envbuild.cli.data import materialize
from envbuild.cli.output import Result, finish, say, warn
from envbuild.cli.preflight import preflight, print_rows
from envbuild.cli.questions import buckets, manifest, pool, sample
from envbuild.corpora.folder import open_corpora
from envbuild.corpora.synthetic import write_demo_sources
from envbuild.io.files import check_folder
from envbuild.manifest.read import open_manifest
from envbuild.pipeline.config import (
    DEMO,
    DEMO_LICENCE,
    FORMAT,
    BucketsOptions,
    Pipeline,
    PreflightSection,
    SampleOptions,
    SourceSection,
    demo_sources,
    read_pipeline,
    resolve_paths,
)
from envbuild.pipeline.plan import (
    PlannedStage,
    is_own_manifest,
    keep_done,
    plan_stages,
    read_progress,
    state_of,
)
from envbuild.preflight.row_counts import measure_corpus
from envbuild.records.preflight import Thresholds
from envbuild.sql.connect import VERSIONS

COMMANDS = {
    command.__name__: command for command in (materialize, preflight, buckets, manifest, pool)
}
"""The stages; each is called in this process."""


def run(
    pipeline: Annotated[Path, Argument(help="A pipeline file, such as pipelines/*.toml.")],
    until: Annotated[
        str, Option(help="Last stage: materialize, preflight, buckets, manifest.")
    ] = "pool",
    out: Annotated[
        Path | None,
        options.folder_option("Work folder; default: ./envbuild-NAME, where the command is run."),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the commands and which are done.")
    ] = False,
    strict: Annotated[
        bool, Option("--strict", help="Stop at the first stage that ends with 1.")
    ] = False,
    workers: options.WorkersOption = None,
    engine: options.EngineOption = "local",
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> Result:
    """All stages of a pipeline, each resumed or skipped where it is done.

    Paths in the file count from the file's own folder; what is built goes to --out.
    Goes on past findings unless --strict. --workers goes before the file's own number; another
    number or engine makes no stage run again. Exit 1: some stage ended with 1.

    Example: envbuild run pipelines/demo.toml --dry-run
    """
    declared = read_pipeline(pipeline)
    folder = out or Path(f"envbuild-{declared.name}")
    check_folder(folder)
    resolved = resolve_paths(declared, beside=pipeline.parent, out=folder)
    stages = plan_stages(
        resolved, out=folder, until=until, workers=workers, engine=engine, quiet=quiet
    )
    # with --json stdout is the one document, so what the stages say goes beside it
    with redirect_stdout(sys.stderr) if json else nullcontext():
        ended = run_stages(stages, out=folder, strict=strict, dry_run=dry_run)
    document = {"out": str(folder), "dry_run": dry_run, "stages": ended}
    failed = [stage["name"] for stage in ended if stage["exit_code"]]
    if failed:
        warn(f"ended with 1: {', '.join(failed)}")
    return Result(
        document,
        lambda: _show_planned(ended) if dry_run else None,
        findings=failed,
        wrote=None if dry_run else folder,
        following=("run", pipeline) if dry_run else ("play", folder / "manifest"),
    )


def run_stages(
    stages: list[PlannedStage], *, out: Path, strict: bool, dry_run: bool = False
) -> list[dict[str, Any]]:
    """Runs the stages in order and says how each ended; a done stage is skipped.

    What a stage raises ends the run; the stages before it stay done. `done`: an earlier run had
    ended it over the same files. `resumed`: it had ended, and builds only what its sources changed.
    `exit_code` is None in a dry run.
    """
    progress = read_progress(out)
    ended: list[dict[str, Any]] = []
    for stage in stages:
        command, arguments = COMMANDS[stage.name], stage.arguments
        state, code = state_of(stage, progress, out), None
        if state == "done" and not dry_run:
            code = progress[stage.name].exit_code
            warn(f"{stage.name}: done before, exit {code}")
        elif not dry_run:
            sources = demo_sources(out)
            if any(Path(path).parent == sources for path in arguments.get("source", ())):
                write_demo_sources(sources)
            if stage.name == "manifest" and is_own_manifest(progress, out):
                arguments = {**arguments, "replace": True}
            warn(f"$ envbuild {shlex.join(options.command_line(command, arguments))}")
            code = finish(stage.name, command(**arguments), json=False)
            keep_done(out, progress, stage, code, VERSIONS)
        ended.append(
            {
                "name": stage.name,
                "command": options.command_line(command, stage.arguments),
                "done": state == "done",
                "exit_code": code,
                "resumed": state == "check",
            }
        )
        if strict and code:
            warn(f"{stage.name} ended with {code}: stopped, as --strict asks")
            break
    return ended


def _show_planned(planned: list[dict[str, Any]]) -> None:
    for stage in planned:
        mark = "done" if stage["done"] else "check" if stage["resumed"] else "to do"
        say(f"{mark:<6} envbuild {shlex.join(stage['command'])}")
    if any(stage["resumed"] for stage in planned):
        warn("check: ended before; asked again, it builds only what has changed in its sources")


def demo(
    out: Annotated[
        Path, options.folder_option("Work folder; an earlier demo there is resumed.")
    ] = Path("envbuild-demo"),
    quiet: options.QuietOption = False,
) -> Result:
    """The whole chain, offline, in seconds: three small corpora become a question pool.

    The corpora are written in the three published layouts, with the flaws that real ones have:
    what preflight finds in them is expected. Exit 1 only where a stage could not run.

    Example: envbuild demo --out /tmp/demo
    """
    pipeline = Pipeline(
        format=FORMAT,
        name="demo",
        source=SourceSection(paths=(DEMO,), licence=DEMO_LICENCE),
        preflight=PreflightSection(signal="200"),
        workers=1,  # three small corpora are done before a second process has started
    )
    pipeline = resolve_paths(pipeline, beside=Path(), out=out)
    ended: list[dict[str, Any]] = []
    stages = plan_stages(pipeline, out=out, until="manifest")
    for place, stage in enumerate(stages):
        if not quiet:
            warn(f"{place + 1}/{len(stages)} {stage.name}")
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            ended += run_stages([stage], out=out, strict=False)
    corpus, pool_folder = out / "corpus", out / "manifest"
    measured = [measure_corpus(folder, Thresholds()) for folder in open_corpora(corpus)]

    def show() -> None:
        print_rows([(m.folder.name, m.statistics) for m in measured])
        say("\nBuckets of the first corpus, by masked length of the gold SQL")
        first = corpus / measured[0].folder.name
        shares = BucketsOptions(shares=(0.20, 0.25, 0.55))
        with redirect_stderr(io.StringIO()):
            buckets(first, settings=shares).show()
            say("One sampled schema")
            sample(corpus / "demo_sqale", settings=SampleOptions(tables="6"), limit=1).show()
        say(f"The question pool:  {pool_folder / 'manifest.parquet'}")
        say(f"What is wrong:      {out / 'preflight.html'}")

    document = {
        "out": str(out),
        "stages": ended,
        "rows_per_table": {m.folder.name: m.statistics for m in measured},
        "manifest": str(pool_folder),
        "rows": len(open_manifest(pool_folder).row_ids),
        "preflight": str(out / "preflight.html"),
    }
    return Result(document, show, wrote=out, following=("play", pool_folder))
