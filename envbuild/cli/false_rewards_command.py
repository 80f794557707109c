"""`envbuild false-rewards`: what sparse databases pay to wrong predictions, as a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import (
    JsonOption,
    QuietOption,
    SeedOption,
    WorkersOption,
    print_json,
    warn,
)

if TYPE_CHECKING:
    from envbuild.records.false_rewards import FalseRewards

BIN_HEADERS = ("signal", "wrong", "paid")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("false-rewards")(false_rewards)


def false_rewards(
    sources: Annotated[
        list[Path], typer.Argument(help="Benchmark folders (Spider's or BIRD's layout).")
    ],
    predictions: Annotated[
        Path | None,
        typer.Option("--predictions", help="A system's predictions for one of them."),
    ] = None,
    amplified: Annotated[
        bool,
        typer.Option("--amplified/--no-amplified", help="Grow rows and hidden variants too."),
    ] = True,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Tables in Markdown, for a README.")
    ] = False,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """What databases cut to few rows a table would pay to real wrong predictions.

    Each benchmark is cut to 0, 1, 2, 5, 10, 20 and 68 rows a table. A prediction that is wrong on
    the full database and equal to its gold on the cut is a false reward; one that is right on the
    full database and differs on the cut is refused. Beside them stands the signal: the share of
    wrong queries near the golds that the rows tell apart. Without predictions, the signal alone.

    Example: envbuild false-rewards spider/ bird/ --predictions dev_predictions.jsonl
    """
    from envbuild.cli.progress import progress_count
    from envbuild.corpora.source import read_source
    from envbuild.evaluate.answers import database_paths, read_answers
    from envbuild.signal.false_rewards import measure_benchmark

    studies = []
    for path in sources:
        source = read_source(path)
        paths = database_paths(source)
        answers = read_answers(source, paths, predictions)
        with progress_count(total=len(answers), label=source.name, quiet=quiet) as advance:
            studies.append(
                measure_benchmark(
                    source.name,
                    answers,
                    paths.__getitem__,
                    amplified=amplified,
                    seed=seed,
                    workers=workers,
                    on_measured=advance,
                )
            )
    if predictions is not None and not any(study.predictions for study in studies):
        warn(f"{predictions}: no prediction is for a database of these benchmarks")
    if json:
        print_json("false-rewards", {"benchmarks": studies})
        return
    for study in studies:
        _print_markdown(study) if markdown else _print_study(study)


def _print_study(study: "FalseRewards") -> None:
    from envbuild.cli.tables import print_table

    headers = _headers(study)
    print_table(headers, _cells(study), title=_title(study), right=range(1, len(headers)))
    if study.predictions:
        typer.echo("Wrong predictions paid at 2 rows, by the question's signal there")
        print_table(BIN_HEADERS, _bin_cells(study), right=(1, 2))
    for line in _notes(study):
        typer.echo(line)
    typer.echo("")


def _print_markdown(study: "FalseRewards") -> None:
    typer.echo(f"**{_title(study)}**\n")
    _markdown_table(_headers(study), _cells(study))
    if study.predictions:
        typer.echo("Wrong predictions paid at 2 rows, by the question's signal there:\n")
        _markdown_table(BIN_HEADERS, _bin_cells(study))
    for line in _notes(study):
        typer.echo(line)
    typer.echo("")


def _markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    typer.echo("| " + " | ".join(headers) + " |")
    typer.echo("|---|" + "---:|" * (len(headers) - 1))
    for row in rows:
        typer.echo("| " + " | ".join(row) + " |")
    typer.echo("")


def _title(study: "FalseRewards") -> str:
    parts = [f"{study.databases} databases", f"{study.questions} questions"]
    if study.predictions:
        parts.append(f"{study.predictions} predictions")
    return f"{study.name}: {', '.join(parts)}"


def _headers(study: "FalseRewards") -> Sequence[str]:
    paid = ("wrong paid", "right refused") if study.predictions else ()
    return ("rows a table", *paid, "signal", "gold empty")


def _cells(study: "FalseRewards") -> Sequence[Sequence[str]]:
    """One row a policy; a hidden variant leaves what the visible database shows as it is."""
    rows = []
    for row in study.rows:
        if row.variants and not study.predictions:
            continue
        low, high = row.signal_low, row.signal_high
        signal = "-" if low is None or high is None or row.variants else f"{low:.2f}-{high:.2f}"
        empty = "-" if row.empty_golds is None or row.variants else f"{row.empty_golds:.0%}"
        paid = (
            _share(row.paid, row.wrong, row.paid_share),
            _share(row.refused, row.right, row.refused_share),
        )
        rows.append((row.policy, *(paid if study.predictions else ()), signal, empty))
    return rows


def _bin_cells(study: "FalseRewards") -> Sequence[Sequence[str]]:
    return [
        (f"{one.low:g}-{one.high:g}", str(one.wrong), str(one.paid))
        for one in study.bins
        if one.wrong
    ]


def _share(count: int, total: int, share: float | None) -> str:
    return "-" if share is None else f"{count}/{total} {share:.1%}"


def _notes(study: "FalseRewards") -> Sequence[str]:
    lines = []
    if study.predictions and study.spearman is not None:
        lines.append(f"Spearman of that signal and being paid: {study.spearman:+.2f}.")
    lines.append(
        f"Rewards by {study.verdict}, signal by {study.signal_verdict}; its upper end leaves out"
    )
    lines.append(f"mutants that none of {study.states} fillings tells from their gold.")
    return lines
