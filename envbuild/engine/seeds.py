"""Chance has an owner: every seed is derived by hash, every set sorted before it is shuffled."""

import hashlib
import random
from collections.abc import Iterable


def derive_seed(run_seed: int, row_id: str, purpose: str) -> int:
    """A 63-bit seed from (run seed, row id, purpose): the same on every machine and worker."""
    digest = hashlib.sha256(f"{run_seed}/{row_id}/{purpose}".encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest()[:8]) >> 1


def derived_random(run_seed: int, row_id: str, purpose: str) -> random.Random:
    """A generator of its own for one row and purpose."""
    return random.Random(derive_seed(run_seed, row_id, purpose))


def shuffled(names: Iterable[str], *, seed: int) -> tuple[str, ...]:
    """The names, sorted first and then shuffled by `seed`."""
    order = sorted(names)
    random.Random(seed).shuffle(order)
    return tuple(order)
