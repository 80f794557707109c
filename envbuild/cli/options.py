"""The shared options, one spelling each, and what every command does with them."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from envbuild.records.counted import printable

OK, FINDINGS, USAGE, BUG, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 70, 130, 141
"""Exit codes; 141 is what a shell shows of a tool that a closed pipe ends (128 + SIGPIPE)."""


def default_corpus() -> Path:
    """`$ENVBUILD_CORPUS`, else ./corpus."""
    return Path(os.environ.get("ENVBUILD_CORPUS") or "corpus")


CorpusArgument = Annotated[
    Path,
    typer.Argument(
        default_factory=default_corpus,
        show_default="$ENVBUILD_CORPUS, else ./corpus",
        help="A corpus folder, or the folder above several.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Run seed; same seed, same bytes.")]
LimitOption = Annotated[int | None, typer.Option("--limit", min=0, help="Stop after this many.")]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes; default: one a core.")
]


def _check_engine(name: str) -> str:
    """What is no engine, or not installed, is said before anything runs."""
    if name != "local":
        from envbuild.engine.fanout import load_engine

        load_engine(name)
    return name


EngineOption = Annotated[
    str, typer.Option("--engine", callback=_check_engine, help="local or ray.")
]
ShardOption = Annotated[
    str | None, typer.Option("--shard", metavar="I/N", help="Only shard I of N (Slurm arrays).")
]
TablesOption = Annotated[str, typer.Option("--tables", help="Fewest and most tables of a sample.")]
DistractorsOption = Annotated[
    str, typer.Option("--distractors", help="Added tables: fk, lexical, random or mixed.")
]
ExtraOption = Annotated[
    int | None, typer.Option("--extra", min=0, help="The gold tables and exactly this many.")
]
FullOption = Annotated[bool, typer.Option("--full", help="Every table of the database.")]
RerunGoldsOption = Annotated[
    bool,
    typer.Option(
        "--rerun-golds", help="Judge by golds run here, each once, not by those in the manifest."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]


def file_path(path: Path | None) -> Path | None:
    """Callback of an option that names a file to write: what cannot be one is said at once."""
    from envbuild.io.files import check_file

    if path is not None:
        check_file(Path(path))
    return path


def folder_path(path: Path | None) -> Path | None:
    """Callback of an option that names a folder to write into."""
    from envbuild.io.files import check_folder

    if path is not None:
        check_folder(Path(path))
    return path


def print_json(command: str, document: dict[str, Any]) -> None:
    """The one JSON document of a `--json` run: format and versions, then the command's own keys."""
    from envbuild.sql.connect import VERSIONS

    body = {"format": f"envbuild.{command}/1", "versions": VERSIONS, **document}
    encoded = msgspec.json.format(msgspec.json.encode(body), indent=2)
    sys.stdout.buffer.write(encoded + b"\n")


def warn(sentence: str) -> None:
    """A sentence for the operator, on stderr."""
    typer.echo(printable(sentence), err=True)
