"""Shards: a fixed split of a sorted list, the same on every machine."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

from envbuild.errors import UsageError

T = TypeVar("T")


def shard_of(key: str, shards: int) -> int:
    """Which of `shards` a key belongs to: BLAKE2b of the key, never `hash()`."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) % shards


def parse_shard(text: str) -> tuple[int, int]:
    """`I/N` as (I, N), 0 <= I < N. Raises UsageError otherwise."""
    index, slash, count = text.partition("/")
    if slash and index.isdigit() and count.isdigit() and int(index) < int(count):
        return int(index), int(count)
    raise UsageError(f"--shard takes I/N with 0 <= I < N, such as 0/64; got {text!r}")


def own_shard(keys: Iterable[str], *, index: int, count: int) -> list[str]:
    """The sorted keys of shard `index` of `count`."""
    return [key for key in sorted(keys) if shard_of(key, count) == index]


def chunked(values: Sequence[T], size: int) -> list[Sequence[T]]:
    """Runs of at most `size` neighbouring values."""
    return [values[start : start + size] for start in range(0, len(values), size)]
