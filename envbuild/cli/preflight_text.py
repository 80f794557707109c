"""Preflight's report as terminal text: rows per table first, then signal, golds, findings."""

import sys
from collections.abc import Sequence

from envbuild.cli.tables import console, draws_blocks
from envbuild.records.counted import counted
from envbuild.records.finding import Severity
from envbuild.records.preflight import (
    BIN_EDGES,
    PUBLISHED_MEDIANS,
    CorpusReport,
    GoldHealth,
    RowStatistics,
)
from envbuild.records.signal import SignalSummary

NAME_WIDTH = 16
LINE_WIDTH = 79
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_LIMITED = frozenset(("gold_timeout", "gold_truncated"))
"""Reasons for no signal that hang on how much a query may use."""
_VERDICTS = {Severity.ERROR: "too few", Severity.WARNING: "thin", None: "fine"}


def print_rows(corpora: Sequence[tuple[str, RowStatistics]]) -> None:
    """Rows per table, one row a corpus, with a distribution bar each and the verdicts."""
    say("Rows per table")
    headers = ("dbs", "tables", "rows", "median", "p10", "p90", "mean", "empty", "<=2")
    say(_row_line("corpus", headers))
    for name, s in corpora:
        counts = (s.databases, s.tables, s.rows, s.median, s.p10, s.p90, s.mean)
        shares = (percent(s.share_empty), percent(s.share_at_most_2))
        say(_row_line(name, [*map(compact, counts), *shares]))
    published = " · ".join(f"{p.corpus} {p.render()}" for p in PUBLISHED_MEDIANS)
    say(f"Published medians: {published}")
    say("")
    say(f"{'Tables by rows':<{NAME_WIDTH}} {_axis()}")
    for name, statistics in corpora:
        line = f"{short_name(name):<{NAME_WIDTH}} {distribution_bar(statistics)}"
        say(f"{line}  {_VERDICTS[statistics.verdict]}")
    say("")
    for name, statistics in corpora:
        for reason in statistics.reasons:
            severity = statistics.verdict.value if statistics.verdict else ""
            say(f"{severity}: {name}: {reason}")
    if any(statistics.reasons for _, statistics in corpora):
        say("")


def print_signal(signal: SignalSummary) -> None:
    """A corpus's signal: of wrong queries near its golds, the share that its rows tell apart."""
    name = signal.corpus or "corpus"
    scored = f"{signal.scored} of {signal.sampled} sampled questions"
    say(f"Signal of {name} ({scored}, {signal.verdict})")
    if signal.mean_low is not None and signal.mean_high is not None:
        low, high = f"{signal.mean_low:.2f}", f"{signal.mean_high:.2f}"
        mean = low if low == high else f"{low} to {high}"
        half = percent(signal.share_below_half or 0.0)
        behind = f"   variants {signal.variants}" if signal.variants else ""
        say(
            f"  mean {mean}   median {signal.median:.2f}   below 0.5: {half}   "
            f"empty golds: {signal.empty_golds}{behind}"
        )
    if signal.unscored:
        reasons = ", ".join(f"{reason} {count}" for reason, count in signal.unscored.items())
        say(shortened(f"  without a score: {reasons}"))
        if not _LIMITED.isdisjoint(signal.unscored):
            say(_signal_limits())
    if signal.top_alive:
        alive = ", ".join(f"{o.operator} {o.alive}/{o.mutants}" for o in signal.top_alive)
        say(shortened(f"  most often unnoticed: {alive}"))
    if signal.example is not None:
        example = signal.example
        rows = counted(example.gold_rows, "row")
        say(shortened(f"  {example.question} ({example.db_id}: {rows})"))
        say(shortened(f"    gold  {_one_line(example.gold_sql)}"))
        say("    wrong, with the gold's result here, so paid in full:")
        for sql in example.wrong_sql:
            say(f"          {_around_change(example.gold_sql, sql, _width() - 10)}")
    say("")


def _signal_limits() -> str:
    """What a gold may use here: less than where its own findings come from."""
    from envbuild.records.execution import Limits
    from envbuild.signal.score import SIGNAL_LIMITS

    here, there = SIGNAL_LIMITS, Limits()
    return (
        f"  a gold may use {here.vm_steps / 1e6:g} million steps and {here.rows:,} rows here, "
        f"{there.vm_steps / 1e6:g} million and\n  {there.rows:,} rows in the checks below"
    )


def print_golds(corpora: Sequence[tuple[str, GoldHealth]]) -> None:
    """What became of the gold queries, one row a corpus that has any."""
    if not any(g.golds for _, g in corpora):
        return
    say("Gold queries")
    headers = ("golds", "fail", "timeout", "empty", "trivial", "undeterm.", "sound", "share")
    say(_gold_line("corpus", headers))
    for name, g in corpora:
        if g.golds:
            failed = g.error + g.denied + g.truncated
            counts = (g.golds, failed, g.timeout, g.empty, g.trivial, g.undetermined, g.sound)
            say(_gold_line(name, [*map(compact, counts), percent(g.sound / g.golds)]))
    say("")


def print_findings(report: CorpusReport) -> None:
    """One corpus's findings by code, each with its first example."""
    from envbuild.preflight.checks import EVALUATION_SEVERITIES

    if not report.findings:
        say(f"{report.corpus}: no findings")
        return
    say(f"Findings in {report.corpus}")
    say(f"  {'severity':<9}{'code':<29}{'findings':>9}{'cases':>9}{'databases':>11}")
    for found in report.findings:
        databases = found.databases or "all"  # a finding of the corpus names none
        counts = f"{found.findings:>9}{found.count:>9}{databases:>11}"
        say(f"  {found.severity.value:<9}{found.code:<29}{counts}")
        if found.code == "few_rows":
            continue  # its reasons stand above, under the distribution
        example = found.examples[0]
        where = f"{example.db_id}: " if example.db_id else ""
        say(shortened(f"{' ' * 11}{where}{example.message}"))
        if found.severity is EVALUATION_SEVERITIES.get(found.code):
            say(f"{' ' * 11}a warning only: questions for evaluation, on which nobody is trained")
    say("")


def distribution_bar(statistics: RowStatistics) -> str:
    """Two characters a bin of `BIN_EDGES`, as high as the bin's share of the fullest one."""
    bars = BARS if draws_blocks() else PLAIN_BARS
    most = max(statistics.histogram) or 1
    return "".join(bars[_height(count, most, len(bars) - 1)] * 2 for count in statistics.histogram)


def _row_line(name: str, cells: Sequence[str]) -> str:
    widths = (6, 8, 7, 8, 6, 7, 7, 7, 6)
    return f"{short_name(name):<{NAME_WIDTH}}" + "".join(
        f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)
    )


def _gold_line(name: str, cells: Sequence[str]) -> str:
    widths = (8, 6, 9, 7, 9, 11, 7, 6)
    return f"{short_name(name):<{NAME_WIDTH}}" + "".join(
        f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)
    )


def _height(count: int, most: int, steps: int) -> int:
    return max(1, round(count / most * steps)) if count else 0


def _axis() -> str:
    return " ".join(f"{compact(edge):<3}" for edge in BIN_EDGES[::2]).rstrip()


def compact(value: float) -> str:
    """A number in at most five characters: 12, 4.5, 202k, 1.4M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / {"G": 1e9, "M": 1e6, "k": 1e3}[unit]
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.3g}{unit}"
    if float(value).is_integer():
        edge = int(value)
        return f"{edge // 1000}k" if edge >= 1000 and edge % 1000 == 0 else str(edge)
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def percent(share: float) -> str:
    """A share in whole per cent; a small one is never shown as none."""
    if 0 < share < 0.005:
        return "<1%"
    return f"{share:.0%}"


def short_name(name: str) -> str:
    """A corpus name that fits its column."""
    return cut(name, NAME_WIDTH)


def shortened(text: str) -> str:
    """One line as wide as a terminal's; whole where it goes into a file or a pipe."""
    return cut(text, _width())


def _width() -> int:
    return LINE_WIDTH if sys.stdout.isatty() else sys.maxsize


def cut(text: str, width: int) -> str:
    """At most `width` characters on one line, with an ellipsis where something is missing."""
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"


def _around_change(gold: str, wrong: str, width: int) -> str:
    """A wrong query on one line, cut so that what was changed in it is seen."""
    from envbuild.sql.text.differences import changed_stretch

    gold, wrong = _one_line(gold), _one_line(wrong)
    start, end = changed_stretch(gold, wrong)
    if end <= width - 8:
        return cut(wrong, width)
    first = max(0, min(start - width // 3, len(wrong) - width + 1))
    return cut("…" + wrong[first:], width)


def _one_line(sql: str) -> str:
    return " ".join(sql.split())


def say(line: str) -> None:
    """One line on stdout, as it is."""
    console().print(line, markup=False, soft_wrap=True)
