"""Commands that report: evaluate, compare, card."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from typer import Argument, Option

from envbuild.cards.refresh import Refreshed, card_corpus, refresh_card
from envbuild.cli import options
from envbuild.cli.output import (
    Result,
    print_table,
    print_wrapped,
    say,
    warn,
)
from envbuild.errors import ConfigurationError, UnknownNameError, UsageError
from envbuild.evaluate.curve import read_training_log
from envbuild.evaluate.report import (
    behaviour_rows,
    comparison_rows,
    iter_metrics,
    literal_rows,
    name_score,
    render_comparison,
    render_page,
    write_evaluation,
)
from envbuild.evaluate.runs import evaluate_episodes, evaluate_predictions, withhold_text
from envbuild.evaluate.statistics import compare_all, read_sides
from envbuild.io.files import write_bytes, write_text
from envbuild.records.corpus import interval, percent
from envbuild.records.evaluation import Evaluation


def evaluate(
    source: Annotated[
        Path,
        Argument(help="An episodes folder; with --predictions, the benchmark's own folder."),
    ],
    predictions: Annotated[
        Path | None, Option(help="BIRD JSON, one SQL a line, or JSON lines.")
    ] = None,
    benchmark: Annotated[
        str | None,
        Option(
            metavar="bird|spider|spider-testsuite", help="Default: that of the folder's layout."
        ),
    ] = None,
    manifest: Annotated[
        Path | None, Option(help="Of the episodes; default: the one they were made with.")
    ] = None,
    where: options.WhereOption = "",
    rows: Annotated[
        int | None, Option(min=1, help="A seeded sample of this many; default: every one.")
    ] = None,
    rerun_golds: options.RerunGoldsOption = False,
    seed: options.SeedOption = 0,
    out: Annotated[
        Path | None, options.folder_option("Folder for evaluation.parquet and .json.")
    ] = None,
    html: options.HtmlOption = None,
    no_text: options.NoTextOption = False,
    training_log: Annotated[
        Path | None,
        Option(help="TRL's trainer_state.json, or JSON lines: --html draws its rewards."),
    ] = None,
    metrics: Annotated[Path | None, options.file_option("A JSON line a metric.")] = None,
) -> Result:
    """EX official and strict with intervals, behaviour, and where the rules disagree.

    With --predictions there is no manifest: every gold is run.

    Examples: envbuild evaluate episodes/ --html page.html;
    envbuild evaluate --predictions dev.json --benchmark bird bird/dev/
    """
    if training_log is not None and html is None:
        raise UsageError("--training-log is drawn on a page: name it with --html")
    training = read_training_log(training_log) if training_log else []
    if predictions is not None:
        if where:
            raise UsageError("--where is over a manifest's columns, and --predictions have none")
        run = evaluate_predictions(source, predictions, benchmark=benchmark, rows=rows, seed=seed)
        folder = out
    else:
        run = evaluate_episodes(
            source, manifest=manifest, where=where, rows=rows, seed=seed, rerun_golds=rerun_golds
        )
        folder = out or source
    if no_text:
        run = withhold_text(run)
    found = run.evaluation
    for sentence in run.warnings:
        warn(sentence)
    if folder is not None:
        write_evaluation(folder, found, run.verdicts, run.literals)
    if html is not None:
        write_text(html, render_page(found, run.verdicts, run.episodes, training=training))
    if metrics is not None:
        lines = (msgspec.json.encode(metric) + b"\n" for metric in iter_metrics(found))
        write_bytes(metrics, b"".join(lines))
    return Result(
        {"where": where, "evaluation": found},
        lambda: _show_evaluation(found),
        findings=found.scores[0].unscored,
        wrote=html or folder,
        following=("compare", folder, "OTHER") if folder else (),
    )


def _show_evaluation(evaluation: Evaluation) -> None:
    print_wrapped(f"{evaluation.name}: {evaluation.said}; EX by {evaluation.official_name}")
    hidden = evaluation.scores[0].hidden
    print_table(
        ("group", "EX", "95 %", "strict@1", "n", "unscored")
        + (("hidden@1",) if hidden is not None else ()),
        list(_score_rows(evaluation)),
        right=range(1, 7),
    )
    if hidden is not None:
        ends = interval(hidden.low, hidden.high) if hidden.total else "-"
        say(
            f"hidden@1: {percent(hidden.value)} of {hidden.total} ({ends}) are equal on "
            "generated rows too;\n          a failure there does not make a query wrong"
        )
    if evaluation.rules:
        scored = evaluation.scores[0].official.total
        print_table(
            ("rule", "equal", "share"),
            [(k, v, percent(v / scored if scored else None)) for k, v in evaluation.rules.items()],
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
    if evaluation.behaviour is not None:
        ended = [(f"ended by {k}", v, "") for k, v in evaluation.behaviour.ended_by.items()]
        rows = [*behaviour_rows(evaluation), *ended]
        print_table(("behaviour", "value", "95 %"), rows, right=(1, 2))
    if evaluation.literals:
        heads = ("literals the gold depends on", "value")
        print_table(heads, literal_rows(evaluation), right=(1,))


def _score_rows(evaluation: Evaluation) -> Iterator[tuple[object, ...]]:
    """A row a score, each kind of group under a row with its name."""
    hidden, by = evaluation.scores[0].hidden is not None, ""
    for score in evaluation.scores:
        if score.by != by:
            by = score.by
            yield (f"by {by}", *[""] * (5 + hidden))
        official = score.official
        yield (
            f"  {score.name}" if by else score.name,
            percent(official.value),
            interval(official.low, official.high) if official.total else "-",
            percent(score.strict.value),
            official.total,
            score.unscored,
            *([percent(score.hidden.value) if score.hidden else "-"] if hidden else ()),
        )


def compare(
    sides: Annotated[
        list[str],
        Argument(
            metavar="EVALUATION",
            help="Two or more folders that `envbuild evaluate` wrote into; several seeds as A1,A2.",
        ),
    ],
    rule: Annotated[
        str, Option(metavar="official|strict|hidden", help="What makes an answer right.")
    ] = "official",
    html: options.HtmlOption = None,
    no_text: options.NoTextOption = False,
    seed: options.SeedOption = 0,
) -> Result:
    """Paired statistics on the questions two policies share, corrected over all pairs.

    Example: envbuild compare base/ tuned/ --html page.html
    """
    if html is not None and len(sides) != 2:
        raise UsageError(f"--html shows two evaluations side by side; got {len(sides)}")
    read = read_sides(sides, rule=rule)
    found = compare_all(read, seed=seed)
    noise = {side.name: side.noise for side in read if side.noise}
    (judged,) = read[0].rules  # one: sides of several are refused
    score = name_score(rule, judged)
    if html is not None:
        page = render_comparison(read[0], read[1], found[0], rule=rule, text=not no_text)
        write_text(html, page)

    def show() -> None:
        family = f"{len(found)} comparison{'s' if len(found) > 1 else ''} in this family"
        for c in found:
            title = f"{c.first} against {c.second} by {judged} ({family})"
            print_table(("", "value"), comparison_rows(c, score), title=title, right=(1,))
        for name, floor in noise.items():
            say(
                f"{name}: {floor.runs} runs flip {floor.flipped:.1%} of {floor.questions} "
                f"questions; a delta below {floor.difference:.3f} is within test-retest noise"
            )

    document = {"rule": rule, "comparisons": found, "noise": noise}
    return Result(document, show, wrote=html)


def card(
    files: Annotated[list[Path], Argument(metavar="FILE", help="Data cards, Markdown.")],
    corpus: Annotated[
        Path | None,
        Option(help="The corpus; default: the front matter's envbuild_corpus."),
    ] = None,
    check: Annotated[bool, Option("--check", help="Only look: exit 1 when stale.")] = False,
) -> Result:
    """Refreshes a data card's generated blocks; the prose around them stays.

    Blocks about a corpus need one: --corpus, or envbuild_corpus in the card's front matter;
    without it they are left as they are, and named. A card that --check can compare with nothing
    is refused, and so is a corpus of another reader than the front matter's envbuild_reader.

    Example: envbuild card data_cards/synsql.md --corpus corpus/synsql --check
    """
    done: list[tuple[Path, Refreshed]] = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as e:
            raise UsageError(f"cannot read {file}: {e.strerror}") from e
        except UnicodeDecodeError as e:
            raise UsageError(f"cannot read {file}: it is not UTF-8 text") from e
        try:
            refreshed = refresh_card(text, card_corpus(text, file, corpus))
        except (ConfigurationError, UnknownNameError) as e:
            raise ConfigurationError(f"{file}: {e}") from e
        if check and refreshed.unchecked and not (refreshed.fresh or refreshed.stale):
            raise UsageError(
                f"{file}: all its blocks ({', '.join(refreshed.unchecked)}) are about a corpus, "
                "and there is none to check them against: name it with --corpus"
            )
        if refreshed.stale and not check:
            write_text(file, refreshed.text)
        done.append((file, refreshed))

    def show() -> None:
        for file, refreshed in done:
            say(f"{file}: {_card_said(refreshed, check=check)}")

    cards = [
        {"card": str(f), "stale": r.stale, "fresh": r.fresh, "unchecked": r.unchecked}
        for f, r in done
    ]
    stale = check and any(refreshed.stale for _, refreshed in done)
    document = {"checked_only": check, "cards": cards}
    return Result(
        document,
        show,
        findings=stale,
        following=("card", *files) if stale else (),
    )


def _card_said(refreshed: Refreshed, *, check: bool) -> str:
    """What became of the card; block by block where some need a corpus that is not there."""
    parts = (
        ("stale" if check else "refreshed", refreshed.stale),
        ("fresh", refreshed.fresh if refreshed.unchecked else ()),
        (f"not {'checked' if check else 'refreshed'} without a corpus", refreshed.unchecked),
    )
    return "; ".join(f"{said}: {', '.join(names)}" for said, names in parts if names) or "fresh"
