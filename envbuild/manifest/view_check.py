"""Whether a gold query gives the same result on a sampled view as on the whole database."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from envbuild.errors import CorpusError
from envbuild.records.execution import Limits, QueryResult, Verdict
from envbuild.sql.executor import Session
from envbuild.sql.files.view import build_view_image
from envbuild.sql.text.order import order_matters
from envbuild.sql.verdicts import judge

KEPT_BYTES = 64 * 1024 * 1024
"""Images kept open: many golds of a database read the same tables."""


class Views:
    """Sampled views of one database; the last ones stay open."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path, self.limits = path, limits
        self.open: OrderedDict[tuple[str, ...], tuple[Session, int]] = OrderedDict()
        self.bytes = 0

    def difference(self, tables: Sequence[str], sql: str, whole: QueryResult) -> str:
        """What differs when `sql` runs with only `tables` there; empty where it gives `whole`."""
        try:
            result = self._session(tuple(tables)).run(sql)
        except CorpusError as e:
            return str(e)
        if not result.ok:
            return f"{result.outcome.value}: {result.error}"
        verdict = judge(result, whole, verdict="ordered@1", ordered=order_matters(sql))
        if verdict is Verdict.EQUAL:
            return ""
        return f"{len(result.rows)} rows that differ from the whole database's {len(whole.rows)}"

    def close(self) -> None:
        """Closes every view."""
        while self.open:
            self._drop_oldest()

    def _session(self, tables: tuple[str, ...]) -> Session:
        if tables in self.open:
            self.open.move_to_end(tables)
            return self.open[tables][0]
        image = build_view_image(self.path, tables)
        session = Session.open_image(image, limits=self.limits)
        self.open[tables] = session, len(image)
        self.bytes += len(image)
        while self.bytes > KEPT_BYTES and len(self.open) > 1:
            self._drop_oldest()
        return session

    def _drop_oldest(self) -> None:
        _, (session, size) = self.open.popitem(last=False)
        self.bytes -= size
        session.close()
