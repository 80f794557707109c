"""Every error that envbuild raises on purpose, by whose fault it is.

    EnvbuildError
    ├── OperatorError               the person at the keyboard; the CLI prints it and exits 2
    │   ├── UsageError              an option or argument that cannot be
    │   ├── SourceError             a source that is missing, unreadable or of no known layout
    │   ├── CorpusFolderError       a corpus folder that is missing, incomplete or of another format
    │   ├── ConfigurationError      a TOML file or a resume whose configuration differs
    │   ├── OutputError             a folder that cannot be written, a full disk
    │   ├── UnknownNameError        a reader, preset, verdict, tool … that is not registered
    │   ├── WorkerError             a worker process that died twice on the same shard
    │   └── MissingDependencyError  an optional package that is not installed
    ├── CorpusError                 the data; becomes a reject or a finding, never a crash
    │   ├── PayloadError            a row payload that does not parse
    │   ├── SchemaError             DDL that SQLite refuses
    │   └── GoldError               a gold query that cannot be scored
    └── StateError                  our own protocol used out of order (a step after the end)

What a policy does wrong is never an exception: it becomes an observation and a tier.
"""

import difflib
from bisect import bisect_left
from collections.abc import Iterable, Sequence

LISTED = 5
"""Names that an error lists of those that are too many for a sentence."""
COMPARED = 2000
"""Names on either side that are compared with one that is unknown: some 0.2 s at most."""


class EnvbuildError(Exception):
    """The root; its text is one clear sentence for a person."""


class OperatorError(EnvbuildError):
    """Something the operator can put right."""


class UsageError(OperatorError):
    """An option or argument that cannot be; says what would have been valid."""


class SourceError(OperatorError):
    """A source that is missing, unreadable or of no known layout."""


class CorpusFolderError(OperatorError):
    """A corpus or manifest folder that is missing, incomplete or of another format."""


class ConfigurationError(OperatorError):
    """A configuration file that is wrong, or a resume under another configuration."""


class OutputError(OperatorError):
    """An output folder that cannot be written, or a full disk."""


class UnknownNameError(OperatorError):
    """A name that is not registered; lists the ones that are, or the nearest of many."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        super().__init__(f"no {kind} {name!r}; known: {', '.join(self.known) or 'none'}")

    @classmethod
    def near(
        cls, kind: str, name: str, ordered: Sequence[str], *, listed_in: str = ""
    ) -> "UnknownNameError":
        """For names too many to list: the few that resemble `name`, else how the names look.

        `ordered`: every known name, sorted; `listed_in`: where a person can read them all.
        """
        if len(ordered) <= LISTED:
            return cls(kind, name, ordered)
        place = bisect_left(ordered, name)  # of very many, those around the unknown one
        around = ordered[max(0, place - COMPARED) : place + COMPARED]
        close = difflib.get_close_matches(name, around, n=LISTED, cutoff=0.7)
        error = cls(kind, name, close or (ordered[0], ordered[len(ordered) // 2]))
        shown = f"; near: {', '.join(close)}" if close else f", such as {' or '.join(error.known)}"
        if listed_in and not close:
            shown += f"; all are in {listed_in}"
        error.args = (f"no {kind} {name!r} among {len(ordered):,}{shown}",)
        return error


class WorkerError(OperatorError):
    """A worker process that died twice on the same shard, most often for want of memory."""


class MissingDependencyError(OperatorError):
    """An optional package that is not installed; carries the install line."""

    def __init__(self, needed_by: str, package: str, install: str) -> None:
        self.needed_by, self.package, self.install = needed_by, package, install
        super().__init__(f"{needed_by} needs {package}: {install}")


class CorpusError(EnvbuildError):
    """The data's fault; carries a reason code that ends up in rejects or findings."""

    def __init__(self, reason: str, detail: str = "", *, db_id: str = "", table: str = "") -> None:
        self.reason, self.detail, self.db_id, self.table = reason, detail, db_id, table
        super().__init__(f"{reason}: {detail}" if detail else reason)


class PayloadError(CorpusError):
    """A row payload that does not parse."""


class SchemaError(CorpusError):
    """DDL that SQLite refuses."""


class GoldError(CorpusError):
    """A gold query that cannot be scored."""


class StateError(EnvbuildError):
    """Our own protocol used out of order."""
