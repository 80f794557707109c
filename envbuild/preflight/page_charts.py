"""The page's pictures as inline SVG, coloured by the page's own CSS variables."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from html import escape

import msgspec

from envbuild.records.preflight import BIN_EDGES, CorpusReport, GoldHealth, PublishedMedian

WIDTH, HEIGHT = 960, 320
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 46, 36
BASE, PLOT = HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM
"""The y of the base line, and how much the plot is high."""
SERIES = 6
"""Colours for corpora; a seventh shares the last."""
GOLD_PARTS = ("sound", "trivial", "empty", "undetermined", "fails")


def series(position: int) -> str:
    """The CSS colour of the corpus at this position."""
    return f"var(--series-{min(position, SERIES - 1)})"


def histogram(corpora: Sequence[CorpusReport], published: Sequence[PublishedMedian]) -> str:
    """Shares of tables by rows on a log axis, corpora overlaid, published medians dashed."""
    axis = RowAxis.over(corpora, published)
    shares = [[count / max(1, c.rows.tables) for count in c.rows.histogram] for c in corpora]
    top = _nice_top(max((max(s) for s in shares), default=0.0))
    parts = [_grid(top), axis.labels()]
    for position, share in enumerate(shares):
        heights = [value / top * PLOT for value in share]
        color = series(position)
        parts.append(
            f'<path d="{axis.outline(heights)}" fill="{color}" fill-opacity=".15" '
            f'stroke="{color}" stroke-width="2" stroke-linejoin="round"/>'
        )
    parts += _published_lines(axis, published)
    for position, corpus in enumerate(corpora):
        parts.append(
            f'<path d="M{axis.x(corpus.rows.median):.1f},{BASE - 1}l-6,10h12z" '
            f'fill="{series(position)}" stroke="var(--card)" stroke-width="1.5">'
            f"<title>{escape(corpus.corpus)}: median {corpus.rows.median:g}</title></path>"
        )
    parts += [_hover(axis, slot, corpora, shares) for slot in range(axis.slots)]
    return _svg("Share of tables by rows per table, one outline a corpus", parts)


def signal_plot(corpora: Sequence[CorpusReport], published: Sequence[PublishedMedian]) -> str:
    """Each sampled database: its median rows per table across, its mean signal up."""
    axis = RowAxis.over(corpora, published)
    parts = [_grid(1.0), axis.labels(), *_published_lines(axis, published)]
    for position, corpus in enumerate(corpora):
        for point in corpus.signal_points:
            parts.append(
                f'<circle cx="{axis.x(point.median_rows):.1f}" '
                f'cy="{BASE - point.signal * PLOT:.1f}" r="4.5" fill="{series(position)}" '
                f'fill-opacity=".5" stroke="{series(position)}">'
                f"<title>{escape(point.db_id)}: median {point.median_rows:g} rows a table, signal "
                f"{point.signal:.2f} over {point.scored} golds</title></circle>"
            )
    return _svg("Signal of each sampled database against its rows per table", parts)


def gold_bar(gold: GoldHealth) -> str:
    """One corpus's golds as a bar of parts with gaps between them; a gold counts once."""
    failed = gold.error + gold.denied + gold.truncated + gold.timeout
    undetermined = max(0, gold.golds - failed - gold.sound - gold.empty - gold.trivial)
    counts = (gold.sound, gold.trivial, gold.empty, undetermined, failed)
    segments = "".join(
        f'<span class="part {name}" style="flex:{count} 1 0" '
        f'title="{name}: {count} of {gold.golds}"></span>'
        for name, count in zip(GOLD_PARTS, counts, strict=True)
        if count
    )
    return f'<div class="bar">{segments}</div>'


class RowAxis(msgspec.Struct, frozen=True, kw_only=True):
    """Rows per table from left to right: a place for 0, then a log scale in 1-2-5 steps."""

    slots: int
    """Bins shown; every table lies in one of them."""

    @classmethod
    def over(
        cls, corpora: Sequence[CorpusReport], published: Sequence[PublishedMedian]
    ) -> "RowAxis":
        """An axis that reaches past the fullest table and past every published median."""
        last = max((bisect_right(BIN_EDGES, m.high) - 1 for m in published), default=0)
        for corpus in corpora:
            filled = [slot for slot, count in enumerate(corpus.rows.histogram) if count]
            last = max(last, *filled) if filled else last
        return cls(slots=min(last + 2, len(BIN_EDGES)))

    @property
    def slot_width(self) -> float:
        """Pixels of one bin."""
        return (WIDTH - LEFT - RIGHT) / self.slots

    def edge(self, slot: int) -> float:
        """The left end of a bin."""
        return LEFT + slot * self.slot_width

    def x(self, rows: float) -> float:
        """Where a row count stands; 0 in the middle of its place."""
        if rows < 1:
            return self.edge(0) + (0.5 + 0.5 * rows) * self.slot_width
        slot = bisect_right(BIN_EDGES, rows) - 1
        if slot >= len(BIN_EDGES) - 1:
            return self.edge(slot) + self.slot_width / 2
        within = math.log(rows / BIN_EDGES[slot]) / math.log(BIN_EDGES[slot + 1] / BIN_EDGES[slot])
        return self.edge(slot) + within * self.slot_width

    def outline(self, heights: Sequence[float]) -> str:
        """The path around each run of bins that hold something."""
        path, inside = "", False
        for slot in range(self.slots):
            height, left, right = heights[slot], self.edge(slot), self.edge(slot + 1)
            if height:
                path += f"{'L' if inside else f'M{left:.1f},{BASE}L'}{left:.1f},{BASE - height:.1f}"
                path += f"L{right:.1f},{BASE - height:.1f}"
            elif inside:
                path += f"L{left:.1f},{BASE}"
            inside = bool(height)
        return path + (f"L{self.edge(self.slots):.1f},{BASE}" if inside else "")

    def labels(self) -> str:
        """The bins' first counts, under their left ends."""
        y = BASE + 24
        return "".join(
            f'<text x="{self.x(BIN_EDGES[slot]):.1f}" y="{y}" text-anchor="middle">'
            f"{_short(BIN_EDGES[slot])}</text>"
            for slot in range(self.slots)
        )


def _nice_top(highest: float) -> float:
    return next((top for top in (0.1, 0.2, 0.4, 0.6, 0.8) if highest <= top), 1.0)


def _grid(top: float) -> str:
    lines = []
    for step in range(5):
        y = BASE - PLOT * step / 4
        lines.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'class="{"grid" if step else "base"}"/><text x="{LEFT - 8}" y="{y + 4:.1f}" '
            f'text-anchor="end">{_percent(top * step / 4)}</text>'
        )
    return "".join(lines)


def _percent(share: float) -> str:
    return f"{share * 100:g}%" if round(share * 1000) % 10 else f"{share:.0%}"


def _short(edge: int) -> str:
    if edge >= 1_000_000:
        return f"{edge // 1_000_000}M"
    return f"{edge // 1000}k" if edge >= 1000 else str(edge)


def _published_lines(axis: RowAxis, published: Sequence[PublishedMedian]) -> list[str]:
    lines = []
    for row, median in enumerate(sorted(published, key=lambda m: m.low)):
        x = axis.x((median.low + median.high) / 2)
        y = TOP - 30 + 13 * (row % 2)
        label = f"{escape(median.corpus)} published: {median.render()}"
        # on the left of its line where it would run out of the picture on the right
        side, anchor = (-5, "end") if x > 0.8 * WIDTH else (5, "start")
        lines.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 5}" y2="{BASE}" class="published"/>'
            f'<text x="{x + side:.1f}" y="{y + 4}" text-anchor="{anchor}" class="published">'
            f"{label}</text>"
        )
    return lines


def _hover(
    axis: RowAxis, slot: int, corpora: Sequence[CorpusReport], shares: Sequence[Sequence[float]]
) -> str:
    lower = BIN_EDGES[slot]
    upper = BIN_EDGES[slot + 1] - 1 if slot + 1 < len(BIN_EDGES) else None
    span = f"{lower:,} to {upper:,} rows"
    if upper is None:
        span = f"{lower:,} rows and more"
    elif upper == lower:
        span = f"{lower:,} row{'s' * (lower != 1)}"
    lines = [span] + [
        f"{corpus.corpus}: {share[slot]:.1%} ({corpus.rows.histogram[slot]:,} tables)"
        for corpus, share in zip(corpora, shares, strict=True)
    ]
    return (
        f'<rect x="{axis.edge(slot):.1f}" y="{TOP}" width="{axis.slot_width:.1f}" '
        f'height="{PLOT}" class="hover"><title>{escape(chr(10).join(lines))}</title></rect>'
    )


def _svg(label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )
