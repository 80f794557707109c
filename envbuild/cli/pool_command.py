"""`envbuild pool`: what a training step draws, and the whole schedule as a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envbuild.cli.options import FINDINGS, OK, JsonOption, SeedOption, print_json, warn
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from envbuild.curriculum.draw import Draws, StepDraw
    from envbuild.curriculum.pool import Pool
    from envbuild.manifest.read import Manifest

QUESTION_WIDTH = 58
"""Characters of a question that are shown."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("pool")(pool)


def pool(
    manifest: Annotated[Path, typer.Argument(help="A manifest folder.")],
    schedule: Annotated[
        str, typer.Option("--schedule", help="synsql, none, or a TOML file of the same form.")
    ] = "synsql",
    step: Annotated[int, typer.Option("--step", min=0, help="The step to show, from 0.")] = 0,
    size: Annotated[
        int | None,
        typer.Option("--size", min=1, help="Questions in the pool; default: all the shares allow."),
    ] = None,
    styles: Annotated[
        str | None, typer.Option("--styles", help="Phrasings to keep, comma-separated.")
    ] = None,
    test: Annotated[
        list[Path] | None,
        typer.Option("--test", help="Another manifest to keep the pool apart from; repeatable."),
    ] = None,
    min_signal: Annotated[
        float | None,
        typer.Option("--min-signal", min=0, max=1, help="Leave out rows measured below this."),
    ] = None,
    weigh_by_signal: Annotated[
        bool, typer.Option("--weigh-by-signal", help="Prefer rows with more signal.")
    ] = False,
    borrow: Annotated[
        bool, typer.Option("--borrow", help="Fill what a bucket lacks from the nearest one.")
    ] = False,
    suggest: Annotated[
        bool,
        typer.Option(
            "--suggest", help="Print a schedule for this manifest's own buckets; no draw."
        ),
    ] = False,
    seed: SeedOption = 0,
    write: Annotated[
        bool, typer.Option("--write", help="Write schedule.parquet: every step, in order.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Where it is written: a folder, or a .parquet file; default: MANIFEST."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Chart of lengths, edges and shares: .png or .svg."),
    ] = None,
    plot_schedule: Annotated[
        Path | None, typer.Option("--plot-schedule", help="Chart of mixture and gate over steps.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """What a training step draws, and why.

    The pool is filled by bucket shares, kept apart from test rows by schema and by question, and
    drawn by a length curriculum. Exit 1: a bucket cannot fill its share of the pool, or the step
    shown wants more of it than there is. --suggest prints a schedule that the rows offered can
    fill, under the same --test, --styles and --min-signal.

    Example: envbuild pool manifest/ --schedule synsql --step 900
    """
    from envbuild.cli.plots import check_plot_path
    from envbuild.curriculum.draw import Draws
    from envbuild.curriculum.order import write_schedule
    from envbuild.curriculum.pool import PoolChoice, build_pool, lengths_a_bucket, offered_rows
    from envbuild.curriculum.presets import load_schedule, render_schedule, suggest_schedule
    from envbuild.errors import UsageError
    from envbuild.manifest.read import open_manifest

    for image in (plot, plot_schedule):
        if image is not None:
            check_plot_path(image)
    opened = open_manifest(manifest)
    choice = PoolChoice(
        size=size,
        seed=seed,
        styles=tuple(s.strip() for s in styles.split(",") if s.strip()) if styles else (),
        min_signal=min_signal,
        weigh_by_signal=weigh_by_signal,
        borrow=borrow,
    )
    if suggest:
        lengths = lengths_a_bucket(offered_rows(manifest, choice, test=tuple(test or ())).rows)
        plan = suggest_schedule({name: len(values) for name, values in lengths.items()})
        if json:
            print_json("pool", {"suggested": plan})
        else:
            typer.echo(render_schedule(plan), nl=False)
        return
    plan = load_schedule(schedule)
    if step >= plan.steps:
        raise UsageError(
            f"--step takes 0 to {plan.steps - 1}: schedule {plan.name} has {plan.steps:,} steps; "
            f"got {step}"
        )
    filled = build_pool(manifest, plan, choice, test=tuple(test or ()))
    draws = Draws(plan, filled.rows, seed=seed)
    draw = draws.at(step)
    written: dict[str, Any] = {}
    if write or out is not None:
        path = _schedule_path(out or manifest)
        written = {"file": str(path), "rows": write_schedule(path, draws, filled, choice, manifest)}
    if plot is not None:
        _plot_lengths(plot, opened)
    if plot_schedule is not None:
        _plot_schedule(plot_schedule, draws, step)
    for note in filled.notes:
        warn(note)
    if json:
        print_json("pool", _document(filled, draws, draw, opened, written))
    else:
        _show(filled, draws, draw, opened, written)
    raise typer.Exit(FINDINGS if filled.lacking or draw.lacking else OK)


def _document(
    pool: "Pool", draws: "Draws", draw: "StepDraw", manifest: "Manifest", written: dict[str, Any]
) -> dict[str, Any]:
    import msgspec

    return {
        "schedule": msgspec.to_builtins(draws.schedule),
        "seed": draws.seed,
        "pool": {
            "size": pool.size,
            "buckets": [
                {**msgspec.to_builtins(fill), "lacking": fill.lacking} for fill in pool.fills
            ],
            "left_out": pool.left_out,
            "test_rows": pool.test_rows,
            "unmeasured": pool.unmeasured,
            "notes": list(pool.notes),
        },
        "step": {
            "step": draw.step,
            "mixture": draw.mixture,
            "gate_probability": draw.gate_probability,
            "counts": draw.counts,
            "lacking": draw.lacking,
            "questions": [
                {
                    "slot": row.schedule_slot,
                    "row_id": row.row_id,
                    "bucket": row.bucket,
                    "epoch": row.epoch,
                    "db_id": manifest.row(row.row_id).db_id,
                    "question": manifest.row(row.row_id).question,
                }
                for row in draw.rows
            ],
        },
        "written": written or None,
    }


def _show(
    pool: "Pool", draws: "Draws", draw: "StepDraw", manifest: "Manifest", written: dict[str, Any]
) -> None:
    from envbuild.cli.tables import print_table

    print_table(
        ("bucket", "share", "wanted", "offered", "taken", "borrowed", "lacking"),
        [
            (f.bucket, f"{f.share:.2f}", f.wanted, f.offered, f.taken, f.borrowed, f.lacking)
            for f in pool.fills
        ],
        title=f"pool: {counted(pool.size, 'question')}, schedule {draws.schedule.name}, "
        f"seed {draws.seed}",
        right=(1, 2, 3, 4, 5, 6),
    )
    if pool.left_out:
        parts = ", ".join(f"{count:,} {reason}" for reason, count in pool.left_out.items())
        typer.echo(f"left out: {parts}\n")
    mixture = ", ".join(f"{name} {share:.3f}" for name, share in draw.mixture.items())
    typer.echo(f"step {draw.step}: {mixture}; submit gate {draw.gate_probability:.4g}")
    typer.echo("\nslot  bucket    pass  row and question (pass: how often its bucket began anew)")
    for row in draw.rows:
        head = f"{row.schedule_slot:>4}  {row.bucket:<8}{row.epoch + 1:>6}  "
        typer.echo(f"{head}{row.row_id}")
        typer.echo(f"{'':{len(head)}}{_cut(manifest.row(row.row_id).question)}")
    for name, count in draw.lacking.items():
        held = draw.counts[name] - count
        warn(
            f"step {draw.step} wants {draw.counts[name]} questions of {name}, and the pool has "
            f"{held}: {'some come twice in one step' if held else 'they are missing'}"
        )
    for fill in pool.fills:
        if fill.lacking:
            warn(
                f"the pool lacks {fill.lacking} of the {fill.wanted} questions that {fill.bucket} "
                "should give (--borrow fills them from the nearest bucket)"
            )
    if draw.lacking:
        warn(
            "--suggest prints a schedule for this manifest's own buckets; a manifest of more "
            "questions, or a schedule of fewer a step, helps too"
        )
    if written:
        typer.echo(f"wrote {counted(written['rows'], 'row')} to {written['file']}")


def _schedule_path(out: Path) -> Path:
    """A Parquet file as it is named; in any other folder, the schedule's own name."""
    from envbuild.curriculum.order import FILE

    return out if out.suffix == ".parquet" and not out.is_dir() else out / FILE


def _cut(question: str) -> str:
    line = " ".join(question.split())
    return line if len(line) <= QUESTION_WIDTH else line[: QUESTION_WIDTH - 1] + "…"


def _plot_lengths(path: Path, manifest: "Manifest") -> None:
    import polars as pl

    from envbuild.cli.plots import plot_lengths
    from envbuild.curriculum.pool import lengths_a_bucket

    lengths = lengths_a_bucket(pl.DataFrame(manifest.columns("bucket", "masked_length")))
    total = sum(len(values) for values in lengths.values())
    recorded = list(manifest.edges.values())
    if recorded and all(edges == recorded[0] for edges in recorded):
        edges = recorded[0]
    else:  # corpora cut differently share no edge: the shortest of each bucket is shown
        edges = [min(values) for values in list(lengths.values())[1:] if values]
    plot_lengths(path, lengths, edges=edges, title=f"{total:,} questions by masked length")


def _plot_schedule(path: Path, draws: "Draws", step: int) -> None:
    from envbuild.cli.plots import plot_schedule
    from envbuild.curriculum.schedule import gate_at, mixture_at

    plan = draws.schedule
    steps = range(plan.steps)
    plot_schedule(
        path,
        [{name: float(x) for name, x in mixture_at(plan, n).items()} for n in steps],
        [gate_at(plan, n) for n in steps],
        marked_step=step,
        title=f"schedule {plan.name}: {plan.steps:,} steps of {plan.questions} questions",
    )
