"""What the commands write: exit codes, the JSON document, tables, progress bars, streams.

rich lives here. Tables are plain when piped, as wide as the terminal at most; only where
the numbers alone are wider does one go past the edge: numbers are never cut.
"""

import io
import os
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from envbuild.records.corpus import printable

if TYPE_CHECKING:
    from rich import progress as bars
    from rich.console import Console

OK, FINDINGS, USAGE, BUG, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 70, 130, 141
"""Exit codes; 141 is what a shell shows of a tool that a closed pipe ends (128 + SIGPIPE)."""
EVERY = 0.1
"""Seconds between two looks of a progress bar."""
FOLDED, WIDEST = 12, 10_000
"""Characters: the narrowest that a longer text is folded to; more than any table has."""


class Result(NamedTuple):
    """What a command came to; whoever calls it shows it."""

    document: dict[str, Any]
    """The keys of the JSON document, besides its format and the versions."""
    show: Callable[[], None]
    """Prints the same for a person."""
    findings: object = False
    """What ends the command with 1, where it is true."""
    wrote: Path | None = None
    """Where the result lies."""
    following: Sequence[object] = ()
    """Words of the next command."""


def finish(command: str, result: Result, *, json: bool) -> int:
    """Shows a command's result and returns its exit code: 1 where there are findings, else 0.

    With `json` that is the one document on stdout. A person is told last where the result lies and
    the words of the next command, on stderr.
    """
    if json:
        from envbuild.sql.connect import VERSIONS

        body = {"format": f"envbuild.{command}/1", "versions": VERSIONS, **result.document}
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n")
    else:
        result.show()
        said = [f"wrote {result.wrote}"] if result.wrote is not None else []
        if result.following:
            said.append(f"next: envbuild {shlex.join(map(str, result.following))}")
        if said:
            warn("; ".join(said))
    return FINDINGS if result.findings else OK


def say(line: str = "", *, end: str = "\n") -> None:
    """A line on stdout at once, for whoever reads along in a pipe."""
    print(line, end=end, flush=True)


def warn(sentence: str) -> None:
    """A sentence for the operator, on stderr."""
    print(printable(sentence), file=sys.stderr, flush=True)


def console(*, stderr: bool = False) -> "Console":
    """The console for results: stdout, no colour when piped or under NO_COLOR."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, stderr=stderr)


def width() -> int:
    """The terminal's; what goes into a file or a pipe is not cut."""
    return console().width if sys.stdout.isatty() else sys.maxsize


def shorten(text: str, room: int | None = None) -> str:
    """One line as wide as the terminal, or `room`, with an ellipsis where something is missing."""
    from rich.text import Text

    line = Text(printable(text.replace("\n", " ")))
    line.truncate(width() if room is None else room, overflow="ellipsis")
    return line.plain


def print_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str = "",
    right: Sequence[int] = (),
) -> None:
    """One table on stdout; `right` names the columns that hold numbers."""
    from rich import box
    from rich.cells import cell_len
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    cells = [[printable(str(cell)) for cell in row] for row in rows]
    # Text, not str: a cell may hold what rich would take for markup
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, header in enumerate(map(printable, headers)):
        widest = max((cell_len(row[position]) for row in cells), default=0)
        if position in right:
            table.add_column(Text(header), justify="right", no_wrap=True, min_width=widest)
        else:
            table.add_column(Text(header), overflow="fold", min_width=min(widest, FOLDED))
    for row in cells:
        table.add_row(*map(Text, row))
    screen = console()
    unbounded = screen.options.update(max_width=WIDEST)
    screen.width = max(screen.width, Measurement.get(screen, unbounded, table).minimum)
    with screen.capture() as drawn:
        screen.print(table)
    lines = drawn.get().splitlines()
    if title:  # above the table, not in its width
        lines[:1] = [printable(title)]
    print("\n".join(line.rstrip() for line in lines))


def print_records(names: Sequence[str], records: Iterable[Any], *fields: str) -> None:
    """A table of one record a row: its name first, then the fields, which are counts."""
    rows = [(r.name, *(f"{getattr(r, field):,}" for field in fields)) for r in records]
    print_table(names, rows, right=range(1, len(names)))


def list_counts(counts: Mapping[str, int]) -> str:
    """`1,204 not_sampled, 3 duplicate`: reasons with their counts, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{count:,} {reason}" for reason, count in ordered)


def print_wrapped(text: str) -> None:
    """A sentence on stdout, broken between words at the terminal's width."""
    width = console().width
    print(textwrap.fill(printable(text), width, break_long_words=False, break_on_hyphens=False))


def draws_blocks() -> bool:
    """Whether stdout can spell the block characters that bars are made of."""
    encoding = (console().encoding or "ascii").lower()
    return encoding.replace("-", "").startswith("utf")


class Progress:
    """One progress bar on stderr; without a bar it says nothing."""

    def __init__(self, bar: "bars.Progress | None" = None) -> None:
        self._bar, self._done, self._shown = bar, 0, 0.0

    def advance(self, number: int = 1, note: str = "") -> None:
        """Moves the bar by so many; the note stands behind it, such as a live rate."""
        self._done += number
        # rich takes microseconds for each update, and a corpus has millions of questions
        if self._bar and (now := time.monotonic()) > self._shown + EVERY:
            self._bar.update(self._bar.task_ids[0], completed=self._done, note=note)
            self._shown = now

    def reach(self, done: int, total: int) -> None:
        """Moves the bar to `done` of `total`."""
        if self._bar:
            self._bar.update(self._bar.task_ids[0], total=total)
        self.advance(done - self._done)


@contextmanager
def progress(label: str, unit: str, *, total: int | None = None, quiet: bool) -> Iterator[Progress]:
    """A bar while the block runs; none when `quiet` or where stderr is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield Progress()
        return
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn(unit, markup=False),
        bars.TimeRemainingColumn(elapsed_when_finished=True),
        bars.TextColumn("{task.fields[note]}", markup=False),
    )
    screen = console(stderr=True)
    # stdout may be a file: what is printed there meanwhile must not go to stderr
    with bars.Progress(*columns, console=screen, transient=True, redirect_stdout=False) as bar:
        bar.add_task(label, total=total, note="")
        yield Progress(bar)


def prepare_streams() -> None:
    """No character ends a command: what a stream cannot spell is shown as `?`.

    A stream that was closed before the start (`>&-`) leads nowhere.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            opened = os.open(os.devnull, os.O_WRONLY)
            if opened != number:  # a file opened later would get the number, and what C code prints
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def drop_stdout() -> None:
    """Sends what is still buffered nowhere, or Python would complain of it once more at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def name_stdout() -> str:
    """The file that stdout goes into, where it is one that the system names."""
    try:
        named = str(Path(f"/proc/self/fd/{sys.stdout.fileno()}").readlink())
    except (OSError, ValueError):
        named = ""
    return f"the output, {named}" if named.startswith("/") else "the output"
