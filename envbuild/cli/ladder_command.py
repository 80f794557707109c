"""`envbuild ladder`: the same questions at three database sizes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import (
    JsonOption,
    RerunGoldsOption,
    file_path,
    folder_path,
    print_json,
    warn,
)

if TYPE_CHECKING:
    from envbuild.records.evaluation import Rung


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("ladder")(ladder)


def ladder(
    manifest: Annotated[Path, typer.Argument(help="A manifest folder.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", callback=folder_path, help="Ladder folder; default: MANIFEST/ladder."
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", callback=file_path, metavar="FILE", help="One self-contained page."),
    ] = None,
    rerun_golds: RerunGoldsOption = False,
    json: JsonOption = False,
) -> None:
    """The same questions over the gold tables, 32 distractors more, and the full schema.

    First call: writes one manifest a rung (gold/, plus32/, full/). Roll each out into its own
    episodes/ folder; call again, and the three are reported side by side. On a database of few
    tables two rungs are one view, and a line says on how many rows.

    Example: envbuild ladder manifest/ --out ladder/
    """
    from envbuild.cli.tables import print_wrapped
    from envbuild.evaluate.runs import evaluate_ladder
    from envbuild.manifest.read import open_manifest
    from envbuild.manifest.resample import LADDER, resample_manifest, same_views

    opened = open_manifest(manifest)
    folder = out or manifest / "ladder"
    rows = {size.name: resample_manifest(opened, folder / size.name, size) for size in LADDER}
    whole = LADDER[-1].name
    same = {n: same_views(folder / n, folder / whole) for n in rows if n != whole}
    episodes = {size.name: folder / size.name / "episodes" for size in LADDER}
    played = [(name, path) for name, path in episodes.items() if path.is_dir()]
    rungs = evaluate_ladder(played, rerun_golds=rerun_golds) if played else []
    if html is not None and rungs:
        _write_page(html, folder, rungs)
    if json:
        print_json(
            "ladder", {"folder": str(folder), "rows": rows, "same_as_full": same, "rungs": rungs}
        )
        return
    if rungs:
        _print(rungs)
    for name, count in same.items():
        if count:
            both = ": one of the two rollouts tells it all" if count == rows[name] else ""
            say = print_wrapped if rungs else warn
            say(
                f"{name} shows the same tables as {whole} on {count:,} of {rows[name]:,} rows{both}"
            )
    for name, path in episodes.items():
        if (name, path) not in played:
            warn(
                f"{name}: {rows[name]} rows; next: envbuild rollout {folder / name} "
                f"--base-url URL --model NAME --evaluation --episodes 1 --out {path}"
            )


def _print(rungs: "list[Rung]") -> None:
    from envbuild.cli.tables import print_table, print_wrapped

    print_wrapped(
        "EX by official@1 over the same questions; in brackets the episodes that opened every gold "
        "table"
    )
    print_table(
        ("view", "tables", "EX", "95 %", "strict@1", "n", "unscored", "opened"),
        [
            (
                rung.name,
                f"{rung.tables:.1f}",
                _percent(rung.official.value),
                f"{100 * rung.official.low:.1f}-{rung.official.high:.1%}",
                _percent(rung.strict.value),
                rung.official.total,
                rung.unscored,
                f"[{_percent(rung.coverage)}]",
            )
            for rung in rungs
        ],
        right=(1, 2, 3, 4, 5, 6, 7),
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _write_page(path: Path, folder: Path, rungs: "list[Rung]") -> None:
    from envbuild.evaluate.page import render_page
    from envbuild.evaluate.scores import score_all
    from envbuild.io.files import write_text
    from envbuild.records.evaluation import Evaluation
    from envbuild.sql.connect import VERSIONS

    evaluation = Evaluation(
        name=f"Ladder: {folder.resolve().name}",
        questions=rungs[-1].official.total,
        said="the same questions over three sizes of database",
        official_name="official@1",
        scores=(score_all([]),),
        ladder=tuple(rungs),
        versions=VERSIONS,
    )
    write_text(path, render_page(evaluation, [], groups={}))
