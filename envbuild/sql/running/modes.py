"""How strictly a statement runs, and the word by which a run asks for another strictness."""

from enum import Enum


class Mode(Enum):
    """How a statement runs."""

    QUICK = "quick"
    """Values up to 4 KiB; longer ones, and functions that cannot be stopped, end the run."""
    CAREFUL = "careful"
    """Values of any allowed length, watched closely; no slow functions on them."""
    ISOLATED = "isolated"
    """As careful, and slow functions too: a process of its own runs it, and may be killed."""


class NotHere(Exception):  # noqa: N818 - no failure: the statement belongs into another mode
    """The statement needs another mode; nothing has been decided about it."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
