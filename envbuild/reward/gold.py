"""Gold results made ready for comparing, kept for the next episodes of the same row."""

import threading
from collections import OrderedDict

from envbuild.records.manifest import GoldResult
from envbuild.sql.comparing.f1 import GoldRows
from envbuild.sql.forks import renew_in_children
from envbuild.sql.results import decode_rows

KEPT_BYTES = 32 * 1024 * 1024
"""Encoded bytes whose decoded rows are kept; decoded they take about ten times as much."""


def gold_rows(gold: GoldResult) -> GoldRows:
    """The gold's rows, decoded once while they are in use."""
    return _kept.rows(gold.result)


class _KeptGolds:
    """The last used golds, bounded by their encoded bytes."""

    def __init__(self) -> None:
        self.golds: OrderedDict[bytes, GoldRows] = OrderedDict()
        self.bytes = 0
        self.renew_locks()
        renew_in_children(self)

    def renew_locks(self) -> None:
        """For a forked child: another thread of the parent may have been scoring."""
        self.lock = threading.Lock()

    def rows(self, encoded: bytes) -> GoldRows:
        with self.lock:
            if (found := self.golds.get(encoded)) is not None:
                self.golds.move_to_end(encoded)
                return found
        found = GoldRows(decode_rows(encoded) if encoded else ())
        with self.lock:
            if encoded not in self.golds and len(encoded) <= KEPT_BYTES:
                self.golds[encoded] = found
                self.bytes += len(encoded)
                while self.bytes > KEPT_BYTES:
                    dropped, _ = self.golds.popitem(last=False)
                    self.bytes -= len(dropped)
        return found


_kept = _KeptGolds()
