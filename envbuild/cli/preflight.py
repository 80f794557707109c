"""`envbuild preflight`: rows per table first, then everything else that ruins a reward."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import typer

from envbuild.cli.options import (
    CorpusArgument,
    EngineOption,
    JsonOption,
    QuietOption,
    SeedOption,
    ShardOption,
    WorkersOption,
    file_option,
    folder_option,
    parse_shard_option,
)
from envbuild.cli.output import console, draws_blocks, emit, end, progress, warn
from envbuild.corpora.folder import CorpusFolder
from envbuild.errors import UsageError
from envbuild.materialize.any_folder import open_any
from envbuild.pipeline.config import PreflightOptions
from envbuild.preflight.checks import EVALUATION_SEVERITIES
from envbuild.preflight.page import write_page
from envbuild.preflight.row_counts import (
    MeasuredCorpus,
    measure_corpora,
    measure_corpus,
    read_thresholds,
)
from envbuild.preflight.run import (
    CheckedDatabase,
    CorpusFindings,
    as_report,
    check_databases,
    conclude,
    configuration_of,
    read_parts,
    remove_parts,
    report_document,
    write_findings,
    write_part,
)
from envbuild.records.corpus import counted
from envbuild.records.execution import Limits
from envbuild.records.preflight import (
    BIN_EDGES,
    PUBLISHED_MEDIANS,
    CorpusReport,
    GoldHealth,
    Report,
    RowStatistics,
    Severity,
    SignalPoint,
    Thresholds,
)
from envbuild.records.signal import CorpusSignal, SignalSummary
from envbuild.signal.corpus import covers, read_signal, score_corpus, signal_findings, write_signal
from envbuild.signal.score import SIGNAL_LIMITS
from envbuild.sql.tokens import changed_stretch

MAX_POINTS = 500
"""Databases in the page's plot of rows and signal."""
NAME_WIDTH = 16
LINE_WIDTH = 79
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_LIMITED = frozenset(("gold_timeout", "gold_truncated"))
"""Reasons for no signal that hang on how much a query may use."""
_VERDICTS = {Severity.ERROR: "too few", Severity.WARNING: "thin", None: "fine"}
_ROW_WIDTHS = (6, 8, 7, 8, 6, 7, 7, 7, 6)
_GOLD_WIDTHS = (8, 6, 9, 7, 9, 11, 7, 6)


def preflight(
    corpus: CorpusArgument,
    *,
    settings: PreflightOptions,
    html: Annotated[Path | None, file_option("Write a self-contained page to this file.")] = None,
    out: Annotated[
        Path | None,
        folder_option("Where findings go; default: the corpus."),
    ] = None,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    shard: ShardOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Rows per table, then signal, then every other check of databases, golds and questions.

    Takes a corpus, the folder above several, or any folder of SQLite files. Writes preflight.json
    and findings.parquet into the corpus. Exit 1: an error finding (--strict: a warning too).

    Example: envbuild preflight corpus/ --html preflight.html
    """

    run = _Run(
        thresholds=read_thresholds(Path(settings.thresholds) if settings.thresholds else None),
        limits=Limits(seconds=settings.gold_seconds),
        wanted=_parse_wanted(settings.signal),
        shard=parse_shard_option(shard),
        seed=seed,
        spread={"workers": workers, "engine": engine},
        quiet=quiet,
    )
    folders = open_any(corpus, workers=workers, on_read=warn)
    alone = len(folders) == 1
    homes = {f.name: f.root if out is None else out if alone else out / f.name for f in folders}
    if run.shard is not None and not _check_shard(folders, homes, run):
        raise typer.Exit()
    measured = measure_corpora(folders, run.thresholds)
    if not json:
        print_rows([(m.folder.name, m.statistics) for m in measured])
    found = [_check(one, homes[one.folder.name], run, show=not json) for one in measured]
    report = as_report([each.report for each in found], run.thresholds)
    if html is not None:
        write_page(report, html)
    emit("preflight", report_document(report), lambda: _show_checks(report), json=json)
    end(findings=report.errors or (settings.strict and report.warnings))


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The options of one call that its steps share."""

    thresholds: Thresholds
    limits: Limits
    wanted: int | None
    """Golds scored; None: all, 0: none."""
    shard: tuple[int, int] | None
    seed: int
    spread: dict[str, Any]
    """workers and engine."""
    quiet: bool


def _parse_wanted(text: str) -> int | None:
    if text in ("all", "off"):
        return None if text == "all" else 0
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise UsageError(f"--signal takes all, off or a number of golds; got {text!r}")


def _check(measured: MeasuredCorpus, home: Path, run: _Run, *, show: bool) -> CorpusFindings:
    """One corpus: its signal, then every check; its files are written."""

    folder = measured.folder
    signal = _signal(measured, run) if run.wanted != 0 else None
    if signal is not None and not signal.summary.sampled:
        signal = None
    if show and signal is not None:
        _print_signal(signal.summary)
    with progress(folder.name, total=len(measured.databases), quiet=run.quiet) as bar:
        checked: Iterable[CheckedDatabase]
        if run.shard is not None:
            parts = read_parts(home, run.shard[1], configuration_of(folder, run.limits))
            checked = (database for part in parts.values() for database in part)
        else:
            checked = check_databases(
                measured, limits=run.limits, on_progress=bar.advance, **run.spread
            )
        if signal is None:
            concluded = conclude(measured, checked)
        else:
            concluded = conclude(
                measured,
                checked,
                signal=signal.summary,
                signal_points=_points(measured, signal),
                extra=signal_findings(signal.scores, signal.summary, run.thresholds.signal),
            )
    write_findings(concluded, home, run.thresholds)
    if run.shard is not None:
        remove_parts(home)
    return concluded


def _check_shard(folders: list[CorpusFolder], homes: dict[str, Path], run: _Run) -> bool:
    """Checks and keeps one shard of every corpus; True where that made all shards complete."""

    assert run.shard is not None
    index, count = run.shard
    complete = True
    for folder in folders:
        home = homes[folder.name]
        measured = measure_corpus(folder, run.thresholds, shard=run.shard)
        checked = check_databases(measured, limits=run.limits, **run.spread)
        configuration = configuration_of(folder, run.limits)
        write_part(home, run.shard, checked, configuration)
        missing = sorted(set(range(count)) - read_parts(home, count, configuration).keys())
        if missing:
            complete = False
            waiting = ", ".join(str(other) for other in missing[:8])
            more = ", …" if len(missing) > 8 else ""
            warn(f"{folder.name}: shard {index} of {count} is done; missing: {waiting}{more}")
    return complete


def _signal(measured: MeasuredCorpus, run: _Run) -> CorpusSignal:
    """The corpus's signal, read from signal.parquet where it answers, else scored and stored."""

    folder = measured.folder
    stored = signal = read_signal(folder)
    if signal is None or not covers(signal, wanted=run.wanted, seed=run.seed):
        label = f"{folder.name} signal"
        with progress(label, total=run.wanted, quiet=run.quiet) as bar:
            signal = score_corpus(
                folder, wanted=run.wanted, seed=run.seed, on_scored=bar.advance, **run.spread
            )
        write_signal(folder, signal)
    if stored is not None:
        held, now = stored.summary, signal.summary
        if held != now and now.sampled < held.sampled:
            said = f"its stored sample of {_sample(held)} was replaced by one of {_sample(now)}"
            warn(f"{folder.name}: {said}")
        elif held == now and run.wanted is not None and run.wanted < held.sampled:
            said = f"its larger stored sample of {_sample(held)} answers --signal {run.wanted}"
            warn(f"{folder.name}: {said} and stays")
    return signal


def _sample(summary: SignalSummary) -> str:
    version = summary.version or "no version"
    return f"{counted(summary.sampled, 'question')} (seed {summary.seed}, {version})"


def _points(measured: MeasuredCorpus, signal: CorpusSignal) -> tuple[SignalPoint, ...]:

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


def _show_checks(report: Report) -> None:
    _print_golds([(c.corpus, c.gold) for c in report.corpora])
    for corpus in report.corpora:
        _print_findings(corpus)
    _say(f"{counted(report.errors, 'error')}, {counted(report.warnings, 'warning')}")
    if any(c.rows.verdict for c in report.corpora):
        warn("Few rows make wrong queries win by luck; `envbuild amplify` adds rows.")


def print_rows(corpora: Sequence[tuple[str, RowStatistics]]) -> None:
    """Rows per table, one row a corpus, with a distribution bar each and the verdicts."""
    _say("Rows per table")
    headers = ("dbs", "tables", "rows", "median", "p10", "p90", "mean", "empty", "<=2")
    _say(_line("corpus", headers, _ROW_WIDTHS))
    for name, s in corpora:
        counts = (s.databases, s.tables, s.rows, s.median, s.p10, s.p90, s.mean)
        shares = (_percent(s.share_empty), _percent(s.share_at_most_2))
        _say(_line(name, [*map(_compact, counts), *shares], _ROW_WIDTHS))
    published = " · ".join(f"{p.corpus} {p.render()}" for p in PUBLISHED_MEDIANS)
    _say(f"Published medians: {published}")
    _say("")
    axis = " ".join(f"{_compact(edge):<3}" for edge in BIN_EDGES[::2]).rstrip()
    _say(f"{'Tables by rows':<{NAME_WIDTH}} {axis}")
    for name, statistics in corpora:
        line = f"{_cut(name, NAME_WIDTH):<{NAME_WIDTH}} {_distribution_bar(statistics)}"
        _say(f"{line}  {_VERDICTS[statistics.verdict]}")
    _say("")
    for name, statistics in corpora:
        for reason in statistics.reasons:
            severity = statistics.verdict.value if statistics.verdict else ""
            _say(f"{severity}: {name}: {reason}")
    if any(statistics.reasons for _, statistics in corpora):
        _say("")


def _print_signal(signal: SignalSummary) -> None:
    """A corpus's signal: of wrong queries near its golds, the share that its rows tell apart."""
    name = signal.corpus or "corpus"
    scored = f"{signal.scored} of {signal.sampled} sampled questions"
    _say(f"Signal of {name} ({scored}, {signal.verdict})")
    if signal.mean_low is not None and signal.mean_high is not None:
        low, high = f"{signal.mean_low:.2f}", f"{signal.mean_high:.2f}"
        mean = low if low == high else f"{low} to {high}"
        half = _percent(signal.share_below_half or 0.0)
        behind = f"   variants {signal.variants}" if signal.variants else ""
        _say(
            f"  mean {mean}   median {signal.median:.2f}   below 0.5: {half}   "
            f"empty golds: {signal.empty_golds}{behind}"
        )
    if signal.unscored:
        reasons = ", ".join(f"{reason} {count}" for reason, count in signal.unscored.items())
        _say(shorten(f"  without a score: {reasons}"))
        if not _LIMITED.isdisjoint(signal.unscored):
            _say(_signal_limits())
    if signal.top_alive:
        alive = ", ".join(f"{o.operator} {o.alive}/{o.mutants}" for o in signal.top_alive)
        _say(shorten(f"  most often unnoticed: {alive}"))
    if signal.example is not None:
        example = signal.example
        rows = counted(example.gold_rows, "row")
        _say(shorten(f"  {example.question} ({example.db_id}: {rows})"))
        _say(shorten(f"    gold  {_one_line(example.gold_sql)}"))
        _say("    wrong, with the gold's result here, so paid in full:")
        for sql in example.wrong_sql:
            _say(f"          {_around_change(example.gold_sql, sql, _width() - 10)}")
    _say("")


def _signal_limits() -> str:
    """What a gold may use here: less than where its own findings come from."""

    here, there = SIGNAL_LIMITS, Limits()
    return (
        f"  a gold may use {here.vm_steps / 1e6:g} million steps and {here.rows:,} rows here, "
        f"{there.vm_steps / 1e6:g} million and\n  {there.rows:,} rows in the checks below"
    )


def _print_golds(corpora: Sequence[tuple[str, GoldHealth]]) -> None:
    """What became of the gold queries, one row a corpus that has any."""
    if not any(g.golds for _, g in corpora):
        return
    _say("Gold queries")
    headers = ("golds", "fail", "timeout", "empty", "trivial", "undeterm.", "sound", "share")
    _say(_line("corpus", headers, _GOLD_WIDTHS))
    for name, g in corpora:
        if g.golds:
            failed = g.error + g.denied + g.truncated
            counts = (g.golds, failed, g.timeout, g.empty, g.trivial, g.undetermined, g.sound)
            _say(_line(name, [*map(_compact, counts), _percent(g.sound / g.golds)], _GOLD_WIDTHS))
    _say("")


def _print_findings(report: CorpusReport) -> None:
    """One corpus's findings by code, each with its first example."""

    if not report.findings:
        _say(f"{report.corpus}: no findings")
        return
    _say(f"Findings in {report.corpus}")
    _say(f"  {'severity':<9}{'code':<29}{'findings':>9}{'cases':>9}{'databases':>11}")
    for found in report.findings:
        databases = found.databases or "all"  # a finding of the corpus names none
        counts = f"{found.findings:>9}{found.count:>9}{databases:>11}"
        _say(f"  {found.severity.value:<9}{found.code:<29}{counts}")
        if found.code == "few_rows":
            continue  # its reasons stand above, under the distribution
        example = found.examples[0]
        where = f"{example.db_id}: " if example.db_id else ""
        _say(shorten(f"{' ' * 11}{where}{example.message}"))
        if found.severity is EVALUATION_SEVERITIES.get(found.code):
            _say(f"{' ' * 11}a warning only: questions for evaluation, on which nobody is trained")
    _say("")


def _distribution_bar(statistics: RowStatistics) -> str:
    """Two characters a bin of `BIN_EDGES`, as high as the bin's share of the fullest one."""
    bars = BARS if draws_blocks() else PLAIN_BARS
    most = max(statistics.histogram) or 1
    heights = (max(1, round(n / most * (len(bars) - 1))) if n else 0 for n in statistics.histogram)
    return "".join(bars[height] * 2 for height in heights)


def _line(name: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{_cut(name, NAME_WIDTH):<{NAME_WIDTH}}{''.join(padded)}"


def _compact(value: float) -> str:
    """A number in at most five characters: 12, 4.5, 202k, 1.4M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / {"G": 1e9, "M": 1e6, "k": 1e3}[unit]
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.3g}{unit}"
    if float(value).is_integer():
        edge = int(value)
        return f"{edge // 1000}k" if edge >= 1000 and edge % 1000 == 0 else str(edge)
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def _percent(share: float) -> str:
    """A share in whole per cent; a small one is never shown as none."""
    if 0 < share < 0.005:
        return "<1%"
    return f"{share:.0%}"


def shorten(text: str) -> str:
    """One line as wide as a terminal's; whole where it goes into a file or a pipe."""
    return _cut(text, _width())


def _width() -> int:
    return LINE_WIDTH if sys.stdout.isatty() else sys.maxsize


def _cut(text: str, width: int) -> str:
    """At most `width` characters on one line, with an ellipsis where something is missing."""
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"


def _around_change(gold: str, wrong: str, width: int) -> str:
    """A wrong query on one line, cut so that what was changed in it is seen."""

    gold, wrong = _one_line(gold), _one_line(wrong)
    start, end = changed_stretch(gold, wrong)
    if end <= width - 8:
        return _cut(wrong, width)
    first = max(0, min(start - width // 3, len(wrong) - width + 1))
    return _cut("…" + wrong[first:], width)


def _one_line(sql: str) -> str:
    return " ".join(sql.split())


def _say(line: str) -> None:
    """One line on stdout, as it is."""
    console().print(line, markup=False, soft_wrap=True)
