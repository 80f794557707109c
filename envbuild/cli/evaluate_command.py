"""`envbuild evaluate`: EX and behaviour of episodes, or EX of other people's predictions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import (
    FINDINGS,
    JsonOption,
    RerunGoldsOption,
    SeedOption,
    file_path,
    folder_path,
    print_json,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envbuild.records.evaluation import Behaviour, Evaluation, Share


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("evaluate")(evaluate)


def evaluate(
    source: Annotated[
        Path,
        typer.Argument(
            help="An episodes folder; with --predictions, the benchmark's own folder.",
        ),
    ],
    predictions: Annotated[
        Path | None,
        typer.Option("--predictions", help="BIRD JSON, one SQL a line, or JSON lines."),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(
            "--benchmark",
            help="bird, spider or spider-testsuite; default: that of the folder's layout.",
        ),
    ] = None,
    keys: Annotated[str, typer.Option("--keys", help="BIRD files: auto, id or position.")] = "auto",
    manifest: Annotated[
        Path | None,
        typer.Option("--manifest", help="Of the episodes; default: the one they were made with."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", min=1, help="A seeded sample of this many; default: every one."),
    ] = None,
    _every: Annotated[bool, typer.Option("--all", hidden=True, help="The default.")] = False,
    rerun_golds: RerunGoldsOption = False,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", callback=folder_path, help="Folder for evaluation.parquet and .json."
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", callback=file_path, metavar="FILE", help="One self-contained page."),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option("--metrics", callback=file_path, metavar="FILE", help="A JSON line a metric."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """EX official and strict with intervals, behaviour, and where the rules disagree.

    With --predictions there is no manifest: every gold is run.

    Examples: envbuild evaluate episodes/ --html page.html;
    envbuild evaluate --predictions dev.json --benchmark bird bird/dev/
    """
    from envbuild.evaluate.page import render_page
    from envbuild.evaluate.report import chart_groups, iter_metrics, write_evaluation
    from envbuild.evaluate.runs import evaluate_episodes, evaluate_predictions
    from envbuild.io.files import write_text

    if predictions is not None:
        run = evaluate_predictions(
            source, predictions, benchmark=benchmark, keys=keys, rows=rows, seed=seed
        )
        folder = out
    else:
        run = evaluate_episodes(
            source, manifest=manifest, rows=rows, seed=seed, rerun_golds=rerun_golds
        )
        folder = out or source
    for sentence in run.warnings:
        warn(sentence)
    if folder is not None:
        write_evaluation(folder, run.evaluation, run.verdicts, run.literals)
    if html is not None:
        groups = chart_groups(run.verdicts)
        write_text(html, render_page(run.evaluation, run.verdicts, run.episodes, groups=groups))
        warn(f"wrote {html}")
    if metrics is not None:
        _write_metrics(metrics, list(iter_metrics(run.evaluation)))
    if json:
        print_json("evaluate", {"evaluation": run.evaluation})
    else:
        _print(run.evaluation)
    if run.evaluation.scores[0].unscored:
        raise typer.Exit(FINDINGS)


def _write_metrics(path: Path, records: list[dict[str, object]]) -> None:
    import msgspec

    from envbuild.io.files import write_bytes

    write_bytes(path, b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def _print(evaluation: "Evaluation") -> None:
    from envbuild.cli.tables import print_table, print_wrapped

    print_wrapped(f"{evaluation.name}: {evaluation.said}; EX by {evaluation.official_name}")
    hidden = evaluation.scores[0].hidden
    print_table(
        ("group", "EX", "95 %", "strict@1", "n", "unscored")
        + (("hidden@1",) if hidden is not None else ()),
        list(_score_rows(evaluation)),
        right=(1, 2, 3, 4, 5, 6),
    )
    if hidden is not None:
        typer.echo(
            f"hidden@1: {_percent(hidden)} of {hidden.total} ({_range(hidden)}) are equal on "
            "generated rows too;\n          a failure there does not make a query wrong"
        )
    if evaluation.rules:
        scored = evaluation.scores[0].official.total
        print_table(
            ("rule", "equal", "share"),
            [(k, v, f"{v / scored:.1%}" if scored else "-") for k, v in evaluation.rules.items()],
            right=(1, 2),
        )
        print_table(
            ("rule", *(f"not {name.partition('@')[0]}" for name in evaluation.rules)),
            [
                (one.partition("@")[0], *(others.get(other, "-") for other in evaluation.rules))
                for one, others in evaluation.disagreements.items()
            ],
            title="Answers that the row's rule calls equal and the column's does not:",
            right=range(1, 1 + len(evaluation.rules)),
        )
    if (acted := evaluation.behaviour) is not None:
        shares = (
            ("submitted", "submit_rate"),
            ("SQL that executes", "executable_sql"),
            ("identical repeats among calls", "wasted_calls"),
            ("truncated completions", "truncated"),
            ("fell back to the last working query", "fallback_rate"),
            ("opened every gold table", "opened_all_gold_tables"),
        )
        print_table(
            ("behaviour", "value", "95 %"),
            [
                *((said, *_share(acted, field)) for said, field in shares),
                ("turns an episode", f"{acted.mean_turns:.2f}", ""),
                ("tool calls an episode", f"{acted.mean_tool_calls:.2f}", ""),
                *((f"ended by {k}", v, "") for k, v in acted.ended_by.items()),
            ],
            right=(1, 2),
        )
    if evaluation.literals:
        print_table(
            ("literals the gold depends on", "value"),
            [
                (
                    k.replace("_", " "),
                    "-" if v is None else v if isinstance(v, int) else f"{v:.1%}",
                )
                for k, v in evaluation.literals.items()
            ],
            right=(1,),
        )


def _score_rows(evaluation: "Evaluation") -> "Iterator[tuple[object, ...]]":
    """A row a score, each kind of group under a row with its name."""
    hidden, by = evaluation.scores[0].hidden is not None, ""
    for score in evaluation.scores:
        if score.by != by:
            by = score.by
            yield (f"by {by}", *[""] * (5 + hidden))
        yield (
            f"  {score.name}" if by else score.name,
            _percent(score.official),
            _range(score.official),
            _percent(score.strict),
            score.official.total,
            score.unscored,
            *([_percent(score.hidden) if score.hidden else "-"] if hidden else ()),
        )


def _percent(share: "Share") -> str:
    return "-" if share.value is None else f"{share.value:.1%}"


def _range(share: "Share") -> str:
    return _ends(share.low, share.high) if share.total else "-"


def _share(behaviour: "Behaviour", field: str) -> tuple[str, str]:
    """A share of behaviour and its interval."""
    value, interval = getattr(behaviour, field), behaviour.intervals.get(field)
    return "-" if value is None else f"{value:.1%}", _ends(*interval) if interval else "-"


def _ends(low: float, high: float) -> str:
    return f"{100 * low:.1f}-{high:.1%}"
