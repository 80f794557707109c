"""`envbuild buckets`: masked-length buckets of a corpus, and their shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from envbuild.cli.options import (
    FINDINGS,
    OK,
    CorpusArgument,
    JsonOption,
    LimitOption,
    QuietOption,
    print_json,
    warn,
)
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from envbuild.buckets.cut import CorpusBuckets


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("buckets")(buckets)


def buckets(
    corpus: CorpusArgument,
    edges: Annotated[
        str | None,
        typer.Option("--edges", help="Lengths at which a bucket begins. [default: 149,278]"),
    ] = None,
    mask: Annotated[
        str, typer.Option("--mask", help="literals, or skeleton: identifiers masked too.")
    ] = "literals",
    shares: Annotated[
        str | None,
        typer.Option("--shares", help="Pool shares, one a bucket, such as 0.20,0.25,0.55."),
    ] = None,
    suggest: Annotated[
        int | None,
        typer.Option("--suggest", help="Propose the edges of this many even buckets."),
    ] = None,
    limit: LimitOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Masked-length buckets and their shares.

    Masks every gold query, cuts at the edges and writes buckets.parquet into each corpus; the
    manifest then takes these edges. --suggest proposes edges from the corpus itself and writes
    nothing, nor does --limit, which looks at each corpus's first questions only. Exit 1 where a
    bucket is empty.

    Example: envbuild buckets corpus/ --edges 149,278 --shares 0.20,0.25,0.55
    """
    from envbuild.buckets.run import bucket_corpora
    from envbuild.cli.progress import progress_count

    with progress_count(total=None, label="questions", quiet=quiet) as advance:
        report = bucket_corpora(
            corpus,
            edges=edges,
            mask=mask,
            shares=shares,
            suggest=suggest,
            limit=limit,
            on_masked=lambda questions: (advance(questions), None)[1],
        )
    if limit is not None:
        warn(f"the first {limit:,} questions of each corpus only: nothing is written")
    if json:
        print_json("buckets", report.document())
    else:
        for found in report.corpora:
            _show(found, report.shares)
        for found in report.suggested:
            _show_suggestion(found)
    for found in report.corpora:
        if found.empty:
            warn(f"{found.corpus}: no question falls into {', '.join(found.empty)}")
    raise typer.Exit(FINDINGS if any(found.empty for found in report.corpora) else OK)


def _show(found: CorpusBuckets, shares: tuple[float, ...] | None) -> None:
    from envbuild.cli.tables import print_table

    headers = ["bucket", "length", "questions", "share", ""]
    rows: list[list[Any]] = []
    for position, band in enumerate(found.bands):
        length = f"{band.lower}-{band.upper - 1}" if band.upper is not None else f"{band.lower}+"
        row = [band.name, length, f"{band.questions:,}", f"{band.share:.1%}", _bar(band.share)]
        if shares:
            row.insert(4, f"{shares[position]:.0%}")
        rows.append(row)
    if shares:
        headers.insert(4, "pool")
    typer.echo(
        f"{found.corpus}: {counted(found.questions, 'question')}, masked {found.mask}; "
        f"length {found.shortest} - {found.median:.0f} - {found.longest}"
    )
    print_table(headers, rows, right=(1, 2, 3, 4) if shares else (1, 2, 3))
    if shares:
        typer.echo(
            f"the largest pool with these shares: {counted(found.pool_size(shares), 'question')}\n"
        )


def _show_suggestion(found: CorpusBuckets) -> None:
    edges = ",".join(map(str, found.edges))
    _show(found, None)
    typer.echo(f"{found.corpus}: --edges {edges} makes {len(found.bands)} even buckets\n")


def _bar(share: float) -> str:
    from envbuild.cli.tables import draws_blocks

    return ("█" if draws_blocks() else "#") * round(share * 24)
