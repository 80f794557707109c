"""Progress bars on stderr; tqdm lives here."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def progress(values: Iterable[T], *, total: int | None, label: str, quiet: bool) -> Iterator[T]:
    """The values, with a bar on stderr while they pass; silent when `quiet` or not a terminal."""
    from tqdm import tqdm

    # disable=None: tqdm itself looks whether stderr is a terminal
    yield from tqdm(values, total=total, desc=label, disable=True if quiet else None, leave=False)


@contextmanager
def progress_count(
    *, total: int | None, label: str, quiet: bool
) -> Iterator[Callable[[int], None]]:
    """A bar moved by hand: call what comes out with how many more are done."""
    from tqdm import tqdm

    with tqdm(total=total, desc=label, disable=True if quiet else None, leave=False) as bar:
        yield bar.update


@contextmanager
def counter(label: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A callback `(done, total)` that moves a bar on stderr."""
    from tqdm import tqdm

    with tqdm(desc=label, disable=True if quiet else None, leave=False) as bar:

        def watch(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield watch


@contextmanager
def progress_noted(*, total: int, label: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar that moves by one with a short note behind it, such as a live rate."""
    from tqdm import tqdm

    with tqdm(total=total, desc=label, disable=True if quiet else None, leave=False) as bar:

        def advance(note: str) -> None:
            bar.set_postfix_str(note, refresh=False)
            bar.update(1)

        yield advance
