"""Buckets of masked gold-SQL length: half-open bands between edges (CONTRACT 4)."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from envbuild.errors import UsageError

PUBLISHED_EDGES = (149, 278)
"""`short < 149 <= medium < 278 <= long`, in characters of masked SQL."""
NAMES_OF_TWO_EDGES = ("short", "medium", "long")


class Edges(msgspec.Struct, frozen=True):
    """Increasing lengths at which the next bucket begins; k edges make k + 1 buckets."""

    values: tuple[int, ...] = PUBLISHED_EDGES

    @property
    def names(self) -> tuple[str, ...]:
        """The buckets' names, shortest first."""
        if len(self.values) == 2:
            return NAMES_OF_TWO_EDGES
        return tuple(f"b{position}" for position in range(len(self.values) + 1))

    def bucket(self, length: int) -> str:
        """The bucket that a length falls into."""
        return self.names[bisect_right(self.values, length)]

    def bounds(self, position: int) -> tuple[int, int | None]:
        """(first length inside, first length outside) of a bucket; None: open."""
        ends = (0, *self.values, None)
        lower, upper = ends[position], ends[position + 1]
        return (lower or 0, upper)

    def render(self) -> str:
        """`149,278`: as --edges takes it."""
        return ",".join(map(str, self.values))


def bucket_of(length: int, edges: Edges | Sequence[int] = PUBLISHED_EDGES) -> str:
    """The name of the bucket that a masked length falls into."""
    return (edges if isinstance(edges, Edges) else Edges(tuple(edges))).bucket(length)


def parse_edges(text: str) -> Edges:
    """`149,278` as Edges. Raises UsageError unless they are increasing positive whole numbers."""
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or values[0] <= 0 or any(a >= b for a, b in pairwise(values)):
        raise UsageError(
            f"--edges takes increasing lengths in characters, such as 149,278; got {text!r}"
        )
    return Edges(values)


def parse_shares(text: str, buckets: int) -> tuple[float, ...]:
    """`0.20,0.25,0.55` as one share a bucket. Raises UsageError unless they add up to 1."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    # written so that NaN, which compares with nothing, is refused too
    if len(shares) != buckets or min(shares) < 0 or not abs(sum(shares) - 1) <= 1e-6:
        raise UsageError(
            f"--shares takes {buckets} numbers that add up to 1, one a bucket, such as "
            f"0.20,0.25,0.55 for three; got {text!r}"
        )
    return shares


def suggest_edges(lengths: Iterable[int], buckets: int) -> Edges:
    """The `buckets - 1` edges that cut these lengths into buckets as even as they allow.

    Each edge is a length that occurs, the one whose share below comes nearest to its quantile.
    Raises UsageError for fewer than two buckets and for fewer different lengths than buckets.
    """
    if buckets < 2:
        raise UsageError(f"--suggest takes the number of buckets, at least 2; got {buckets}")
    below: dict[int, int] = {}
    counted = sorted(lengths)
    for position, length in enumerate(counted):
        below.setdefault(length, position)
    candidates = list(below)[1:]
    if len(candidates) < buckets - 1:
        raise UsageError(
            f"{len(below)} different masked lengths cannot be cut into {buckets} buckets"
        )
    edges: list[int] = []
    first = 0
    for cut in range(1, buckets):
        last = len(candidates) - (buckets - 1 - cut)
        wanted = cut * len(counted) / buckets
        place = min(range(first, last), key=lambda at: abs(below[candidates[at]] - wanted))
        edges.append(candidates[place])
        first = place + 1
    return Edges(tuple(edges))
