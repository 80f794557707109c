"""Terminal tables; rich lives here. Plain when piped, as wide as the terminal at most.

Only where the numbers alone are wider does a table go past the edge: they are never cut.
"""

import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from envbuild.records.counted import printable

FOLDED, WIDEST = 12, 10_000
"""Characters: the narrowest that a longer text is folded to; more than any table has."""


def console() -> Console:
    """The console for results: stdout, no colour when piped or under NO_COLOR."""
    return Console(highlight=False, soft_wrap=False)


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str = "",
    right: Sequence[int] = (),
) -> None:
    """One table on stdout; `right` names the columns that hold numbers."""
    from rich import box
    from rich.cells import cell_len
    from rich.measure import Measurement
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


def print_wrapped(text: str) -> None:
    """A sentence on stdout, broken between words at the terminal's width."""
    width = console().width
    print(textwrap.fill(printable(text), width, break_long_words=False, break_on_hyphens=False))


def draws_blocks() -> bool:
    """Whether stdout can spell the block characters that bars are made of."""
    encoding = (console().encoding or "ascii").lower()
    return encoding.replace("-", "").startswith("utf")
