"""`--html`: the report as one self-contained page, readable without a network or a script."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from envbuild.io.files import write_text
from envbuild.preflight.page_charts import GOLD_PARTS, gold_bar, histogram, series, signal_plot
from envbuild.preflight.page_style import STYLE
from envbuild.records.counted import counted
from envbuild.records.finding import Finding, Severity
from envbuild.records.preflight import CorpusReport, DatabaseHealth, FindingSummary, Report
from envbuild.records.signal import SignalSummary
from envbuild.sql.text.differences import changed_stretch

_SIGNS = {Severity.ERROR: "✕ error", Severity.WARNING: "! warning", Severity.NOTE: "· note"}


def write_page(report: Report, path: Path) -> None:
    """Writes the page of this report to `path`, whole or not at all."""
    write_text(path, render_page(report))


def render_page(report: Report) -> str:
    """The report as an HTML document."""
    names = ", ".join(corpus.corpus for corpus in report.corpora)
    names = names if len(names) <= 60 else f"{len(report.corpora)} corpora"
    body = "".join(
        (
            f"<h1>Preflight: {escape(names)}</h1>",
            f'<p class="soft">{_totals(report)}</p>',
            _rows_section(report),
            _signal_section(report),
            _gold_section(report),
            _findings_section(report),
            _worst_section(report),
            f"<footer>envbuild {escape(report.versions['envbuild'])}, SQLite "
            f"{escape(report.versions['sqlite'])}</footer>",
        )
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Preflight: {escape(names)}</title><style>{STYLE}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _totals(report: Report) -> str:
    tables = sum(c.rows.tables for c in report.corpora)
    golds = sum(c.gold.golds for c in report.corpora)
    databases = sum(c.rows.databases for c in report.corpora)
    return (
        f"{counted(databases, 'database')}, {counted(tables, 'table')}, "
        f"{counted(golds, 'gold query', 'gold queries')}: "
        f"{report.errors:,} errors and {report.warnings:,} warnings."
    )


def _rows_section(report: Report) -> str:
    counts = ("corpus", "databases", "tables", "rows")
    headers = (*counts, "median", "p10", "p90", "mean", "empty", "at most 2", "verdict")
    rows = []
    for position, corpus in enumerate(report.corpora):
        s = corpus.rows
        figures = (s.databases, s.tables, s.rows, s.median, s.p10, s.p90, s.mean)
        rows.append(
            [
                _key(position) + escape(corpus.corpus),
                *(_number(figure) for figure in figures),
                f"{s.share_empty:.0%}",
                f"{s.share_at_most_2:.0%}",
                _verdict(s.verdict),
            ]
        )
    reasons = "".join(
        f"<li>{escape(corpus.corpus)}: {escape(reason)}</li>"
        for corpus in report.corpora
        for reason in corpus.rows.reasons
    )
    return (
        "<h2>Rows per table</h2>"
        "<p>A database of two rows a table pays about half of the wrong queries like the right "
        "one. Share of tables by their rows, on a log axis; the triangles are the medians here, "
        "the dashed lines published ones.</p>"
        f'<div class="card">{_legend(report.corpora)}{histogram(report.corpora, report.published)}'
        f'</div><div class="card">{_table(headers, rows, numbers=range(1, 10))}</div>'
        + (f"<ul>{reasons}</ul>" if reasons else "")
    )


def _signal_section(report: Report) -> str:
    measured = [(i, c, c.signal) for i, c in enumerate(report.corpora) if c.signal is not None]
    if not measured:
        return ""
    points = any(corpus.signal_points for _, corpus, _ in measured)
    plot = (
        f'<div class="card">{_legend(report.corpora)}'
        f"{signal_plot(report.corpora, report.published)}</div>"
        if points
        else ""
    )
    blocks = "".join(_signal_block(i, corpus, signal) for i, corpus, signal in measured)
    return (
        "<h2>Signal</h2><p>Of wrong queries made by small changes to a gold query, the share that "
        "the database tells from it; the rest would earn the full reward. Each dot is a database: "
        "its median rows a table across, the mean signal of its sampled questions up.</p>"
        f"{plot}{blocks}"
    )


def _signal_block(position: int, corpus: CorpusReport, signal: SignalSummary) -> str:
    low, high = signal.mean_low, signal.mean_high
    mean = "–" if low is None or high is None else _interval(low, high)
    half = signal.share_below_half
    tiles = (
        ("mean signal, low to high", mean),
        ("median", "–" if signal.median is None else f"{signal.median:.2f}"),
        ("of questions below 0.5", "–" if half is None else f"{half:.0%}"),
        ("empty gold results", f"{signal.empty_golds:,}"),
    )
    shown = "".join(
        f'<div class="tile"><b>{value}</b><span>{label}</span></div>' for label, value in tiles
    )
    alive = ", ".join(f"{o.operator} ({o.alive} of {o.mutants})" for o in signal.top_alive)
    return (
        f"<h3>{_key(position)}{escape(corpus.corpus)}</h3>"
        f'<p class="soft">{signal.scored:,} of {signal.sampled:,} sampled questions scored under '
        f"{escape(signal.verdict)}; {signal.questions:,} questions and phrasings in the corpus.</p>"
        f'<div class="tiles">{shown}</div>'
        + (f"<p>Changes that most often go unnoticed: {escape(alive)}.</p>" if alive else "")
        + _signal_example(signal)
    )


def _signal_example(signal: SignalSummary) -> str:
    example = signal.example
    if example is None:
        return ""
    wrong = "".join(f"<pre>{_marked(example.gold_sql, sql)}</pre>" for sql in example.wrong_sql)
    rows = f"{example.gold_rows} row{'s' * (example.gold_rows != 1)}"
    return (
        f'<div class="card"><b>{escape(example.question)}</b> '
        f'<span class="soft">({escape(example.db_id)}, gold returns {rows})</span>'
        f"<pre>{escape(example.gold_sql)}</pre>"
        f"<p>These {len(example.wrong_sql)} wrong queries return the same and would earn the full "
        f"reward:</p>{wrong}</div>"
    )


def _marked(gold: str, wrong: str) -> str:
    """The wrong query with what was changed in it marked."""
    start, end = changed_stretch(gold, wrong)
    middle = f"<mark>{escape(wrong[start:end]) or '&nbsp;'}</mark>"
    return f"{escape(wrong[:start])}{middle}{escape(wrong[end:])}"


def _gold_section(report: Report) -> str:
    corpora = [(i, c) for i, c in enumerate(report.corpora) if c.gold.golds]
    if not corpora:
        return ""
    headers = ("corpus", "", "golds", "sound", "trivial", "empty", "undetermined", "fail")
    rows = []
    for position, corpus in corpora:
        g = corpus.gold
        failed = g.error + g.denied + g.truncated + g.timeout
        counts = (g.golds, g.sound, g.trivial, g.empty, g.undetermined, failed)
        rows.append(
            [
                _key(position) + escape(corpus.corpus),
                gold_bar(g),
                *(f"{count:,}" for count in counts),
            ]
        )
    keys = "".join(f'<span><i class="key {part}"></i>{part}</span>' for part in GOLD_PARTS)
    return (
        "<h2>Gold queries</h2>"
        "<p>Each distinct gold query was run on its own database. An empty or trivial result "
        "rewards many wrong queries; an undetermined one hangs on ties, scan order, the clock, "
        "chance or bare columns.</p>"
        f'<div class="card"><div class="legend">{keys}</div>'
        f"{_table(headers, rows, numbers=range(2, 8))}</div>"
    )


def _findings_section(report: Report) -> str:
    blocks = []
    for position, corpus in enumerate(report.corpora):
        headers = ("severity", "finding", "findings", "cases", "databases")
        rows = [
            [
                _verdict(f.severity),
                f"<b>{escape(f.code)}</b><br>{escape(f.meaning)}{_examples(f)}",
                f"{f.findings:,}",
                f"{f.count:,}",
                f"{f.databases:,}" if f.databases else "all",
            ]
            for f in corpus.findings
        ]
        content = _table(headers, rows, numbers=range(2, 5)) if rows else "Nothing was found."
        blocks.append(
            f"<h3>{_key(position)}{escape(corpus.corpus)}</h3><div class='card'>{content}</div>"
        )
    return f"<h2>Findings</h2>{''.join(blocks)}"


def _examples(summary: FindingSummary) -> str:
    shown = "".join(_example(finding) for finding in summary.examples)
    return f"<details><summary>Examples</summary>{shown}</details>"


def _example(finding: Finding) -> str:
    where = " / ".join(p for p in (finding.db_id, finding.table, finding.question_id) if p)
    example = f"<pre>{escape(finding.example)}</pre>" if finding.example else ""
    lead = f"<b>{escape(where)}</b>: " if where else ""
    return f"<div>{lead}{escape(finding.message)}{example}</div>"


def _worst_section(report: Report) -> str:
    blocks = []
    for position, corpus in enumerate(report.corpora):
        if corpus.worst:
            headers = ("database", "tables", "rows", "median rows", "golds hurt", "errors")
            table = _table(
                (*headers, "warnings"), map(_worst_row, corpus.worst), numbers=range(1, 7)
            )
            blocks.append(
                f"<h3>{_key(position)}{escape(corpus.corpus)}</h3><div class='card'>{table}</div>"
            )
    return f"<h2>Worst databases</h2>{''.join(blocks)}" if blocks else ""


def _worst_row(database: DatabaseHealth) -> list[str]:
    hurt = f"{database.golds_hurt:,} of {database.golds:,}" if database.golds else "–"
    figures = (database.tables, database.rows, database.median)
    counts = (database.errors, database.warnings)
    return [
        escape(database.db_id),
        *(_number(figure) for figure in figures),
        hurt,
        *(f"{count:,}" for count in counts),
    ]


def _legend(corpora: Sequence[CorpusReport]) -> str:
    entries = "".join(
        f"<span>{_key(position)}{escape(c.corpus)}, median {c.rows.median:g}</span>"
        for position, c in enumerate(corpora)
    )
    return f'<div class="legend">{entries}</div>'


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: range) -> str:
    """A table of ready cells; the columns in `numbers` stand right."""

    def cell(tag: str, position: int, content: str) -> str:
        kind = ' class="n"' if position in numbers else ' class="id"'
        return f"<{tag}{kind}>{content}</{tag}>"

    head = "".join(cell("th", i, escape(header)) for i, header in enumerate(headers))
    lines = (
        "<tr>" + "".join(cell("td", i, content) for i, content in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _key(position: int) -> str:
    return f'<i class="key" style="background:{series(position)}"></i>'


def _verdict(severity: Severity | None) -> str:
    if severity is None:
        return '<span class="tag fine">✓ fine</span>'
    return f'<span class="tag {severity.value}">{_SIGNS[severity]}</span>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() or value >= 100 else f"{value:,.1f}"


def _interval(low: float, high: float) -> str:
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} – {high:.2f}"
