"""`envbuild manifest`: the question pool of one or several corpora."""

from __future__ import annotations

from pathlib import Path
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
    ShardOption,
    TablesOption,
    WorkersOption,
    print_json,
    warn,
)
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from envbuild.manifest.build import Built


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("manifest")(manifest)


def manifest(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Option("--out", help="The manifest's folder.")] = Path("manifest"),
    tables: TablesOption = "4:64",
    distractors: DistractorsOption = "fk",
    extra: ExtraOption = None,
    full: FullOption = False,
    edges: Annotated[
        str | None,
        typer.Option("--edges", help="Bucket edges; default: each corpus's buckets.parquet."),
    ] = None,
    mask: Annotated[
        str | None, typer.Option("--mask", help="literals or skeleton; default: as the edges.")
    ] = None,
    styles: Annotated[
        str | None, typer.Option("--styles", help="Phrasings to take, comma-separated.")
    ] = None,
    leave_out: Annotated[
        str | None,
        typer.Option("--leave-out", help="Findings whose questions stay out, comma-separated."),
    ] = None,
    variants: Annotated[
        int,
        typer.Option("--variants", min=0, help="Hidden variants that each gold is also judged on."),
    ] = 0,
    limit: LimitOption = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Remove a manifest there of other settings or inputs."),
    ] = False,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    shard: ShardOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The question pool: one frozen training input a row, gold results beside it.

    Every question becomes a row of manifest.parquet or, with its reason, of rejects.parquet.
    Gold queries run once; their results lie in gold.parquet. The same inputs and seed give the
    same bytes for any --workers. After --shard runs, one run without it joins the parts.
    Exit 1 where rows were left out.

    Example: envbuild manifest corpus/ --out manifest/ --tables 4:64 --styles verbose,casual
    """
    from envbuild.cli.progress import counter
    from envbuild.corpora.folder import open_corpora
    from envbuild.engine.fanout import parse_shard
    from envbuild.errors import UnknownNameError
    from envbuild.manifest.build import build_manifest
    from envbuild.manifest.settings import ManifestSettings, parse_edge_option, parse_tables
    from envbuild.preflight.checks import SEVERITIES
    from envbuild.signal.variants import make_variants

    smallest, largest = parse_tables(tables)
    left_out = _names(leave_out)
    for code in left_out:
        if code not in SEVERITIES:
            raise UnknownNameError("finding", code, SEVERITIES)
    settings = ManifestSettings(
        seed=seed,
        smallest=smallest,
        largest=largest,
        distractors=distractors,
        extra=extra,
        full=full,
        edges=parse_edge_option(edges),
        mask=mask,
        styles=_names(styles),
        leave_out=left_out,
        variants=variants,
        limit=limit,
    )
    with counter("manifest", quiet=quiet) as watch:
        built = build_manifest(
            open_corpora(corpus),
            out,
            settings=settings,
            workers=workers,
            engine=engine,
            shard=parse_shard(shard) if shard else None,
            watch=watch,
            maker=make_variants if variants else None,
            replace=replace,
        )
    if json:
        print_json("manifest", _document(built))
    else:
        _show(built)
    raise typer.Exit(FINDINGS if built.counts.rejected else OK)


def _show(built: Built) -> None:
    from envbuild.cli.tables import print_table

    counts = built.counts
    if not built.complete:
        warn(
            f"{built.parts_done} of {built.parts} parts are done: run the other shards, "
            "then once without --shard"
        )
    typer.echo(
        f"{counted(counts.offered, 'question')}: {counted(counts.rows, 'row')}, "
        f"{counts.rejected:,} left out, {counted(counts.golds, 'gold result')}"
    )
    if counts.rows:
        rows = [[name, f"{n:,}", f"{n / counts.rows:.1%}"] for name, n in counts.buckets.items()]
        print_table(["bucket", "rows", "share"], rows, right=(1, 2))
    if counts.rejects:
        ordered = sorted(counts.rejects.items(), key=lambda pair: (-pair[1], pair[0]))
        rows = [[reason, f"{number:,}"] for reason, number in ordered]
        print_table(["left out because", "questions"], rows, right=(1,))
    if counts.variants:
        made = counts.variants.get("made", 0)
        skipped = {name: n for name, n in counts.variants.items() if name != "made"}
        told = ", ".join(f"{n:,} {name}" for name, n in skipped.items()) or "none"
        noun = "database" if made == 1 else "databases"
        typer.echo(f"{made:,} hidden variant {noun}; golds that one cannot judge: {told}")
    typer.echo(str(built.out))


def _document(built: Built) -> dict[str, object]:
    return {
        "out": str(built.out),
        "complete": built.complete,
        "parts": built.parts,
        "parts_done": built.parts_done,
        "rejected": built.counts.rejected,
        "counts": built.counts,
    }


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()
