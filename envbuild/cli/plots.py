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
    figure, axes = _figure()
    every = sorted(length for values in lengths.values() for length in values)
    total = len(every) or 1
    # the longest 1 % share the last bar, so that one giant query does not flatten the rest
    top = max([*edges, every[int(0.99 * (total - 1))] if every else 1]) * 1.1
    width = max(1, round(top / 60))
    bins = [width * position for position in range(int(top // width) + 2)]
    axes.hist(
        [[min(length, bins[-1] - 1) for length in values] for values in lengths.values()],
        bins=bins,
        stacked=True,
        color=_colours(len(lengths)),
        label=[f"{name} {len(values) / total:.0%}" for name, values in lengths.items()],
    )
    for edge in edges:
        axes.axvline(edge, color=INK, linewidth=1, linestyle=(0, (3, 2)))
        axes.text(edge, 1.01, f"{edge}", transform=axes.get_xaxis_transform(), fontsize=8)
    axes.set_xlim(0, bins[-1])
    axes.set_xlabel("masked gold SQL, characters (the longest 1 % in the last bar)")
    axes.set_ylabel("questions")
    _save(figure, axes, path, title)


def plot_schedule(
    path: Path,
    mixtures: Sequence[Mapping[str, float]],
    gate: Sequence[float],
    *,
    marked_step: int | None,
    title: str,
) -> None:
    """Shares a bucket and the submit gate's probability over a run's steps."""
    figure, axes = _figure()
    steps = range(len(mixtures))
    axes.stackplot(
        steps,
        [[mixture[name] for mixture in mixtures] for name in mixtures[0]],
        colors=_colours(len(mixtures[0])),
        labels=[f"{name} {share:.2f} at the end" for name, share in mixtures[-1].items()],
        alpha=0.8,
        linewidth=0,
    )
    closed = next((step for step, p in enumerate(gate) if p == 0), None)
    label = "submit gate" if closed is None else f"submit gate, 0 from step {closed}"
    axes.plot(steps, gate, color=INK, linewidth=1.4, label=label)
    if marked_step is not None:
        axes.axvline(
            marked_step, color=INK, linewidth=0.8, linestyle="dotted", label=f"step {marked_step}"
        )
    axes.set_xlim(0, max(1, len(mixtures) - 1))
    axes.set_ylim(0, 1)
    axes.set_xlabel("step")
    axes.set_ylabel("share of the step's questions")
    _save(figure, axes, path, title)


def _colours(count: int) -> list[str]:
    return [COLOURS[position % len(COLOURS)] for position in range(count)]


def _figure() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=FAINT, labelsize=8)
    return figure, axes


def _save(figure: Any, axes: Any, path: Path, title: str) -> None:
    import matplotlib

    axes.set_title(title, loc="left", fontsize=10, color=INK, pad=14)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    kind = check_plot_path(path)
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    fixed: dict[Any, Any] = {"svg.hashsalt": "envbuild", "svg.fonttype": "none"}
    with matplotlib.rc_context(fixed), atomic_path(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=160, metadata=metadata)
