"""Chance has an owner: every seed is derived by hash, every set sorted before it is shuffled."""

import hashlib
import random
from collections.abc import Iterable

CANDIDATES = 1024
"""Candidates of a row that a sampling seed tells apart."""


def derive_seed(run_seed: int, row_id: str, purpose: str) -> int:
    """A 63-bit seed from (run seed, row id, purpose): the same on every machine and worker."""
    digest = hashlib.sha256(f"{run_seed}/{row_id}/{purpose}".encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest()[:8]) >> 1


def completion_seed(run_seed: int, episode_id: str, turn: int) -> int:
    """The sampling seed of one turn's completion.

    Its last bits are the episode's candidate: the seeds of a group never collide, and a scripted
    server can tell its members apart (`candidate_of`).
    """
    drawn = derive_seed(run_seed, episode_id, f"completion/{turn}")
    place = episode_id.rpartition("/")[2]
    candidate = int(place) if place.isascii() and place.isdecimal() else 0
    return drawn - drawn % CANDIDATES + candidate % CANDIDATES


def candidate_of(seed: int) -> int:
    """The candidate whose completion has this sampling seed."""
    return seed % CANDIDATES


def derived_random(run_seed: int, row_id: str, purpose: str) -> random.Random:
    """A generator of its own for one row and purpose."""
    return random.Random(derive_seed(run_seed, row_id, purpose))


def shuffled(names: Iterable[str], *, seed: int) -> tuple[str, ...]:
    """The names, sorted first and then shuffled by `seed`."""
    order = sorted(names)
    random.Random(seed).shuffle(order)
    return tuple(order)
