"""`envbuild preflight`: rows per table first, then everything else that ruins a reward."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from envbuild.cli.options import (
    FINDINGS,
    OK,
    CorpusArgument,
    EngineOption,
    JsonOption,
    QuietOption,
    SeedOption,
    ShardOption,
    WorkersOption,
    file_path,
    folder_path,
    print_json,
    warn,
)
from envbuild.errors import UsageError
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from envbuild.corpora.folder import CorpusFolder
    from envbuild.preflight.check_database import CheckedDatabase
    from envbuild.preflight.measure import MeasuredCorpus
    from envbuild.preflight.run import CorpusFindings
    from envbuild.records.execution import Limits
    from envbuild.records.preflight import Report, Thresholds


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one call that its steps share."""

    thresholds: "Thresholds"
    limits: "Limits"
    out: Path | None
    signal: int | None
    shard: tuple[int, int] | None
    seed: int
    workers: int | None
    engine: str
    quiet: bool


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("preflight")(preflight)


def preflight(
    corpus: CorpusArgument,
    thresholds: Annotated[
        Path | None, typer.Option("--thresholds", help="TOML file with thresholds of your own.")
    ] = None,
    signal: Annotated[
        str,
        typer.Option(
            "--signal", metavar="all|N|off", help="Golds scored: at most N a corpus, 20 a database."
        ),
    ] = "2000",
    strict: Annotated[bool, typer.Option("--strict", help="Warnings too make exit 1.")] = False,
    gold_seconds: Annotated[
        float, typer.Option("--gold-seconds", min=0.01, help="Wall clock a gold query may take.")
    ] = 30.0,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", callback=file_path, help="Write a self-contained page to this file."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            callback=folder_path,
            help="Where findings go; default: the corpus (a plain folder keeps none).",
        ),
    ] = None,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    shard: ShardOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Rows per table, then signal, then every other check of databases, golds and questions.

    Takes a corpus, the folder above several, or any folder of SQLite files. Writes preflight.json
    and findings.parquet into the corpus. Exit 1: an error finding (--strict: a warning too).

    Example: envbuild preflight corpus/ --html preflight.html
    """
    from envbuild.cli.preflight_signal import parse_wanted
    from envbuild.corpora.folder import open_corpora
    from envbuild.engine.fanout import parse_shard
    from envbuild.preflight.measure import measure_corpora
    from envbuild.preflight.page import write_page
    from envbuild.preflight.run import as_report
    from envbuild.preflight.thresholds import read_thresholds
    from envbuild.preflight.write import report_document
    from envbuild.records.execution import Limits

    run = Run(
        thresholds=read_thresholds(thresholds),
        limits=Limits(seconds=gold_seconds),
        out=out,
        signal=parse_wanted(signal),
        shard=parse_shard(shard) if shard else None,
        seed=seed,
        workers=workers,
        engine=engine,
        quiet=quiet,
    )
    folders = open_corpora(corpus)
    if run.shard is not None and not _check_shard(folders, run):
        raise typer.Exit(OK)
    measured = measure_corpora(folders, run.thresholds)
    if not json:
        _show_rows(measured)
    found = [_check(each, run, show=not json, alone=len(measured) == 1) for each in measured]
    report = as_report([each.report for each in found], run.thresholds)
    if html is not None:
        write_page(report, html)
    if json:
        print_json("preflight", report_document(report))
    else:
        _show_rest(report)
    raise typer.Exit(FINDINGS if report.errors or (strict and report.warnings) else OK)


def _check(measured: "MeasuredCorpus", run: Run, *, show: bool, alone: bool) -> "CorpusFindings":
    """One corpus: its signal, then every check; its files are written."""
    from envbuild.cli.preflight_signal import measure_signal
    from envbuild.cli.preflight_text import print_signal
    from envbuild.cli.progress import progress_count
    from envbuild.preflight.run import check_databases, conclude
    from envbuild.preflight.shard_parts import configuration_of, read_parts, remove_parts
    from envbuild.preflight.write import write_findings

    found = measure_signal(
        measured,
        run.thresholds.signal,
        wanted=run.signal,
        seed=run.seed,
        workers=run.workers,
        engine=run.engine,
        quiet=run.quiet,
    )
    if show and found.summary is not None:
        print_signal(found.summary)
    folder = _output_folder(measured.folder, run.out, alone=alone)
    label, total = measured.folder.name, len(measured.databases)
    with progress_count(total=total, label=label, quiet=run.quiet) as advance:
        checked: Iterable[CheckedDatabase]
        if run.shard is not None and folder is not None:
            parts = read_parts(folder, run.shard[1], configuration_of(measured.folder, run.limits))
            checked = (database for part in parts.values() for database in part)
        else:
            checked = check_databases(
                measured,
                limits=run.limits,
                workers=run.workers,
                engine=run.engine,
                on_progress=advance,
            )
        concluded = conclude(
            measured,
            checked,
            signal=found.summary,
            signal_points=found.points,
            extra=found.findings,
        )
    if folder is not None:
        write_findings(concluded, folder, run.thresholds)
        if run.shard is not None:
            remove_parts(folder, run.shard[1])
    return concluded


def _check_shard(folders: "list[CorpusFolder]", run: Run) -> bool:
    """Checks and keeps one shard of every corpus; True where that made all shards complete."""
    from envbuild.preflight.measure import measure_corpus
    from envbuild.preflight.run import check_databases
    from envbuild.preflight.shard_parts import configuration_of, read_parts, write_part

    assert run.shard is not None
    index, count = run.shard
    complete = True
    for folder in folders:
        out = _output_folder(folder, run.out, alone=len(folders) == 1)
        if out is None:
            raise UsageError("--shard on a plain folder of SQLite files needs --out")
        measured = measure_corpus(folder, run.thresholds, shard=run.shard)
        checked = check_databases(
            measured, limits=run.limits, workers=run.workers, engine=run.engine
        )
        configuration = configuration_of(folder, run.limits)
        write_part(out, run.shard, list(checked), configuration)
        missing = sorted(set(range(count)) - read_parts(out, count, configuration).keys())
        if missing:
            complete = False
            waiting = ", ".join(str(other) for other in missing[:8])
            more = ", …" if len(missing) > 8 else ""
            warn(f"{folder.name}: shard {index} of {count} is done; missing: {waiting}{more}")
    return complete


def _output_folder(folder: "CorpusFolder", out: Path | None, *, alone: bool) -> Path | None:
    """Where this corpus's files go; None for a plain folder of SQLite files without --out."""
    if out is not None:
        return out if alone else out / folder.name
    return folder.root if folder.catalogued else None


def _show_rows(measured: "list[MeasuredCorpus]") -> None:
    from envbuild.cli.preflight_text import print_rows

    print_rows([(m.folder.name, m.statistics) for m in measured])


def _show_rest(report: "Report") -> None:
    from envbuild.cli.preflight_text import print_findings, print_golds, say

    print_golds([(c.corpus, c.gold) for c in report.corpora])
    for corpus in report.corpora:
        print_findings(corpus)
    say(f"{counted(report.errors, 'error')}, {counted(report.warnings, 'warning')}")
    if any(c.rows.verdict for c in report.corpora):
        warn("Few rows make wrong queries win by luck; `envbuild amplify` adds rows.")
