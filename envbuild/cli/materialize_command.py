"""`envbuild materialize`: row payloads or ready files to SQLite databases and their catalogue."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import (
    FINDINGS,
    OK,
    USAGE,
    EngineOption,
    JsonOption,
    QuietOption,
    ShardOption,
    WorkersOption,
    folder_path,
    print_json,
    warn,
)
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from envbuild.corpora.source import Source
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
            Path,
            typer.Option(
                "--out", callback=folder_path, help="Folder the corpora go into, one folder each."
            ),
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
        from envbuild.engine.fanout import parse_shard
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
        raise typer.Exit(_exit_code(summaries, sources))


def _exit_code(summaries: "list[CorpusSummary]", sources: "list[Source]") -> int:
    """2 where no database could be read, 1 where some or every question was refused, else 0."""
    failed = sum(summary.failed for summary in summaries)
    code = FINDINGS if failed else OK
    for found, source in zip(summaries, sources, strict=True):
        if found.complete and found.databases and not found.questions:
            warn(f"{found.name}: {_why_no_questions(found, source)}")
            code = FINDINGS if found.questions_refused else code
    built = sum(summary.databases for summary in summaries)
    if failed and not built and all(summary.complete for summary in summaries):
        warn("none of the databases could be built: rejects.parquet says why")
        return USAGE
    return code


def _why_no_questions(summary: "CorpusSummary", source: "Source") -> str:
    """Whether there were none, or why all were refused: by the keys of the first record."""
    if not summary.questions_refused:
        return "databases without questions"
    said = f"{counted(summary.questions_refused, 'question')} offered, all refused"
    file = next((file for file in source.files if file.suffix in (".json", ".jsonl")), None)
    if file is None:
        return f"{said}: rejects.parquet says why"
    from envbuild.io.json_stream import RawRecord, iter_json

    keys = ", ".join(next(iter_json(file, RawRecord), {})) or "none"
    return (
        f"{said}: {file.name} has the keys {keys}; a question needs db_id, question, and its SQL "
        "under SQL, query or sql"
    )


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
