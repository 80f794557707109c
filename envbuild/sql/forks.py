"""Locks in a forked child: whoever held one in the parent is not there to let go of it."""

import os
import threading
import weakref
from collections.abc import Hashable
from typing import Protocol


class HasLocks(Protocol):
    """What keeps locks that a child must not inherit."""

    def renew_locks(self) -> None:
        """Called in the child, before anything else runs there."""


_owners: "weakref.WeakSet[HasLocks]" = weakref.WeakSet()


def renew_in_children(owner: HasLocks) -> None:
    """From now on, each fork of this process renews the owner's locks in the child."""
    _owners.add(owner)


_left_to_the_parent: list[object] = []


def leave_to_the_parent(inherited: object) -> None:
    """Keeps in a child what its parent may close: here that could wait for a lock of the parent."""
    _left_to_the_parent.append(inherited)


class KeyedLocks:
    """A lock for each key, which lives as long as a thread holds it or waits for it."""

    def __init__(self) -> None:
        self.renew_locks()
        renew_in_children(self)

    def renew_locks(self) -> None:
        """For a forked child: another thread of the parent may have held one."""
        self._locks: weakref.WeakValueDictionary[Hashable, threading.Lock]
        self._locks = weakref.WeakValueDictionary()
        self._guard = threading.Lock()

    def of(self, key: Hashable) -> threading.Lock:
        """The key's lock, the same one for all who ask meanwhile."""
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())


def _renew() -> None:
    for owner in list(_owners):
        owner.renew_locks()


os.register_at_fork(after_in_child=_renew)
