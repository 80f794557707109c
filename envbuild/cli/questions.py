"""Commands that turn a corpus into rows: buckets, sample, manifest, pool, export, ladder."""

from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

import msgspec
import polars as pl
from typer import Option

from envbuild.cli import options
from envbuild.cli.output import (
    Result,
    draws_blocks,
    list_counts,
    print_table,
    print_wrapped,
    progress,
    say,
    warn,
)
from envbuild.cli.plots import check_plot_path, plot_lengths, plot_schedule
from envbuild.env.prompts import load_prompts
from envbuild.errors import UnknownNameError, UsageError
from envbuild.evaluate.report import render_page
from envbuild.evaluate.runs import evaluate_ladder
from envbuild.evaluate.statistics import score_group
from envbuild.io.files import write_text
from envbuild.io.packs import cache_folder
from envbuild.manifest.buckets import CorpusBuckets, bucket_corpora, parse_edges
from envbuild.manifest.build import Built, build_manifest
from envbuild.manifest.read import Manifest, open_manifest
from envbuild.manifest.samples import (
    LADDER,
    SampleReport,
    ShownSample,
    resample_manifest,
    same_views,
    sample_corpora,
)
from envbuild.manifest.settings import ManifestSettings, parse_tables
from envbuild.materialize.any_folder import open_any
from envbuild.pipeline.config import BucketsOptions, ManifestOptions, PoolOptions, SampleOptions
from envbuild.preflight.checks import SEVERITIES
from envbuild.records.corpus import counted, interval, percent
from envbuild.records.evaluation import Evaluation, Rung
from envbuild.records.leaks import LEAK_CODES
from envbuild.records.manifest import ManifestRow, ScheduleRow
from envbuild.sql.connect import VERSIONS
from envbuild.train.export import export_manifest
from envbuild.train.pool import (
    FILE,
    Pool,
    PoolChoice,
    build_pool,
    lengths_a_bucket,
    offered_rows,
    write_schedule,
)
from envbuild.train.schedule import (
    Draws,
    StepDraw,
    gate_at,
    load_schedule,
    mixture_at,
    render_schedule,
    suggest_schedule,
)
from envbuild.train.trainer_env import TrainerEnv

SHOWN_CHANGES = 5


def buckets(
    corpus: options.CorpusArgument,
    *,
    settings: BucketsOptions,
    suggest: Annotated[
        int | None, Option(help="Propose the edges of this many even buckets.")
    ] = None,
    limit: options.QuestionLimitOption = None,
    quiet: options.QuietOption = False,
) -> Result:
    """Masked-length buckets and their shares.

    Masks every gold query, cuts at the edges and writes buckets.parquet into each corpus; the
    manifest then takes these edges. --suggest proposes edges from the corpus itself and writes
    nothing, nor does --limit, which looks at each corpus's first questions only. Exit 1 where a
    bucket is empty.

    Example: envbuild buckets corpus/ --edges 149,278 --shares 0.20,0.25,0.55
    """
    with progress("masked", "questions", quiet=quiet) as bar:
        report = bucket_corpora(
            open_any(corpus, on_read=warn),
            edges=_joined(settings.edges),
            mask=settings.mask,
            shares=_joined(settings.shares),
            suggest=suggest,
            limit=limit,
            on_masked=bar.advance,
        )
    if limit is not None:
        warn(f"the first {limit:,} questions of each corpus only: nothing is written")

    def show() -> None:
        for found in report.corpora:
            _show_buckets(found, report.shares)
        for found in report.suggested:
            edges = ",".join(map(str, found.edges))
            _show_buckets(found, None)
            say(f"{found.corpus}: --edges {edges} makes {len(found.bands)} even buckets\n")

    for found in report.corpora:
        if found.empty:
            warn(f"{found.corpus}: no question falls into {', '.join(found.empty)}")
    return Result(
        msgspec.to_builtins(report),
        show,
        findings=any(found.empty for found in report.corpora),
        wrote=corpus if limit is None and suggest is None else None,
        following=("manifest", corpus),
    )


def _joined(numbers: tuple[float | str, ...]) -> str | None:
    """The numbers as they are typed, which is how edges and shares are checked."""
    return ",".join(map(str, numbers)) if numbers else None


def _show_buckets(found: CorpusBuckets, shares: tuple[float, ...] | None) -> None:
    block = "█" if draws_blocks() else "#"
    rows = []
    for position, band in enumerate(found.bands):
        rows.append(
            (
                band.name,
                f"{band.lower}-{band.upper - 1}" if band.upper is not None else f"{band.lower}+",
                f"{band.questions:,}",
                percent(band.share),
                f"{shares[position]:.0%}" if shares else "-",
                block * round(band.share * 24),
            )
        )
    print_table(
        ("bucket", "length", "questions", "share", "pool", ""),
        rows,
        title=f"{found.corpus}: {counted(found.questions, 'question')}, masked {found.mask}; "
        f"length {found.shortest} - {found.median:.0f} - {found.longest}",
        right=range(1, 5),
    )
    if found.pool_size is not msgspec.UNSET:
        largest = counted(found.pool_size, "question")
        say(f"the largest pool with these shares: {largest}\n")


def sample(
    corpus: options.CorpusArgument,
    *,
    settings: SampleOptions,
    show: Annotated[int, Option(min=0, help="Samples to print in full.")] = 1,
    limit: options.QuestionLimitOption = None,
    seed: options.SeedOption = 0,
    workers: options.WorkersOption = None,
    engine: options.EngineOption = "local",
    quiet: options.QuietOption = False,
) -> Result:
    """Sampled schemas: gold tables and distractors, grown along foreign keys.

    Draws a sample for every question, as the manifest would with these options, and runs its gold
    query on a view of just those tables. Writes nothing. Exit 1 where a gold query no longer gives
    its result.

    Example: envbuild sample corpus/ --tables 4:64 --distractors mixed --show 3
    """
    with progress("sampled", "questions", quiet=quiet) as bar:
        report = sample_corpora(
            open_any(corpus, workers=workers, on_read=warn),
            settings=_manifest_settings(settings, seed=seed, limit=limit),
            show=show,
            workers=workers,
            engine=engine,
            watch=bar.reach,
        )
    document = {"corpora": report.corpora, "shown": report.shown}
    return Result(
        document,
        lambda: _show_samples(report),
        findings=report.num_changed,
        following=("manifest", corpus),
    )


def _show_samples(report: SampleReport) -> None:
    rows = [
        [
            found.corpus,
            f"{found.samples:,}",
            _spread(found.sizes),
            _spread(found.gold_sizes),
            f"{found.whole:,}",
            f"{len(found.changed):,}",
            f"{sum(found.refused.values()):,}",
        ]
        for found in report.corpora
    ]
    headers = ["corpus", "samples", "tables", "gold", "whole", "changed", "refused"]
    print_table(headers, rows, right=range(1, 6))
    say("tables and gold: fewest - median - most a sample; whole: every table is in it;")
    say("changed: the gold gives another result; refused: not sampled\n")
    for shown in report.shown:
        _show_sample(shown)
    for found in report.corpora:
        for reason, number in found.refused.items():
            warn(f"{found.corpus}: {number:,} not sampled: {reason}")
        for row_id, difference in found.changed[:SHOWN_CHANGES]:
            warn(f"{row_id}: {difference}")


def _show_sample(shown: ShownSample) -> None:
    say(f"{shown.row_id}: {counted(len(shown.tables), 'table')} (drawn {shown.target_size})")
    say(fill(shown.question, 79, initial_indent="  ", subsequent_indent="  "))
    say(f"  gold         {', '.join(shown.gold_tables) or '-'}")
    say(f"  distractors  {', '.join(shown.distractors) or '-'}")
    say(f"  shown order  {', '.join(shown.tables)}")
    for position, key in enumerate(shown.foreign_keys):
        say(f"  {'' if position else 'keys':11}  {key}")
    say()


def _spread(counts: dict[int, int]) -> str:
    """`4 - 31 - 64`: smallest, median and largest of counted sizes."""
    if not counts:
        return "-"
    each = [size for size, number in sorted(counts.items()) for _ in range(number)]
    return f"{each[0]} - {each[(len(each) - 1) // 2]} - {each[-1]}"


def manifest(
    corpus: options.CorpusArgument,
    *,
    out: Annotated[Path, Option(help="The manifest's folder.")] = Path("manifest"),
    settings: ManifestOptions,
    replace: options.ReplaceOption = False,
    seed: options.SeedOption = 0,
    workers: options.WorkersOption = None,
    engine: options.EngineOption = "local",
    shard: options.ShardOption = None,
    quiet: options.QuietOption = False,
) -> Result:
    """The question pool: one frozen training input a row, gold results beside it.

    Every question becomes a row of manifest.parquet or, with its reason, of rejects.parquet.
    Gold queries run once; their results lie in gold.parquet. The same inputs and seed give the
    same bytes for any --workers. After --shard runs, one run without it joins the parts.
    Exit 1 where rows were left out that neither --leave-out nor --styles asked to leave out.

    Example: envbuild manifest corpus/ --out manifest/ --tables 4:64 --styles verbose,casual
    """
    edges = _joined(settings.edges)
    asked = options.names_of(",".join(settings.leave_out))
    for code in asked:
        if code not in (known := ("leaks", *LEAK_CODES, *SEVERITIES)):
            raise UnknownNameError("finding", code, known)
    # `leaks` stands for the three
    left_out = tuple(one for code in asked for one in (LEAK_CODES if code == "leaks" else (code,)))
    corpora = open_any(corpus, workers=workers, on_read=warn)
    if any(folder.root.is_relative_to(cache_folder()) for folder in corpora):
        warn(
            f"the rows name databases that are linked in {cache_folder()}: `envbuild materialize "
            f"{corpus}` makes a corpus that can be kept and moved"
        )
    with progress("manifest", "parts", quiet=quiet) as bar:
        built = build_manifest(
            corpora,
            out,
            settings=_manifest_settings(
                settings,
                seed=seed,
                limit=settings.limit,
                edges=parse_edges(edges).values if edges is not None else None,
                mask=settings.mask,
                styles=options.names_of(",".join(settings.styles)),
                leave_out=left_out,
                variants=settings.variants,
            ),
            workers=workers,
            engine=engine,
            shard=options.parse_shard_option(shard),
            watch=bar.reach,
            replace=replace,
        )
    document = {
        "out": str(built.out),
        "complete": built.complete,
        "parts": built.parts,
        "parts_done": built.parts_done,
        "rejected": built.counts.rejected,
        "counts": built.counts,
    }
    return Result(
        document,
        lambda: _show_manifest(built),
        findings=built.counts.rejects.keys() - {*left_out, "style_not_taken"},
        wrote=built.out,
        following=("pool", built.out) if built.complete else (),
    )


def _manifest_settings(sampled: SampleOptions, **others: Any) -> ManifestSettings:
    """The manifest's settings: the options of its samples, and others of its own."""
    smallest, largest = parse_tables(sampled.tables)
    return ManifestSettings(
        smallest=smallest,
        largest=largest,
        distractors=sampled.distractors,
        extra=sampled.extra,
        full=sampled.full,
        **others,
    )


def _show_manifest(built: Built) -> None:
    counts = built.counts
    if not built.complete:
        warn(
            f"{built.parts_done} of {built.parts} parts are done: run the other shards, "
            "then once without --shard"
        )
    say(
        f"{counted(counts.offered, 'question')}: {counted(counts.rows, 'row')}, "
        f"{counts.rejected:,} left out, {counted(counts.golds, 'gold result')}"
    )
    if counts.rows:
        rows = [[name, f"{n:,}", f"{n / counts.rows:.1%}"] for name, n in counts.buckets.items()]
        print_table(["bucket", "rows", "share"], rows, right=(1, 2))
    if counts.rejects:
        print_wrapped(f"left out: {list_counts(counts.rejects)}")
    if counts.variants:
        skipped = {name: n for name, n in counts.variants.items() if name != "made"}
        made = counted(counts.variants.get("made", 0), "hidden variant database")
        say(f"{made}; golds that one cannot judge: {list_counts(skipped) or 'none'}")


def pool(
    manifest: options.ManifestArgument,
    *,
    settings: PoolOptions,
    step: Annotated[int, Option(min=0, help="The step to show, from 0.")] = 0,
    test: Annotated[
        list[Path] | None,
        Option(help="Another manifest to keep the pool apart from; repeatable."),
    ] = None,
    suggest: Annotated[
        bool,
        Option("--suggest", help="Print a schedule for this manifest's own buckets; no draw."),
    ] = False,
    seed: options.SeedOption = 0,
    write: Annotated[
        bool, Option("--write", help="Write schedule.parquet: every step, in order.")
    ] = False,
    out: Annotated[
        Path | None,
        Option(help="Where it is written: a folder, or a .parquet file; default: MANIFEST."),
    ] = None,
    plot: Annotated[
        Path | None, Option(help="Chart of lengths, edges and shares: .png or .svg.")
    ] = None,
    plot_schedule: Annotated[
        Path | None, Option(help="Chart of mixture and gate over steps.")
    ] = None,
) -> Result:
    """What a training step draws, and why.

    The pool is filled by bucket shares, kept apart from test rows by schema and by question, and
    drawn by a length curriculum. Exit 1: a bucket cannot fill its share of the pool, or the step
    shown wants more of it than there is. --suggest prints a schedule that the rows offered can
    fill, under the same --test and --where. An expression that is NULL for a row keeps it out:
    `--where "coalesce(signal, 1) >= 0.3"` keeps the rows that were not measured.

    Example: envbuild pool manifest/ --schedule synsql --step 900
    """
    for image in (plot, plot_schedule):
        if image is not None:
            check_plot_path(image)
    opened = open_manifest(manifest)
    choice = PoolChoice(
        size=settings.size,
        seed=seed,
        where=settings.where,
        weigh_by_signal=settings.weigh_by_signal,
    )
    apart = tuple(test or ())
    if suggest:
        lengths = lengths_a_bucket(offered_rows(manifest, choice, test=apart).rows)
        plan = suggest_schedule({name: len(values) for name, values in lengths.items()})
        return Result({"suggested": plan}, lambda: say(render_schedule(plan), end=""))
    plan = load_schedule(settings.schedule)
    if step >= plan.steps:
        raise UsageError(
            f"--step takes 0 to {plan.steps - 1}: schedule {plan.name} has {plan.steps:,} steps; "
            f"got {step}"
        )
    filled = build_pool(manifest, plan, choice, test=apart)
    draws = Draws(plan, filled.rows, seed=seed)
    draw = draws.at(step)
    written: dict[str, Any] = {}
    if write or out is not None:
        path = out or manifest
        if path.suffix != ".parquet" or path.is_dir():
            path /= FILE
        written = {"file": str(path), "rows": write_schedule(path, draws, filled, choice, manifest)}
    if plot is not None:
        _plot_lengths(plot, opened)
    if plot_schedule is not None:
        _plot_schedule(plot_schedule, draws, step)
    for note in filled.notes:
        warn(note)
    questions = [(row, opened.row(row.row_id)) for row in draw.rows]
    document = {
        "schedule": msgspec.to_builtins(draws.schedule),
        "seed": draws.seed,
        "pool": {
            "size": filled.size,
            "buckets": [
                {**msgspec.to_builtins(fill), "lacking": fill.lacking} for fill in filled.fills
            ],
            "where": settings.where,
            "left_out": filled.left_out,
            "test_rows": filled.test_rows,
            "unmeasured": filled.unmeasured,
            "notes": list(filled.notes),
        },
        "step": {
            "step": draw.step,
            "mixture": draw.mixture,
            "gate_probability": draw.gate_probability,
            "counts": draw.counts,
            "lacking": draw.lacking,
            "questions": [
                {
                    "slot": drawn.schedule_slot,
                    "row_id": drawn.row_id,
                    "bucket": drawn.bucket,
                    "epoch": drawn.epoch,
                    "db_id": row.db_id,
                    "question": row.question,
                }
                for drawn, row in questions
            ],
        },
        "written": written or None,
    }
    return Result(
        document,
        lambda: _show_pool(filled, draws, draw, questions),
        findings=filled.lacking or draw.lacking,
        wrote=Path(written["file"]) if written else None,
        following=("export", manifest, "--to", "trl", "--out", "data/trl")
        if written
        else ("pool", manifest, "--write"),
    )


def _show_pool(
    pool: Pool, draws: Draws, draw: StepDraw, questions: list[tuple[ScheduleRow, ManifestRow]]
) -> None:
    print_table(
        ("bucket", "share", "wanted", "offered", "taken", "lacking"),
        [(f.bucket, f"{f.share:.2f}", f.wanted, f.offered, f.taken, f.lacking) for f in pool.fills],
        title=f"pool: {counted(pool.size, 'question')}, schedule {draws.schedule.name}, "
        f"seed {draws.seed}",
        right=range(1, 6),
    )
    if pool.left_out:
        say(f"left out: {list_counts(pool.left_out)}\n")
    mixture = ", ".join(f"{name} {share:.3f}" for name, share in draw.mixture.items())
    say(f"step {draw.step}: {mixture}; submit gate {draw.gate_probability:.4g}")
    print_table(
        ("slot", "bucket", "pass", "row and question (pass: how often its bucket began anew)"),
        [
            (
                drawn.schedule_slot,
                drawn.bucket,
                drawn.epoch + 1,
                f"{drawn.row_id}\n{' '.join(row.question.split())}",
            )
            for drawn, row in questions
        ],
        right=(0, 2),
    )
    for name, count in draw.lacking.items():
        held = draw.counts[name] - count
        warn(
            f"step {draw.step} wants {draw.counts[name]} questions of {name}, and the pool has "
            f"{held}: {'some come twice in one step' if held else 'they are missing'}"
        )
    for bucket in pool.fills:
        if bucket.lacking:
            warn(
                f"the pool lacks {bucket.lacking} of the {bucket.wanted} questions that "
                f"{bucket.bucket} should give (--suggest prints shares that fit)"
            )
    if draw.lacking:
        warn(
            "--suggest prints a schedule for this manifest's own buckets; a manifest of more "
            "questions, or a schedule of fewer a step, helps too"
        )


def _plot_lengths(path: Path, manifest: Manifest) -> None:
    lengths = lengths_a_bucket(pl.DataFrame(manifest.columns("bucket", "masked_length")))
    total = sum(len(values) for values in lengths.values())
    recorded = list(manifest.edges.values())
    if recorded and all(edges == recorded[0] for edges in recorded):
        edges = recorded[0]
    else:  # corpora cut differently share no edge: the shortest of each bucket is shown
        edges = [min(values) for values in list(lengths.values())[1:] if values]
    plot_lengths(path, lengths, edges=edges, title=f"{total:,} questions by masked length")


def _plot_schedule(path: Path, draws: Draws, step: int) -> None:
    plan = draws.schedule
    steps = range(plan.steps)
    plot_schedule(
        path,
        [{name: float(x) for name, x in mixture_at(plan, n).items()} for n in steps],
        [gate_at(plan, n) for n in steps],
        marked_step=step,
        title=f"schedule {plan.name}: {plan.steps:,} steps of {plan.questions} questions",
    )


def export(
    manifest: options.ManifestArgument,
    to: Annotated[
        str, Option(metavar="trl|verl|skyrl|verifiers|nemo|datasets", help="Whose layout.")
    ],
    out: Annotated[Path, Option(help="Folder to write.")],
    schedule: Annotated[
        Path | None, Option(help="schedule.parquet; default: the manifest's own, if any.")
    ] = None,
    preset: options.PresetOption = "default",
    schema: options.SchemaOption = "withheld",
    prompts: options.PromptsOption = None,
    where: options.WhereOption = "",
    replace: Annotated[
        bool, Option("--replace", help="Remove an export there of other settings or inputs.")
    ] = False,
) -> Result:
    """A manifest in a trainer's own layout, in schedule order.

    Questions and prompts stand in the columns that a trainer shows; no answer does. What `pool`
    keeps out is not in the training file, with or without a schedule; rows of an evaluation split
    are in the test file.

    Example: envbuild export manifest/ --to trl --out data/trl
    """
    # An export shows no answer, so it judges by no gold: whichever SQLite made them will do.
    env = TrainerEnv(manifest, prompts=load_prompts(prompts), rerun_golds=True)
    written = export_manifest(
        out,
        to=to,
        env=env,
        preset=preset,
        schema=schema,
        schedule=schedule,
        where=where,
        replace=replace,
    )
    if not env.splits["train"]:
        warn("no row of the manifest may be trained on: there is no training file")
    elif to != "datasets" and not written.scheduled:
        warn("no schedule: the rows are in row_id order (`envbuild pool --write` makes one)")
    if written.left_out:
        warn(f"rows in no file, as `pool` keeps them out: {list_counts(written.left_out)}")
    document = msgspec.to_builtins(written)
    del document["format"]

    def show() -> None:
        rows = [(name, f"{count:,}") for name, count in written.files.items()]
        print_table(("file", "rows"), rows, title=f"{to} layout in {out}", right=(1,))

    return Result({**document, "out": str(out)}, show, wrote=out)


def ladder(
    manifest: options.ManifestArgument,
    out: Annotated[
        Path | None, options.folder_option("Ladder folder; default: MANIFEST/ladder.")
    ] = None,
    html: options.HtmlOption = None,
    rerun_golds: options.RerunGoldsOption = False,
) -> Result:
    """The same questions over the gold tables, 32 distractors more, and the full schema.

    First call: writes one manifest a rung (gold/, plus32/, full/). Roll each out into its own
    episodes/ folder; call again, and the three are reported side by side. On a database of few
    tables two rungs are one view, and a line says on how many rows.

    Example: envbuild ladder manifest/ --out ladder/
    """
    opened = open_manifest(manifest)
    folder = out or manifest / "ladder"
    rows = {size.name: resample_manifest(opened, folder / size.name, size) for size in LADDER}
    whole = LADDER[-1].name
    same = {n: same_views(folder / n, folder / whole) for n in rows if n != whole}
    episodes = {size.name: folder / size.name / "episodes" for size in LADDER}
    played = [(name, path) for name, path in episodes.items() if path.is_dir()]
    rungs = evaluate_ladder(played, rerun_golds=rerun_golds) if played else []
    if html is not None and rungs:
        evaluation = Evaluation(
            name=f"Ladder: {folder.resolve().name}",
            questions=rungs[-1].official.total,
            said="the same questions over three sizes of database",
            official_name="official@1",
            scores=(score_group([]),),
            ladder=tuple(rungs),
            versions=VERSIONS,
        )
        write_text(html, render_page(evaluation, []))

    def show() -> None:
        if rungs:
            _show_rungs(rungs)
        for name, count in same.items():
            if count:
                both = ": one of the two rollouts tells it all" if count == rows[name] else ""
                views = f"{name} shows the same tables as {whole}"
                tell = print_wrapped if rungs else warn
                tell(f"{views} on {count:,} of {rows[name]:,} rows{both}")
        for name, path in episodes.items():
            if (name, path) not in played:
                warn(
                    f"{name}: {rows[name]} rows; next: envbuild rollout {folder / name} "
                    f"--base-url URL --model NAME --evaluation --episodes 1 --out {path}"
                )

    document = {"folder": str(folder), "rows": rows, "same_as_full": same, "rungs": rungs}
    return Result(document, show, wrote=html if rungs else folder)


def _show_rungs(rungs: list[Rung]) -> None:
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
                percent(rung.official.value),
                interval(rung.official.low, rung.official.high),
                percent(rung.strict.value),
                rung.official.total,
                rung.unscored,
                f"[{percent(rung.coverage)}]",
            )
            for rung in rungs
        ],
        right=range(1, 8),
    )
