"""Locks in a forked child: whoever held one in the parent is not there to let go of it."""

import os
import weakref
from typing import Protocol


class HasLocks(Protocol):
    """What keeps locks that a child must not inherit."""

    def renew_locks(self) -> None:
        """Called in the child, before anything else runs there."""


_owners: "weakref.WeakSet[HasLocks]" = weakref.WeakSet()


def renew_in_children(owner: HasLocks) -> None:
    """From now on, each fork of this process renews the owner's locks in the child."""
    _owners.add(owner)


def _renew() -> None:
    for owner in list(_owners):
        owner.renew_locks()


os.register_at_fork(after_in_child=_renew)
