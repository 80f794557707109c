"""Charts as PNG or SVG; matplotlib lives here. The same numbers give the same bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild.errors import UsageError
from envbuild.io.files import atomic_path, check_file

FORMATS = ("png", "svg")
COLOURS = ("#4477AA", "#228833", "#CC6677", "#AA8800", "#66AADD", "#AA3377")
"""Told apart in print and by colour-blind readers; one a bucket, easiest first."""
INK, FAINT = "#333333", "#888888"


def check_plot_path(path: Path) -> str:
    """The image format a file's name asks for.

    Raises UsageError for any other, OutputError where no file can be written there.
    """
    check_file(path)
    ending = path.suffix.lower().lstrip(".")
    if ending not in FORMATS:
        raise UsageError(f"a plot is written as .png or .svg, not {path.name!r}")
    return ending


def plot_lengths(
    path: Path, lengths: Mapping[str, Sequence[int]], *, edges: Sequence[int], title: str
) -> None:
    """A histogram of masked lengths, coloured by bucket, with shares and first lengths.

    `edges` are the shortest lengths of the buckets after the first.
    """
    figure, axes = _figure(height=3.6)
    every = sorted(length for values in lengths.values() for length in values)
    total = len(every) or 1
    # the longest 1 % share the last bar, so that one giant query does not flatten the rest
    top = max([*edges, every[int(0.99 * (total - 1))] if every else 1]) * 1.1
    width = max(1, round(top / 60))
    bins = [width * position for position in range(int(top // width) + 2)]
    names = [name for name in lengths if lengths[name]]
    axes.hist(
        [[min(length, bins[-1] - 1) for length in lengths[name]] for name in names],
        bins=bins,
        stacked=True,
        color=[_colour(position) for position, name in enumerate(lengths) if name in names],
    )
    ceiling = axes.get_ylim()[1] * 1.18
    axes.set_ylim(0, ceiling)
    for edge in edges:
        axes.axvline(edge, color=INK, linewidth=1, linestyle=(0, (3, 2)))
        axes.text(edge, 0.84 * ceiling, f" from {edge}", va="top", fontsize=8, color=INK)
    borders = [0, *edges, bins[-1]]
    for position, name in enumerate(lengths):
        if position + 1 < len(borders):
            share = len(lengths[name]) / total
            axes.text(
                (borders[position] + borders[position + 1]) / 2,
                ceiling * 0.985,
                f"{name}\n{share:.0%}",
                ha="center",
                va="top",
                color=_colour(position),
                fontweight="bold",
                fontsize=9,
            )
    axes.set_xlim(0, bins[-1])
    axes.tick_params(axis="x", pad=12)
    axes.set_xlabel("masked gold SQL, characters (the longest 1 % in the last bar)")
    axes.set_ylabel("questions")
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    _save(figure, path)


def plot_schedule(
    path: Path,
    mixtures: Sequence[Mapping[str, float]],
    gate: Sequence[float],
    *,
    marked_step: int | None,
    title: str,
) -> None:
    """Shares a bucket and the submit gate's probability over a run's steps."""
    figure, axes = _figure(height=3.6)
    steps = list(range(len(mixtures)))
    names = list(mixtures[0])
    axes.stackplot(
        steps,
        [[mixture[name] for mixture in mixtures] for name in names],
        colors=[_colour(position) for position in range(len(names))],
        alpha=0.8,
        linewidth=0,
    )
    below = 0.0
    for name in names:
        share = mixtures[-1][name]
        if share > 0.03:
            axes.annotate(
                f"{name} {share:.2f}",
                (1.01, below + share / 2),
                xycoords="axes fraction",
                va="center",
                fontsize=9,
                color=_colour(names.index(name)),
                fontweight="bold",
            )
        below += share
    axes.plot(steps, gate, color=INK, linewidth=1.4)
    closed = next((step for step, p in enumerate(gate) if p == 0), None)
    if closed:
        axes.annotate(
            f"submit gate, 0 from step {closed}",
            (closed / 2, 0.5),
            xytext=(closed + 0.02 * len(steps), 0.2),
            fontsize=8,
            color=INK,
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.6},
        )
    if marked_step is not None and marked_step < len(steps):
        axes.axvline(marked_step, color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
        side = "left" if 2 * marked_step < len(steps) else "right"
        axes.text(marked_step, 1.01, f"step {marked_step}", ha=side, fontsize=8, color=INK)
    axes.set_xlim(0, len(steps) - 1 if len(steps) > 1 else 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("step")
    axes.set_ylabel("share of the step's questions")
    axes.set_title(title, loc="left", fontsize=10, color=INK, pad=14)
    _save(figure, path)


def _colour(position: int) -> str:
    return COLOURS[position % len(COLOURS)]


def _figure(*, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, height), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=FAINT, labelsize=8)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    import matplotlib

    kind = check_plot_path(path)
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    fixed: dict[Any, Any] = {"svg.hashsalt": "envbuild", "svg.fonttype": "none"}
    with matplotlib.rc_context(fixed), atomic_path(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=160, metadata=metadata)
