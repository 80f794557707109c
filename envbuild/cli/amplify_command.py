"""`envbuild amplify`: rows added until golds can be told from wrong queries."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import (
    FINDINGS,
    OK,
    CorpusArgument,
    EngineOption,
    JsonOption,
    LimitOption,
    QuietOption,
    SeedOption,
    ShardOption,
    WorkersOption,
    folder_path,
    print_json,
    warn,
)
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from envbuild.records.amplified import CorpusGrowth

_SHOWN_GOLDS = 10


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command(
        epilog="Example: envbuild amplify corpus/ --rows 30:70 --guided --out corpus-dense/"
    )
    def amplify(
        corpus: CorpusArgument,
        out: Annotated[
            Path,
            typer.Option(
                "--out",
                callback=folder_path,
                help="Folder the amplified corpora go into, one each.",
            ),
        ],
        rows: Annotated[
            str,
            typer.Option(
                "--rows",
                metavar="LOW:HIGH",
                help="Rows a table is filled to, drawn between the two; what golds ask for comes "
                "on top.",
            ),
        ] = "30:70",
        group: Annotated[
            int, typer.Option("--group", min=1, help="Gold queries worked on at a time.")
        ] = 20,
        guided: Annotated[
            bool,
            typer.Option(
                "--guided", help="Go on with rows that tell a gold from one more wrong query."
            ),
        ] = False,
        wild: Annotated[
            bool,
            typer.Option(
                "--wild", help="Keep declared rules only: new NULLs, repeated names and all."
            ),
        ] = False,
        seed: SeedOption = 0,
        limit: LimitOption = None,
        engine: EngineOption = "local",
        workers: WorkersOption = None,
        shard: ShardOption = None,
        json: JsonOption = False,
        quiet: QuietOption = False,
    ) -> None:
        """Rows are added under every constraint until golds can be told from wrong queries.

        Every original row stays as it is; added rows are listed in added_rows.parquet. Exit 1
        when a gold query still returns nothing.
        """
        from envbuild.cli.progress import progress_count
        from envbuild.corpora.folder import open_corpora
        from envbuild.engine.fanout import parse_shard
        from envbuild.records.amplified import AmplifySettings
        from envbuild.signal.amplify.corpus import amplify_corpus, parse_rows

        low, high = parse_rows(rows)
        settings = AmplifySettings(
            rows_low=low, rows_high=high, group=group, observed=not wild, guided=guided, seed=seed
        )
        grown = []
        for folder in open_corpora(corpus):
            if not folder.catalogued:
                warn(f"{folder.name}: a plain folder has no questions; rows follow its schema only")
            total = len(folder.databases()[:limit])
            with progress_count(total=total, label=folder.name, quiet=quiet) as advance:
                grown.append(
                    amplify_corpus(
                        folder,
                        out,
                        settings=settings,
                        limit=limit,
                        workers=workers,
                        engine=engine,
                        shard=parse_shard(shard) if shard else (0, 1),
                        on_done=advance,
                    )
                )
        empty = sum(growth.empty for growth in grown)
        if json:
            listed = {growth.name: _empty_golds(growth) for growth in grown if growth.complete}
            print_json("amplify", {"corpora": grown, "empty_golds": listed})
        else:
            _show(grown)
        raise typer.Exit(FINDINGS if empty else OK)


def _show(grown: "list[CorpusGrowth]") -> None:
    from envbuild.cli.tables import print_table

    for growth in grown:
        if not growth.complete:
            typer.echo(f"{growth.name}: this shard is done; the corpus is whole when all are")
            continue
        lines = [
            ("rows", f"{growth.rows_before:,}", f"{growth.rows_before + growth.rows_added:,}"),
            ("rows a table, median", f"{growth.rows_a_table_before:g}", f"{growth.rows_a_table:g}"),
            ("gold queries without rows", f"{growth.empty_before:,}", f"{growth.empty:,}"),
        ]
        if growth.signal is not None and growth.signal_before is not None:
            lines.append(
                ("signal, mean (low)", f"{growth.signal_before:.2f}", f"{growth.signal:.2f}")
            )
        title = (
            f"{growth.name}: {counted(growth.databases, 'database')}, "
            f"{counted(growth.tables, 'table')}, "
            f"{counted(growth.golds, 'gold query', 'gold queries')}"
        )
        print_table(("", "before", "after"), lines, title=title, right=(1, 2))
        if growth.not_amplified:
            typer.echo(
                f"copied as they were: {counted(growth.not_amplified, 'database')}, see rejects"
            )
        if growth.golds_failing:
            typer.echo(
                f"did not run before: {counted(growth.golds_failing, 'gold query', 'gold queries')}"
            )
        if growth.tie_sensitive:
            typer.echo(
                f"{growth.tie_sensitive:,} gold queries rest on a tie under LIMIT or in a window"
            )
        names = _empty_golds(growth)
        if names:
            more = f", … ({len(names):,} in all)" if len(names) > _SHOWN_GOLDS else ""
            typer.echo(f"still without rows: {', '.join(names[:_SHOWN_GOLDS])}{more}")
        if growth.resumed:
            warn(f"{growth.name}: {growth.root} was complete already; nothing was added")


def _empty_golds(growth: "CorpusGrowth") -> list[str]:
    """`db_id/question_id` of every gold that still returns nothing."""
    from envbuild.io.parquet import iter_records
    from envbuild.records.amplified import GoldState

    states = iter_records(Path(growth.root) / "amplified_golds.parquet", GoldState)
    return [f"{state.db_id}/{state.question_id}" for state in states if state.rows_after == 0]
