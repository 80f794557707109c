"""What sparse databases pay to real wrong predictions, as a table.

python docs/studies/false_rewards/run.py spider/ bird/ --predictions dev_predictions.jsonl
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

FOLDER = str(Path(__file__).resolve().parent.parent)
sys.path.insert(0, FOLDER)
os.environ["PYTHONPATH"] = FOLDER  # for the processes that measure

from envbuild.cli.options import (
    JsonOption,
    QuietOption,
    SeedOption,
    WorkersOption,
)
from envbuild.cli.output import Result, finish, progress, warn
from envbuild.errors import EnvbuildError
from envbuild.records.corpus import counted

if TYPE_CHECKING:
    from false_rewards.records import FalseRewards, PolicyRow

BIN_TITLE = "Wrong predictions paid, by the question's signal on the same rows"
BIN_HEADERS = ("signal", "at 2 rows", "at every cut")
SYSTEM_HEADERS = ("system", "paid at 2 rows", "with a variant", "right refused")


class Table(NamedTuple):
    """One of the tables that are printed."""

    title: str
    headers: Sequence[str]
    cells: Sequence[Sequence[str]]


def false_rewards(
    sources: Annotated[
        list[Path], typer.Argument(help="Benchmark folders (Spider's or BIRD's layout).")
    ],
    predictions: Annotated[
        list[Path] | None,
        typer.Option("--predictions", help="A system's predictions for one; may be repeated."),
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
    Several systems are counted together, and each by itself at 2 rows.

    Example: run.py spider/ bird/ --predictions dev_predictions.jsonl
    """
    from envbuild.corpora.source import read_source
    from false_rewards.answers import read_all_answers
    from false_rewards.study import measure_benchmark

    benchmarks = [read_source(path) for path in sources]
    studies = []
    for source, (paths, answers) in zip(
        benchmarks, read_all_answers(benchmarks, predictions or []), strict=True
    ):
        with progress(source.name, "answers", total=len(answers), quiet=quiet) as bar:
            studies.append(
                measure_benchmark(
                    source.name,
                    answers,
                    paths.__getitem__,
                    amplified=amplified,
                    seed=seed,
                    workers=workers,
                    on_measured=bar.advance,
                )
            )
    if predictions and not any(study.predictions for study in studies):
        names = ", ".join(map(str, predictions))
        warn(f"{names}: no prediction is for a database of these benchmarks")
    if json:
        finish("false-rewards", Result({"benchmarks": studies}, str), json=True)
        return
    for study in studies:
        _print_markdown(study) if markdown else _print_study(study)


def _print_study(study: "FalseRewards") -> None:
    from envbuild.cli.output import print_table

    for number, table in enumerate(_tables(study)):
        if number:
            typer.echo(table.title)
        title = "" if number else table.title
        right = range(1, len(table.headers))
        print_table(table.headers, table.cells, title=title, right=right)
    for line in _notes(study):
        typer.echo(line)
    typer.echo("")


def _print_markdown(study: "FalseRewards") -> None:
    for table in _tables(study):
        typer.echo(f"**{table.title}**\n")
        _markdown_table(table.headers, table.cells)
    for line in _notes(study):
        typer.echo(line)
    typer.echo("")


def _tables(study: "FalseRewards") -> Sequence[Table]:
    """All that is shown: the policies, and where there are predictions what the signal foretold."""
    tables = [Table(_title(study), _headers(study), _cells(study))]
    if study.predictions:
        tables.append(Table(BIN_TITLE, BIN_HEADERS, _bin_cells(study)))
    if len(study.systems) > 1:
        tables.append(Table("Each system", SYSTEM_HEADERS, _system_cells(study)))
    return tables


def _markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    typer.echo("| " + " | ".join(headers) + " |")
    typer.echo("|---|" + "---:|" * (len(headers) - 1))
    for row in rows:
        typer.echo("| " + " | ".join(row) + " |")
    typer.echo("")


def _title(study: "FalseRewards") -> str:
    parts = [counted(study.databases, "database"), counted(study.questions, "question")]
    if study.predictions:
        parts.append(counted(study.predictions, "prediction"))
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
        signal = "-" if row.variants else _signal(study, row)
        empty = "-" if row.empty_golds is None or row.variants else f"{row.empty_golds:.0%}"
        paid = (
            _share(row.paid, row.wrong),
            _share(row.refused, row.right),
        )
        rows.append((row.policy, *(paid if study.predictions else ()), signal, empty))
    return rows


def _bin_cells(study: "FalseRewards") -> Sequence[Sequence[str]]:
    return [
        (
            f"{one.low:g}-{one.high:g}",
            _share(one.paid, one.wrong),
            _share(each.paid, each.wrong),
        )
        for one, each in zip(study.sparse.bins, study.every_cut.bins, strict=True)
        if one.wrong or each.wrong
    ]


def _system_cells(study: "FalseRewards") -> Sequence[Sequence[str]]:
    return [
        (
            row.system,
            _share(row.paid, row.wrong),
            _share(row.paid_with_variant, row.wrong),
            _share(row.refused_with_variant, row.right),
        )
        for row in study.systems
    ]


def _share(count: int | None, total: int) -> str:
    return "-" if count is None or not total else f"{count}/{total} {count / total:.1%}"


def _notes(study: "FalseRewards") -> Sequence[str]:
    lines = []
    for what, found in (
        ("at 2 rows", study.sparse.spearman),
        ("at every cut", study.every_cut.spearman),
        (f"over {study.cells} pairs of database and cut", study.by_database),
    ):
        if study.predictions and found is not None:
            lines.append(f"Spearman of signal and being paid, {what}: {found:+.2f}.")
    lines.append(f"Rewards by {study.verdict}, signal by {study.signal_verdict}.")
    if study.has_upper_end:
        lines.append(
            "Its upper end leaves out mutants that none of up to "
            f"{study.fillings} independent fillings"
        )
        lines.append("(the full database and those grown, no cuts) tells from their gold.")
    else:
        lines.append("Only its lower end is shown: what is equivalent to its gold is presumed from")
        lines.append(
            f"{study.fillings_needed} independent fillings, which cuts of one database are not."
        )
    return lines


def _signal(study: "FalseRewards", row: "PolicyRow") -> str:
    """The interval; its lower end alone where nothing stands behind an upper one."""
    low, high = row.signal_low, row.signal_high
    if low is None or high is None:
        return "-"
    return f"{low:.2f}-{high:.2f}" if study.has_upper_end else f"{low:.2f}"


if __name__ == "__main__":
    try:
        typer.run(false_rewards)
    except EnvbuildError as error:
        warn(str(error))
        sys.exit(2)
