"""`envbuild preflight`: rows per table first, then everything else that ruins a reward."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

from envbuild.cli import options
from envbuild.cli.output import (
    Result,
    draws_blocks,
    list_counts,
    print_table,
    progress,
    say,
    shorten,
    warn,
    width,
)
from envbuild.corpora.folder import CorpusFolder
from envbuild.errors import UsageError
from envbuild.materialize.any_folder import open_any
from envbuild.pipeline.config import PreflightOptions
from envbuild.preflight.checks import EVALUATION_SEVERITIES
from envbuild.preflight.page import write_page
from envbuild.preflight.row_counts import MeasuredCorpus, measure_corpus, read_thresholds
from envbuild.preflight.run import check_databases, conclude, report_document, write_findings
from envbuild.records.corpus import counted, printable
from envbuild.records.execution import Limits
from envbuild.records.preflight import (
    BIN_EDGES,
    PUBLISHED_MEDIANS,
    CorpusReport,
    Finding,
    GoldHealth,
    Report,
    RowStatistics,
    Severity,
    SignalPoint,
)
from envbuild.records.signal import CorpusSignal, SignalSummary
from envbuild.signal.corpus import covers, read_signal, score_corpus, signal_findings, write_signal
from envbuild.sql.connect import VERSIONS
from envbuild.sql.tokens import changed_stretch

MAX_POINTS = 500
"""Databases in the page's plot of rows and signal."""
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_VERDICTS = {Severity.ERROR: "too few", Severity.WARNING: "thin", None: "fine"}


def preflight(
    corpus: options.CorpusArgument,
    *,
    settings: PreflightOptions,
    html: options.HtmlOption = None,
    out: Annotated[
        Path | None, options.folder_option("Where findings go; default: the corpus.")
    ] = None,
    seed: options.SeedOption = 0,
    workers: options.WorkersOption = None,
    engine: options.EngineOption = "local",
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> Result:
    """Rows per table, then signal, then every other check of databases, golds and questions.

    Takes a corpus, the folder above several, or any folder of SQLite files. Writes preflight.json
    and findings.parquet into the corpus. Exit 1: an error finding (--strict: a warning too).

    Example: envbuild preflight corpus/ --html preflight.html
    """
    thresholds = read_thresholds(Path(settings.thresholds) if settings.thresholds else None)
    limits, wanted = Limits(seconds=settings.gold_seconds), _parse_wanted(settings.signal)
    spread: dict[str, Any] = {"workers": workers, "engine": engine}
    folders = open_any(corpus, workers=workers, on_read=warn)
    alone = len(folders) == 1
    with progress("rows counted", "databases", quiet=quiet) as bar:
        measured = [measure_corpus(f, thresholds, on_counted=bar.advance) for f in folders]
    if not json:
        print_rows([(m.folder.name, m.statistics) for m in measured])
    reports = []
    for one in measured:
        folder, signal = one.folder, None
        found: Iterable[Finding] = ()
        if wanted != 0:
            signal = _find_signal(folder, wanted=wanted, seed=seed, quiet=quiet, spread=spread)
        if signal is not None:
            found = signal_findings(signal.scores, signal.summary, thresholds.signal)
            if not json:
                _print_signal(signal.summary)
        label, total = f"{folder.name}: golds run and databases checked", len(one.databases)
        with progress(label, "databases", total=total, quiet=quiet) as bar:
            concluded = conclude(
                one,
                check_databases(one, limits=limits, on_progress=bar.advance, **spread),
                signal=signal.summary if signal else None,
                signal_points=_points(one, signal) if signal else (),
                extra=found,
            )
        home = folder.root if out is None else out if alone else out / folder.name
        write_findings(concluded, home, thresholds)
        reports.append(concluded.report)
    report = Report(corpora=tuple(reports), thresholds=thresholds, versions=VERSIONS)
    if html is not None:
        write_page(report, html)
    return Result(
        report_document(report),
        lambda: _show_checks(report),
        findings=report.errors or (settings.strict and report.warnings),
        wrote=html or out or corpus,
        following=("buckets", corpus),
    )


def _parse_wanted(text: str) -> int | None:
    """Golds to score; None: all, 0: none."""
    if text in ("all", "off"):
        return None if text == "all" else 0
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise UsageError(f"--signal takes all, off or a number of golds; got {text!r}")


def _find_signal(
    folder: CorpusFolder, *, wanted: int | None, seed: int, quiet: bool, spread: dict[str, Any]
) -> CorpusSignal | None:
    """The corpus's signal, read from signal.parquet where it answers, else scored and stored.

    None where the corpus has no gold.
    """
    stored = signal = read_signal(folder)
    if signal is None or not covers(signal, wanted=wanted, seed=seed):
        with progress(f"{folder.name}: signal", "golds", total=wanted, quiet=quiet) as bar:
            signal = score_corpus(folder, wanted=wanted, seed=seed, on_scored=bar.advance, **spread)
        write_signal(folder, signal)
        if stored is not None and stored.summary.sampled > signal.summary.sampled:
            was, now = _sample(stored.summary), _sample(signal.summary)
            warn(f"{folder.name}: its sample of {was} was replaced by one of {now}")
    return signal if signal.summary.sampled else None


def _sample(summary: SignalSummary) -> str:
    version = summary.version or "no version"
    return f"{counted(summary.sampled, 'question')} (seed {summary.seed}, {version})"


def _points(measured: MeasuredCorpus, signal: CorpusSignal) -> tuple[SignalPoint, ...]:
    """Median rows and mean signal of the databases that have both."""
    scores: dict[str, list[float]] = defaultdict(list)
    for score in signal.scores:
        if score.signal_high is not None:
            scores[score.db_id].append(score.signal_high)
    rows = {d.row.db_id: list((d.counts or {}).values()) for d in measured.databases}
    return tuple(
        SignalPoint(
            db_id=db_id,
            median_rows=float(median(rows[db_id])),
            signal=fmean(scores[db_id]),
            scored=len(scores[db_id]),
        )
        for db_id in sorted(scores)
        if rows.get(db_id)
    )[:MAX_POINTS]


def print_rows(corpora: Sequence[tuple[str, RowStatistics]]) -> None:
    """Rows per table, one row a corpus, then a distribution bar each and the verdicts."""
    counts = ("databases", "tables", "rows", "median", "p10", "p90", "mean")
    print_table(
        ("corpus", "dbs", *counts[1:], "empty", "<=2"),
        [
            (
                name,
                *(_compact(getattr(s, count)) for count in counts),
                _percent(s.share_empty),
                _percent(s.share_at_most_2),
            )
            for name, s in corpora
        ],
        title="Rows per table",
        right=range(1, 10),
    )
    say(f"Published medians: {' · '.join(f'{p.corpus} {p.render()}' for p in PUBLISHED_MEDIANS)}")
    axis = " ".join(f"{_compact(edge):<3}" for edge in BIN_EDGES[::2]).rstrip()
    bars = [(name, _distribution_bar(s), _VERDICTS[s.verdict]) for name, s in corpora]
    print_table(("Tables by rows", axis, ""), bars)
    for name, s in corpora:
        for reason in s.reasons:
            say(printable(f"{s.verdict.value if s.verdict else ''}: {name}: {reason}"))
    say()


def _distribution_bar(statistics: RowStatistics) -> str:
    """Two characters a bin of `BIN_EDGES`, as high as the bin's share of the fullest one."""
    bars = BARS if draws_blocks() else PLAIN_BARS
    most = max(statistics.histogram) or 1
    heights = (max(1, round(n / most * (len(bars) - 1))) if n else 0 for n in statistics.histogram)
    return "".join(bars[height] * 2 for height in heights)


def _print_signal(signal: SignalSummary) -> None:
    """A corpus's signal: of wrong queries near its golds, the share that its rows tell apart."""
    scored = f"{signal.scored} of {signal.sampled} sampled questions"
    say(f"Signal of {signal.corpus or 'corpus'} ({scored}, {signal.verdict})")
    if signal.mean_low is not None and signal.mean_high is not None:
        low, high = f"{signal.mean_low:.2f}", f"{signal.mean_high:.2f}"
        behind = f"   variants {signal.variants}" if signal.variants else ""
        say(
            f"  mean {low if low == high else f'{low} to {high}'}   median {signal.median:.2f}   "
            f"below 0.5: {_percent(signal.share_below_half or 0.0)}   "
            f"empty golds: {signal.empty_golds}{behind}"
        )
    if signal.unscored:
        say(shorten(f"  without a score: {list_counts(signal.unscored)}"))
    if signal.top_alive:
        alive = ", ".join(f"{o.operator} {o.alive}/{o.mutants}" for o in signal.top_alive)
        say(shorten(f"  most often unnoticed: {alive}"))
    if (example := signal.example) is not None:
        rows = counted(example.gold_rows, "row")
        say(shorten(f"  {example.question} ({example.db_id}: {rows})"))
        say(shorten(f"    gold  {example.gold_sql}"))
        say("    wrong, with the gold's result here, so paid in full:")
        for sql in example.wrong_sql:
            say(f"          {_around_change(example.gold_sql, sql, width() - 10)}")
    say()


def _show_checks(report: Report) -> None:
    _print_golds([(c.corpus, c.gold) for c in report.corpora if c.gold.golds])
    for corpus in report.corpora:
        _print_findings(corpus)
    say(f"{counted(report.errors, 'error')}, {counted(report.warnings, 'warning')}")
    if any(c.rows.verdict for c in report.corpora):
        warn("Few rows make wrong queries win by luck; `envbuild amplify` adds rows.")


def _print_golds(corpora: Sequence[tuple[str, GoldHealth]]) -> None:
    """What became of the gold queries, one row a corpus."""
    if not corpora:
        return
    others = ("timeout", "empty", "trivial", "undetermined", "sound")
    print_table(
        ("corpus", "golds", "fail", "timeout", "empty", "trivial", "undeterm.", "sound", "share"),
        [
            (
                name,
                _compact(g.golds),
                _compact(g.error + g.denied + g.truncated),
                *(_compact(getattr(g, count)) for count in others),
                _percent(g.sound / g.golds),
            )
            for name, g in corpora
        ],
        title="Gold queries",
        right=range(1, 9),
    )


def _print_findings(report: CorpusReport) -> None:
    """One corpus's findings by code, then the first example of each."""
    if not report.findings:
        say(printable(f"{report.corpus}: no findings"))
        return
    print_table(
        ("severity", "code", "findings", "cases", "databases"),
        [
            # a finding of the corpus names no database
            (f.severity.value, f.code, f.findings, f.count, f.databases or "all")
            for f in report.findings
        ],
        title=f"Findings in {report.corpus}",
        right=(2, 3, 4),
    )
    for found in report.findings:
        if found.code == "few_rows":
            continue  # its reasons stand above, under the distribution
        example = found.examples[0]
        where = f"{example.db_id}: " if example.db_id else ""
        say(shorten(f"{found.code}: {where}{example.message}"))
        if found.severity is EVALUATION_SEVERITIES.get(found.code):
            say("  a warning only: questions for evaluation, on which nobody is trained")
    say()


def _compact(value: float) -> str:
    """A number in at most five characters: 12, 4.5, 202k, 1.4M."""
    for limit, unit, size in ((1e9, "G", 1e9), (1e6, "M", 1e6), (1e4, "k", 1e3)):
        if abs(value) >= limit:
            scaled = value / size
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.3g}{unit}"
    if float(value).is_integer():
        edge = int(value)
        return f"{edge // 1000}k" if edge >= 1000 and edge % 1000 == 0 else str(edge)
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def _percent(share: float) -> str:
    """A share in whole per cent; a small one is never shown as none."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def _around_change(gold: str, wrong: str, room: int) -> str:
    """A wrong query on one line, cut so that what was changed in it is seen."""
    gold, wrong = " ".join(gold.split()), " ".join(wrong.split())
    start, end = changed_stretch(gold, wrong)
    first = max(0, min(start - room // 3, len(wrong) - room + 1)) if end > room - 8 else 0
    return shorten("…" * (first > 0) + wrong[first:], room)
