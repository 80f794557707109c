"""`envbuild pack`: SQLite files to row payload Parquet."""

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.options import (
    FINDINGS,
    OK,
    JsonOption,
    LimitOption,
    QuietOption,
    WorkersOption,
    folder_path,
    print_json,
    warn,
)


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command(epilog="Example: envbuild pack BIRD/dev_20240627/dev_databases/ --out payloads/")
    def pack(
        sqlite_dir: Annotated[
            Path, typer.Argument(help="A folder of SQLite files, one file, or a corpus folder.")
        ],
        out: Annotated[
            Path,
            typer.Option("--out", callback=folder_path, help="Folder the Parquet files go into."),
        ],
        workers: WorkersOption = None,
        limit: LimitOption = None,
        json: JsonOption = False,
        quiet: QuietOption = False,
    ) -> None:
        """SQLite files become row payload Parquet: the inverse of materialize.

        Materializing the result gives the same tables, rows and types, blobs included.
        """
        from envbuild.cli.progress import progress_count
        from envbuild.cli.tables import print_table
        from envbuild.materialize.pack import pack_databases

        with progress_count(total=None, label="pack", quiet=quiet) as advance:
            summaries = pack_databases(
                sqlite_dir,
                out,
                workers=workers,
                limit=limit,
                on_packed=lambda count: (advance(count), None)[1],
            )
        problems = [problem for summary in summaries for problem in summary.problems]
        for problem in problems:
            warn(f"not packed: {problem}")
        if json:
            print_json("pack", {"corpora": summaries})
        else:
            headers = ("corpus", "databases", "tables", "rows", "questions", "problems")
            rows = [
                (
                    s.name,
                    f"{s.databases:,}",
                    f"{s.tables:,}",
                    f"{s.rows:,}",
                    f"{s.questions:,}",
                    len(s.problems),
                )
                for s in summaries
            ]
            print_table(headers, rows, right=range(1, len(headers)))
        raise typer.Exit(FINDINGS if problems else OK)
