"""`envbuild materialize`: row payloads or ready files to SQLite databases and their catalogue."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import (
    FINDINGS,
    OK,
    EngineOption,
    JsonOption,
    QuietOption,
    ShardOption,
    WorkersOption,
    print_json,
    warn,
)

if TYPE_CHECKING:
    from envbuild.materialize.corpus import CorpusSummary

_SHOWN_REASONS = 8


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command(
        epilog="Example: envbuild materialize SynSQL-2.5M/ BIRD/dev_20240627/ --out corpus/"
    )
    def materialize(
        source: Annotated[
            list[str],
            typer.Argument(
                metavar="SOURCE",
                help="Folders, Parquet or JSON record files, or hub ids (owner/name@revision). "
                "SQaLe's two sets may be given one after the other.",
            ),
        ],
        out: Annotated[
            Path, typer.Option("--out", help="Folder the corpora go into, one folder each.")
        ] = Path("corpus"),
        reader: Annotated[
            str, typer.Option("--reader", help="auto, sqale, payload, synsql, bird, spider or hub.")
        ] = "auto",
        name: Annotated[
            str | None, typer.Option("--name", help="The corpus's name; default: the source's.")
        ] = None,
        split: Annotated[
            str | None, typer.Option("--split", help="Only this split, such as train.")
        ] = None,
        limit: Annotated[
            int | None, typer.Option("--limit", min=0, help="Only the first N databases.")
        ] = None,
        revision: Annotated[
            str,
            typer.Option("--revision", help="What the source was fetched at; recorded in rows."),
        ] = "",
        link: Annotated[
            bool, typer.Option("--link", help="Link ready SQLite files instead of copying them.")
        ] = False,
        engine: EngineOption = "local",
        workers: WorkersOption = None,
        shard: ShardOption = None,
        json: JsonOption = False,
        quiet: QuietOption = False,
    ) -> None:
        """Row payloads or ready SQLite files become databases with a catalogue and questions.

        Run the same command again after an interruption: it resumes.
        """
        import dataclasses

        from envbuild.cli.progress import progress_count
        from envbuild.corpora.source import read_sources
        from envbuild.engine.shards import parse_shard
        from envbuild.errors import UsageError
        from envbuild.materialize.corpus import build_corpus

        sources = read_sources(source, reader, split=split)
        if revision:
            sources = [dataclasses.replace(found, revision=revision) for found in sources]
        names = [name or found.name for found in sources]
        if repeated := sorted({n for n in names if names.count(n) > 1}):
            raise UsageError(
                f"several sources are called {', '.join(repeated)}: materialize them one by one, "
                "each with its own --name"
            )
        summaries = []
        for found in sources:
            warn(f"{found.name}: {found.said}")
            with progress_count(total=None, label=found.name, quiet=quiet) as advance:
                summaries.append(
                    build_corpus(
                        found,
                        out,
                        name=name,
                        split=split,
                        limit=limit,
                        link=link,
                        engine=engine,
                        workers=workers,
                        shard=parse_shard(shard) if shard else (0, 1),
                        on_built=lambda built: (advance(built), None)[1],
                    )
                )
        failed = sum(summary.failed for summary in summaries)
        if json:
            built = sum(summary.databases for summary in summaries)
            print_json("materialize", {"built": built, "failed": failed, "corpora": summaries})
        else:
            _show(summaries, name)
        raise typer.Exit(FINDINGS if failed else OK)


def _show(summaries: "list[CorpusSummary]", name: str | None) -> None:
    from envbuild.cli.tables import print_table

    rows = [
        (
            s.name,
            f"{s.databases:,}",
            f"{s.failed:,}",
            f"{s.tables:,}",
            f"{s.rows:,}",
            f"{s.rows_refused:,}",
            f"{s.questions:,}",
        )
        for s in summaries
        if s.complete
    ]
    headers = ("corpus", "built", "failed", "tables", "rows", "refused", "questions")
    if rows:
        print_table(headers, rows, right=range(1, len(headers)))
    for s in summaries:
        if name is not None and s.name != name:
            warn(f"--name {name!r} is no folder name on every system: the corpus is {s.name}")
        if not s.complete:
            typer.echo(f"{s.name}: this shard is done; the corpus is whole when all shards are")
        elif s.rejects:
            most = sorted(s.rejects.items(), key=lambda pair: (-pair[1], pair[0]))[:_SHOWN_REASONS]
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in most)
            typer.echo(f"{s.name}/rejects.parquet: {reasons}")
        if s.resumed:
            warn(f"{s.name}: {s.root} was complete already; nothing was built")
