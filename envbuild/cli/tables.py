"""Terminal tables; rich lives here. Plain when piped, never wider than the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


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
    from rich.text import Text

    # Text, not str: a cell may hold what rich would take for markup
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, header in enumerate(headers):
        table.add_column(Text(header), justify="right" if position in right else "left")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    screen = console()
    with screen.capture() as drawn:
        screen.print(table)
    lines = drawn.get().splitlines()
    if title:  # above the table, not in its width
        lines[:1] = [title]
    print("\n".join(line.rstrip() for line in lines))


def draws_blocks() -> bool:
    """Whether stdout can spell the block characters that bars are made of."""
    encoding = (console().encoding or "ascii").lower()
    return encoding.replace("-", "").startswith("utf")
