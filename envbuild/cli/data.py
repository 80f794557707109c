"""Commands that make corpora: materialize, pack, unpack, synth, amplify."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from envbuild.cli import options
from envbuild.cli.output import (
    Result,
    list_counts,
    print_records,
    print_table,
    progress,
    say,
    warn,
)
from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.corpora.source import Source, read_sources
from envbuild.corpora.synthetic import write_shape
from envbuild.errors import UsageError
from envbuild.generate.corpus import amplify_corpus, parse_rows
from envbuild.io.json_stream import RawRecord, iter_json
from envbuild.io.packs import pack_files, unpack_files
from envbuild.io.parquet import iter_records
from envbuild.materialize.any_folder import open_any
from envbuild.materialize.corpus import CorpusSummary, build_corpus
from envbuild.materialize.pack import pack_databases
from envbuild.pipeline.config import MaterializeOptions
from envbuild.records.corpus import counted
from envbuild.records.signal import AmplifySettings, CorpusGrowth, GoldState

SHOWN_GOLDS = 10


def materialize(
    source: Annotated[
        list[str],
        Argument(
            metavar="SOURCE",
            help="Folders, Parquet or JSON record files, or hub ids (owner/name@revision). "
            "SQaLe's two sets may be given one after the other.",
        ),
    ],
    *,
    out: Annotated[Path, options.folder_option("Folder the corpora go into.")] = Path("corpus"),
    settings: MaterializeOptions,
    engine: options.EngineOption = "local",
    workers: options.WorkersOption = None,
    shard: options.ShardOption = None,
    quiet: options.QuietOption = False,
) -> Result:
    """Row payloads or ready SQLite files become databases with a catalogue and questions.

    Run the same command again after an interruption: it resumes.

    Example: envbuild materialize SynSQL-2.5M/ BIRD/dev_20240627/ --out corpus/
    """
    name, revision = settings.name or None, settings.revision
    sources = read_sources(
        source, settings.reader, split=settings.split, fields=options.parse_fields(settings.fields)
    )
    if revision:
        sources = [dataclasses.replace(found, revision=revision) for found in sources]
    sources = [dataclasses.replace(found, licence=settings.licence) for found in sources]
    names = [name or found.name for found in sources]
    if repeated := sorted({n for n in names if names.count(n) > 1}):
        raise UsageError(
            f"several sources are called {', '.join(repeated)}: materialize them one by one, "
            "each with its own --name"
        )
    summaries = []
    for found in sources:
        warn(f"{found.name}: {found.description}")
        with progress(found.name, "databases", quiet=quiet) as bar:
            built = build_corpus(
                found,
                out,
                name=name,
                split=settings.split,
                limit=settings.limit,
                link=settings.link,
                engine=engine,
                workers=workers,
                shard=options.parse_shard_option(shard) or (0, 1),
                on_built=bar.advance,
            )
        if settings.packed and built.complete:
            folder = CorpusFolder(Path(built.root))
            pack_files(folder.root, [row.sqlite_file for row in folder.databases()])
        summaries.append(built)
    document = {
        "built": sum(summary.databases for summary in summaries),
        "failed": sum(summary.failed for summary in summaries),
        "corpora": summaries,
    }
    refused = False
    for summary, found in zip(summaries, sources, strict=True):
        if summary.complete and summary.databases and not summary.questions:
            warn(f"{summary.name}: {_why_no_questions(summary, found)}")
            refused |= bool(summary.questions_refused)
    complete = all(summary.complete for summary in summaries)
    if document["failed"] and not document["built"] and complete:
        reasons = sum((Counter(summary.rejects) for summary in summaries), Counter[str]())
        warn(
            f"none of the databases could be built: {list_counts(reasons)}; rejects.parquet in "
            f"{out} says why"
        )
    return Result(
        document,
        lambda: _show_built(summaries, name),
        findings=document["failed"] or refused,
        wrote=out,
        following=("preflight", out) if complete and document["built"] else (),
    )


def unpack(corpus: options.CorpusArgument, quiet: options.QuietOption = False) -> Result:
    """A packed corpus gets its database files back; the inverse of materialize --packed.

    Example: envbuild unpack corpus/
    """
    folders = open_corpora(corpus)
    with progress("unpacked", "databases", quiet=quiet) as bar:
        counts = {folder.name: unpack_files(folder.root, bar.advance) for folder in folders}
    return Result(
        {"corpora": counts},
        lambda: print_table(("corpus", "databases"), [(n, f"{c:,}") for n, c in counts.items()]),
        wrote=corpus,
        following=("preflight", corpus),
    )


def _why_no_questions(summary: CorpusSummary, source: Source) -> str:
    """Whether there were none, or why all were refused: by the keys of the first record."""
    if not summary.questions_refused:
        return "databases without questions"
    said = f"{counted(summary.questions_refused, 'question')} offered, all refused"
    file = next((file for file in source.files if file.suffix in (".json", ".jsonl")), None)
    if file is None:
        return f"{said}: rejects.parquet says why"

    keys = ", ".join(next(iter_json(file, RawRecord), {})) or "none"
    return (
        f"{said}: {file.name} has the keys {keys}; a question needs db_id, question, and its SQL "
        "under SQL, query or sql"
    )


def _show_built(summaries: list[CorpusSummary], name: str | None) -> None:
    if complete := [summary for summary in summaries if summary.complete]:
        print_records(
            ("corpus", "built", "failed", "tables", "rows", "refused", "questions"),
            complete,
            *("databases", "failed", "tables", "rows", "rows_refused", "questions"),
        )
    for s in summaries:
        if name is not None and s.name != name:
            warn(f"--name {name!r} is no folder name on every system: the corpus is {s.name}")
        if not s.complete:
            say(f"{s.name}: this shard is done; the corpus is whole when all shards are")
        elif s.rejects:
            say(f"{s.name}/rejects.parquet: {list_counts(s.rejects)}")
        if s.resumed:
            warn(f"{s.name}: {s.root} was complete already; nothing was built")


def pack(
    sqlite_dir: Annotated[
        Path, Argument(help="A folder of SQLite files, one file, or a corpus folder.")
    ],
    out: Annotated[Path, options.folder_option("Folder the Parquet files go into.")],
    workers: options.WorkersOption = None,
    limit: options.DatabaseLimitOption = None,
    quiet: options.QuietOption = False,
) -> Result:
    """SQLite files become row payload Parquet: the inverse of materialize.

    Materializing the result gives the same tables, rows and types, blobs included.

    Example: envbuild pack BIRD/dev_20240627/dev_databases/ --out payloads/
    """
    with progress("packed", "databases", quiet=quiet) as bar:
        packed = pack_databases(
            sqlite_dir, out, workers=workers, limit=limit, on_packed=bar.advance
        )
    problems = [problem for summary in packed for problem in summary.problems]
    for problem in problems:
        warn(f"not packed: {problem}")

    def show() -> None:
        fields = ("databases", "tables", "rows", "questions")
        print_records(("corpus", *fields), packed, *fields)

    return Result(
        {"corpora": packed},
        show,
        findings=problems,
        wrote=out,
        following=("materialize", out),
    )


def synth(
    shape: Annotated[str, Argument(metavar="sqale|synsql|bird", help="The corpus it looks like.")],
    databases: Annotated[int, Option(min=0, help="How many databases.")],
    out: Annotated[Path, options.folder_option("Folder the source goes into.")],
    seed: options.SeedOption = 0,
) -> Result:
    """Writes a synthetic source, shaped and laid out like a real corpus.

    Its gold queries ask for values that are there, so their results mean something.

    Example: envbuild synth sqale --databases 200 --out synthetic/ --seed 1
    """
    made = write_shape(shape, out, databases=databases, seed=seed)

    def show() -> None:
        headers = ("shape", "databases", "tables", "rows", "questions")
        counts = (made.databases, made.tables, made.rows, made.questions)
        print_table(headers, [(made.shape, *(f"{n:,}" for n in counts))], right=range(1, 5))

    return Result(
        {"seed": seed, "written": made},
        show,
        wrote=out,
        following=("materialize", made.out),
    )


def amplify(
    corpus: options.CorpusArgument,
    out: Annotated[Path, options.folder_option("Folder the amplified corpora go into, one each.")],
    rows: Annotated[
        str,
        Option(
            metavar="LOW:HIGH",
            help="Rows a table is filled to, drawn between the two; what golds ask for comes "
            "on top.",
        ),
    ] = "30:70",
    group: Annotated[int, Option(min=1, help="Gold queries worked on at a time.")] = 20,
    guided: Annotated[
        bool,
        Option("--guided", help="Go on with rows that tell a gold from one more wrong query."),
    ] = False,
    declared_only: Annotated[
        bool,
        Option(
            "--declared-only", help="Keep declared rules alone: new NULLs, repeated names and all."
        ),
    ] = False,
    seed: options.SeedOption = 0,
    limit: options.DatabaseLimitOption = None,
    engine: options.EngineOption = "local",
    workers: options.WorkersOption = None,
    shard: options.ShardOption = None,
    quiet: options.QuietOption = False,
) -> Result:
    """Rows are added under every constraint until golds can be told from wrong queries.

    Every original row stays as it is; added rows are listed in added_rows.parquet. Exit 1
    when a gold query still returns nothing.

    Example: envbuild amplify corpus/ --rows 30:70 --guided --out corpus-dense/
    """
    low, high = parse_rows(rows)
    settings = AmplifySettings(
        rows_low=low,
        rows_high=high,
        group=group,
        observed=not declared_only,
        guided=guided,
        seed=seed,
    )
    grown = []
    for folder in open_any(corpus, workers=workers, on_read=warn):
        total = len(folder.databases()[:limit])
        with progress(folder.name, "databases", total=total, quiet=quiet) as bar:
            growth = amplify_corpus(
                folder,
                out,
                settings=settings,
                limit=limit,
                workers=workers,
                engine=engine,
                shard=options.parse_shard_option(shard) or (0, 1),
                on_done=bar.advance,
            )
        grown.append(growth)
    listed = {growth.name: _empty_golds(growth) for growth in grown if growth.complete}
    document = {"corpora": grown, "empty_golds": listed}
    return Result(
        document,
        lambda: _show_grown(grown, listed),
        findings=any(growth.empty for growth in grown),
        wrote=out,
        following=("preflight", out),
    )


def _show_grown(grown: list[CorpusGrowth], empty: dict[str, list[str]]) -> None:
    for growth in grown:
        if not growth.complete:
            say(f"{growth.name}: this shard is done; the corpus is whole when all are")
            continue
        lines = [
            ("rows", f"{growth.rows_before:,}", f"{growth.rows_before + growth.rows_added:,}"),
            ("rows a table, median", f"{growth.rows_a_table_before:g}", f"{growth.rows_a_table:g}"),
            ("gold queries without rows", f"{growth.empty_before:,}", f"{growth.empty:,}"),
        ]
        if growth.signal is not None and growth.signal_before is not None:
            before, after = f"{growth.signal_before:.2f}", f"{growth.signal:.2f}"
            lines.append(("signal, mean (low)", before, after))
        databases = f"{counted(growth.databases, 'database')}, {counted(growth.tables, 'table')}"
        title = f"{growth.name}: {databases}, {counted(growth.golds, 'gold query', 'gold queries')}"
        print_table(("", "before", "after"), lines, title=title, right=(1, 2))
        for count, said in (
            (growth.not_amplified, "databases copied as they were, see rejects.parquet"),
            (growth.golds_failing, "gold queries that did not run before"),
            (growth.tie_sensitive, "gold queries that rest on a tie under LIMIT or in a window"),
        ):
            if count:
                say(f"{said}: {count:,}")
        if names := empty[growth.name]:
            more = f", … ({len(names):,} in all)" if len(names) > SHOWN_GOLDS else ""
            say(f"still without rows: {', '.join(names[:SHOWN_GOLDS])}{more}")
        if growth.resumed:
            warn(f"{growth.name}: {growth.root} was complete already; nothing was added")


def _empty_golds(growth: CorpusGrowth) -> list[str]:
    """`db_id/question_id` of every gold that still returns nothing."""
    states = iter_records(Path(growth.root) / "amplified_golds.parquet", GoldState)
    return [f"{state.db_id}/{state.question_id}" for state in states if state.rows_after == 0]
