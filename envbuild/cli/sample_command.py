"""`envbuild sample`: sampled schemas of a corpus's questions, each checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import (
    FINDINGS,
    OK,
    CorpusArgument,
    DistractorsOption,
    EngineOption,
    ExtraOption,
    FullOption,
    JsonOption,
    LimitOption,
    QuietOption,
    SeedOption,
    TablesOption,
    WorkersOption,
    print_json,
    warn,
)
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from envbuild.manifest.samples import SampleCounts, SampleReport, ShownSample

SHOWN_CHANGES = 5


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("sample")(sample)


def sample(
    corpus: CorpusArgument,
    tables: TablesOption = "4:64",
    distractors: DistractorsOption = "fk",
    extra: ExtraOption = None,
    full: FullOption = False,
    show: Annotated[int, typer.Option("--show", min=0, help="Samples to print in full.")] = 1,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Sampled schemas: gold tables and distractors, grown along foreign keys.

    Draws a sample for every question, as the manifest would with these options, and runs its gold
    query on a view of just those tables. Writes nothing. Exit 1 where a gold query no longer gives
    its result.

    Example: envbuild sample corpus/ --tables 4:64 --distractors mixed --show 3
    """
    from envbuild.cli.progress import counter
    from envbuild.corpora.folder import open_corpora
    from envbuild.manifest.samples import sample_corpora
    from envbuild.manifest.settings import ManifestSettings, parse_tables

    smallest, largest = parse_tables(tables)
    settings = ManifestSettings(
        seed=seed,
        smallest=smallest,
        largest=largest,
        distractors=distractors,
        extra=extra,
        full=full,
        limit=limit,
    )
    with counter("sample", quiet=quiet) as watch:
        report = sample_corpora(
            open_corpora(corpus),
            settings=settings,
            show=show,
            workers=workers,
            engine=engine,
            watch=watch,
        )
    if json:
        print_json("sample", {"corpora": report.corpora, "shown": report.shown})
    else:
        _show(report)
    raise typer.Exit(FINDINGS if report.num_changed else OK)


def _show(report: SampleReport) -> None:
    from envbuild.cli.tables import print_table

    rows = [
        [
            found.corpus,
            f"{found.samples:,}",
            _spread(found.sizes),
            _spread(found.gold_sizes),
            f"{found.whole:,}",
            f"{len(found.changed):,}",
            f"{sum(found.refused.values()):,}",
        ]
        for found in report.corpora
    ]
    headers = ["corpus", "samples", "tables", "gold", "whole", "changed", "refused"]
    print_table(headers, rows, right=range(1, 7))
    typer.echo("tables and gold: fewest - median - most a sample; whole: every table is in it;")
    typer.echo("changed: the gold gives another result; refused: not sampled\n")
    for shown in report.shown:
        _show_sample(shown)
    for found in report.corpora:
        _warn_about(found)


def _show_sample(shown: ShownSample) -> None:
    from textwrap import fill

    typer.echo(f"{shown.row_id}: {counted(len(shown.tables), 'table')} (drawn {shown.target_size})")
    typer.echo(fill(shown.question, 79, initial_indent="  ", subsequent_indent="  "))
    typer.echo(f"  gold         {', '.join(shown.gold_tables) or '-'}")
    typer.echo(f"  distractors  {', '.join(shown.distractors) or '-'}")
    typer.echo(f"  shown order  {', '.join(shown.tables)}")
    for position, key in enumerate(shown.foreign_keys):
        typer.echo(f"  {'' if position else 'keys':11}  {key}")
    typer.echo("")


def _warn_about(found: SampleCounts) -> None:
    for reason, number in found.refused.items():
        warn(f"{found.corpus}: {number:,} not sampled: {reason}")
    for row_id, difference in found.changed[:SHOWN_CHANGES]:
        warn(f"{row_id}: {difference}")
    if len(found.changed) > SHOWN_CHANGES:
        warn(f"{found.corpus}: and {len(found.changed) - SHOWN_CHANGES:,} more changed")


def _spread(counts: dict[int, int]) -> str:
    """`4 - 31 - 64`: smallest, median and largest of counted sizes."""
    if not counts:
        return "-"
    each = [size for size, number in sorted(counts.items()) for _ in range(number)]
    return f"{each[0]} - {each[(len(each) - 1) // 2]} - {each[-1]}"
