"""`--html`: the report as one self-contained page, readable without a network or a script."""

import math
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envbuild.io.files import write_text
from envbuild.io.pages import render_page
from envbuild.records.corpus import counted
from envbuild.records.preflight import BIN_EDGES, GoldHealth, Report
from envbuild.records.signal import SignalSummary
from envbuild.sql.tokens import changed_stretch

GOLD_PARTS = ("sound", "trivial", "empty", "undetermined", "fails")


def write_page(report: Report, path: Path) -> None:
    """Writes the page of this report to `path`, whole or not at all."""
    names = ", ".join(corpus.corpus for corpus in report.corpora)
    names = names if len(names) <= 60 else f"{len(report.corpora)} corpora"
    page = render_page(
        "preflight.html",
        title=f"Preflight: {names}",
        report=report,
        totals=_totals(report),
        plot=RowPlot(report),
        reasons=[(c.corpus, reason) for c in report.corpora for reason in c.rows.reasons],
        signals=[
            (position, c.corpus, c.signal, _tiles(c.signal), _wrong_queries(c.signal))
            for position, c in enumerate(report.corpora)
            if c.signal is not None
        ],
        golds=[
            (position, c.corpus, c.gold, _parts(c.gold), _counts(c.gold))
            for position, c in enumerate(report.corpora)
            if c.gold.golds
        ],
        gold_parts=GOLD_PARTS,
    )
    write_text(path, page)


def _totals(report: Report) -> str:
    tables = sum(c.rows.tables for c in report.corpora)
    golds = sum(c.gold.golds for c in report.corpora)
    databases = sum(c.rows.databases for c in report.corpora)
    return (
        f"{counted(databases, 'database')}, {counted(tables, 'table')}, "
        f"{counted(golds, 'gold query', 'gold queries')}: "
        f"{report.errors:,} errors and {report.warnings:,} warnings."
    )


def _tiles(signal: SignalSummary) -> tuple[tuple[str, str], ...]:
    low, high, half = signal.mean_low, signal.mean_high, signal.share_below_half
    mean = "–"
    if low is not None and high is not None:
        mean = " – ".join(dict.fromkeys((f"{low:.2f}", f"{high:.2f}")))
    return (
        ("mean signal, low to high", mean),
        ("median", "–" if signal.median is None else f"{signal.median:.2f}"),
        ("of questions below 0.5", "–" if half is None else f"{half:.0%}"),
        ("empty gold results", f"{signal.empty_golds:,}"),
    )


def _wrong_queries(signal: SignalSummary) -> list[tuple[str, str, str]]:
    """The example's wrong queries: what stands before, in and behind the change."""
    if signal.example is None:
        return []
    found = []
    for wrong in signal.example.wrong_sql:
        start, end = changed_stretch(signal.example.gold_sql, wrong)
        found.append((wrong[:start], wrong[start:end] or "\N{NO-BREAK SPACE}", wrong[end:]))
    return found


def _failed(gold: GoldHealth) -> int:
    return gold.error + gold.denied + gold.truncated + gold.timeout


def _parts(gold: GoldHealth) -> list[tuple[str, int]]:
    """The parts of a corpus's bar; a gold counts once."""
    failed = _failed(gold)
    undetermined = max(0, gold.golds - failed - gold.sound - gold.empty - gold.trivial)
    counts = (gold.sound, gold.trivial, gold.empty, undetermined, failed)
    return list(zip(GOLD_PARTS, counts, strict=True))


def _counts(gold: GoldHealth) -> tuple[int, ...]:
    return gold.golds, gold.sound, gold.trivial, gold.empty, gold.undetermined, _failed(gold)


class RowPlot:
    """Rows per table from left to right: a place for 0, then a log scale in 1-2-5 steps.

    Numbers are pixels of the picture, from its upper left corner.
    """

    WIDTH, HEIGHT = 960, 320
    LEFT, RIGHT, TOP, BOTTOM = 44, 12, 46, 36
    BASE, PLOT = HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM
    """The y of the base line, and how much the plot is high."""

    def __init__(self, report: Report) -> None:
        self.report = report
        last = max((bisect_right(BIN_EDGES, m.high) - 1 for m in report.published), default=0)
        for corpus in report.corpora:
            last = max(last, *(i for i, count in enumerate(corpus.rows.histogram) if count), 0)
        self.slots = min(last + 2, len(BIN_EDGES))
        """Bins shown; every table and every published median lies in one of them."""
        self.slot_width = (self.WIDTH - self.LEFT - self.RIGHT) / self.slots
        self.shares = [
            [count / max(1, c.rows.tables) for count in c.rows.histogram] for c in report.corpora
        ]
        highest = max((max(shares) for shares in self.shares), default=0.0)
        self.top = next((top for top in (0.1, 0.2, 0.4, 0.6, 0.8) if highest <= top), 1.0)
        """The share at the plot's upper end."""

    def x(self, rows: float) -> float:
        """Where a row count stands; 0 in the middle of its place."""
        if rows < 1:
            return self._edge(0) + (0.5 + 0.5 * rows) * self.slot_width
        slot = bisect_right(BIN_EDGES, rows) - 1
        if slot >= len(BIN_EDGES) - 1:
            return self._edge(slot) + self.slot_width / 2
        within = math.log(rows / BIN_EDGES[slot]) / math.log(BIN_EDGES[slot + 1] / BIN_EDGES[slot])
        return round(self._edge(slot) + within * self.slot_width, 1)

    def y(self, share: float, top: float = 1.0) -> float:
        """Where a share stands on an axis that ends at `top`."""
        return round(self.BASE - share / top * self.PLOT, 1)

    def grid(self, top: float) -> Iterator[tuple[float, str]]:
        """Each horizontal line with its share, the base line first."""
        for step in range(5):
            yield self.y(step / 4), f"{round(top * step * 25, 1):g}%"

    def labels(self) -> Iterator[tuple[float, str]]:
        """The bins' first counts, under their left ends."""
        for edge in BIN_EDGES[: self.slots]:
            short = f"{edge // 1_000_000}M" if edge >= 1_000_000 else f"{edge // 1000}k"
            yield self.x(edge), short if edge >= 1000 else str(edge)

    def outlines(self) -> Iterator[str]:
        """For each corpus the path around each run of bins that hold something."""
        for shares in self.shares:
            path, inside = "", False
            for slot in range(self.slots):
                left, right = round(self._edge(slot), 1), round(self._edge(slot + 1), 1)
                height = self.y(shares[slot], self.top)
                if shares[slot]:
                    path += f"{'L' if inside else f'M{left},{self.BASE}L'}{left},{height}"
                    path += f"L{right},{height}"
                elif inside:
                    path += f"L{left},{self.BASE}"
                inside = bool(shares[slot])
            yield path + (f"L{self._edge(self.slots)},{self.BASE}" if inside else "")

    def hovers(self) -> Iterator[tuple[float, str]]:
        """Each bin's left end, and what is said of it."""
        for slot in range(self.slots):
            lower, upper = BIN_EDGES[slot], (*BIN_EDGES, 0)[slot + 1] - 1
            span = f"{lower:,} to {upper:,} rows" if upper >= 0 else f"{lower:,} rows and more"
            lines = [counted(lower, "row") if upper == lower else span]
            for corpus, shares in zip(self.report.corpora, self.shares, strict=True):
                tables = counted(corpus.rows.histogram[slot], "table")
                lines.append(f"{corpus.corpus}: {shares[slot]:.1%} ({tables})")
            yield self._edge(slot), "\n".join(lines)

    def published(self) -> Iterator[dict[str, Any]]:
        """The published medians' lines, with labels in two rows so that neighbours stay legible."""
        for row, median in enumerate(sorted(self.report.published, key=lambda m: m.low)):
            x = self.x((median.low + median.high) / 2)
            # on the left of its line where it would run out of the picture on the right
            side, anchor = (-5, "end") if x > 0.8 * self.WIDTH else (5, "start")
            label = f"{median.corpus} published: {median.render()}"
            y = self.TOP - 30 + 13 * (row % 2)
            yield {"x": x, "y": y, "text_x": x + side, "anchor": anchor, "label": label}

    def _edge(self, slot: int) -> float:
        """The left end of a bin."""
        return self.LEFT + slot * self.slot_width
