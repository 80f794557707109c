"""The command that asks whether the test was in training: leaks."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from envbuild.cli import options
from envbuild.cli.output import Result, print_table, print_wrapped, progress, say, warn
from envbuild.io.files import check_file
from envbuild.leaks.page import write_report
from envbuild.leaks.run import THRESHOLD, Found, find_leaks, write_ledgers
from envbuild.leaks.sides import between_splits, read_benchmarks, read_side
from envbuild.records.corpus import counted
from envbuild.records.leaks import LEAKS_FILE, MEASURED

SHOWN = 160
"""Characters of a question or query that an example shows."""


def leaks(
    corpus: Annotated[
        Path,
        Argument(
            default_factory=options.default_corpus,
            show_default="$ENVBUILD_CORPUS, else ./corpus, else ./envbuild-demo/corpus",
            help="A corpus, the folder above several, a manifest, or any folder of databases.",
        ),
    ],
    *,
    against: Annotated[
        list[Path] | None,
        Option(help="A benchmark: the same, or its tables.json or questions alone; repeatable."),
    ] = None,
    threshold: Annotated[
        float, Option(min=0.05, max=1, help="Containment from which schemas are one database.")
    ] = THRESHOLD,
    embed: Annotated[
        str, Option(metavar="MODEL", help="Questions by a sentence-transformers model too.")
    ] = "",
    out: Annotated[
        Path | None, options.folder_option("Folder for leaks.parquet and leaks.html.")
    ] = None,
    workers: options.WorkersOption = None,
    quiet: options.QuietOption = False,
) -> Result:
    """Was the test in training? Databases, questions and queries shared with benchmarks.

    Without --against the evaluation splits are compared with the others. leaks.parquet is written
    into each corpus, where manifest reads it. Exit 1 where something was found.

    Example: envbuild leaks corpus/ --against bird/dev/ --against spider/tables.json --out leaks/
    """
    training = read_side(corpus, on_read=warn)
    if against:
        benchmarks = read_benchmarks(against, on_read=warn)
    else:
        training, benchmarks = between_splits(training)
    for known in training.corpora:
        check_file(known.root / LEAKS_FILE)
    with progress("compared", "databases and questions", quiet=quiet) as bar:
        found = find_leaks(
            training,
            benchmarks,
            threshold=threshold,
            embed=embed,
            workers=workers,
            on_compared=bar.advance,
        )
    write_ledgers(found, training, threshold=threshold)
    if out is not None:
        write_report(found, out, training=training.name, threshold=threshold)
    if found.unread:
        number = counted(len(found.unread), "database")
        warn(f"{number} cannot be read and was not compared, such as {found.unread[0]}")
    return Result(
        {
            "training": training.name,
            "threshold": threshold,
            "unread": found.unread,
            "benchmarks": found.benchmarks,
            "leaks": found.leaks,
        },
        lambda: _show(found, training.name),
        findings=found.any,
        wrote=out or (corpus / LEAKS_FILE if len(training.corpora) == 1 else None),
        following=("manifest", corpus, "--leave-out", "leaks") if training.corpora else (),
    )


def _show(found: Found, training: str) -> None:
    print_table(
        ("benchmark", "databases", "about them", "asked", "queries", "touched", "skeletons"),
        [
            (
                one.benchmark,
                f"{one.leaked_databases:,} of {one.databases:,}",
                f"{one.questions_of_leaked_databases:,}",
                f"{one.leaked_questions:,}",
                f"{one.leaked_queries:,}",
                f"{one.leaked:,} of {one.questions:,}",
                f"{one.skeletons:,}",
            )
            for one in found.benchmarks
        ],
        title=f"What of each benchmark stands in {training}",
        right=range(1, 7),
    )
    print_wrapped(
        "about them: questions about these databases; asked: those that training asks in the same "
        "words or nearly so; queries: those that are training's but for literals; touched: all "
        "three; skeletons: queries of one shape, which is no leak"
    )
    say()
    for one in found.benchmarks:
        for example in one.examples:
            leak = example.leak
            print_wrapped(f"{leak.kind} {leak.score:.2f} ({leak.evidence})")
            for side, db_id, question_id, text in (
                (leak.corpus, leak.db_id, leak.question_id, example.training),
                (
                    leak.benchmark,
                    leak.benchmark_db_id,
                    leak.benchmark_question_id,
                    example.benchmark,
                ),
            ):
                asked = f" {question_id}: {' '.join(text.split())[:SHOWN]}" if question_id else ""
                print_wrapped(f"{side}/{db_id}{asked}")
            say()
    for said in MEASURED:
        print_wrapped(
            f"{said.what} at {said.threshold}: recall {said.recall}, precision {said.precision} on "
            "planted leaks"
        )
