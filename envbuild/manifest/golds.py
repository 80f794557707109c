"""One database's gold queries: each is compiled, run and checked once, for all its phrasings."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from envbuild.errors import CorpusError, GoldError
from envbuild.manifest.layout import escape_part
from envbuild.records.execution import Limits, Outcome, QueryResult, Verdict
from envbuild.records.manifest import GoldResult
from envbuild.schema.graph import SchemaGraph
from envbuild.schema.read import read_schema
from envbuild.sql.execution.session import Session
from envbuild.sql.files.subset import build_view_image
from envbuild.sql.from_names import order_matters
from envbuild.sql.gold_tables import GoldTableReader, GoldTables
from envbuild.sql.verdicts import decode_rows, digest_rows, encode_rows, judge

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


class Gold(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one gold query; `reason` says why it cannot be used."""

    sql: str
    tables: GoldTables = GoldTables(tables=())
    stored: GoldResult | None = None
    rows: int = 0
    """Rows of its result."""
    reason: str = ""
    """A reject's reason; empty where the gold can be scored."""
    detail: str = ""


class GoldRunner:
    """One database, opened for reading, and the gold queries met so far."""

    def __init__(self, path: Path, *, corpus: str, db_id: str, limits: Limits) -> None:
        """Raises CorpusError (`database_unreadable`) where the file is no database."""
        self.path = path
        self.prefix = f"{escape_part(corpus)}/{escape_part(db_id)}/"
        self.limits = limits
        self.session = Session.open_file(path, limits=limits)
        self.compiler = Session.open_file(path, limits=limits)
        self.schema = read_schema(self.compiler.connection)
        self.graph = SchemaGraph(self.schema)
        self.reader = GoldTableReader(self.compiler.connection)
        self.views = Views(path, limits)
        self.golds: dict[str, Gold] = {}

    def gold(self, sql: str) -> Gold:
        """The gold query's tables and result, or why it has none; computed once."""
        known = self.golds.get(sql)
        if known is None:
            known = self.golds[sql] = self._examine(sql)
        return known

    def difference(self, tables: Sequence[str], gold: Gold) -> str:
        """What differs when the gold runs with only `tables` there; empty where nothing does."""
        if gold.stored is None:
            return gold.detail
        whole = QueryResult(
            outcome=Outcome.OK,
            columns=gold.stored.columns,
            rows=decode_rows(gold.stored.result),
        )
        return self.views.difference(tables, gold.sql, whole)

    def close(self) -> None:
        """Releases every connection."""
        self.views.close()
        self.reader.close()
        self.compiler.close()
        self.session.close()

    def _examine(self, sql: str) -> Gold:
        try:
            tables = self.reader.read(sql)
        except GoldError as e:
            return Gold(sql=sql, reason=e.reason, detail=e.detail)
        unknown = [name for name in tables.tables if name not in self.graph.tables]
        if unknown:
            detail = f"no ordinary table: {', '.join(unknown)}"
            return Gold(sql=sql, tables=tables, reason="gold_reads_virtual_table", detail=detail)
        whole = self.session.run(sql)
        if not whole.ok:
            reason = f"gold_{whole.outcome.value}"
            return Gold(sql=sql, tables=tables, reason=reason, detail=whole.error)
        # A result hangs on the tables it reads and on nothing else, so one view of them alone
        # stands for every larger one; a query that reads the catalogue is checked row by row.
        if not tables.reads_schema and (
            difference := self.views.difference(tables.tables, sql, whole)
        ):
            return Gold(sql=sql, tables=tables, reason="view_differs", detail=difference)
        return Gold(
            sql=sql,
            tables=tables,
            stored=self._stored(sql, whole),
            rows=len(whole.rows),
        )

    def _stored(self, sql: str, whole: QueryResult) -> GoldResult:
        ordered = order_matters(sql)
        digest = hashlib.sha256(sql.encode("utf-8", "surrogatepass")).hexdigest()
        return GoldResult(
            gold_id=self.prefix + digest[:16],
            outcome=Outcome.OK.value,
            columns=whole.columns,
            ordered=ordered,
            digest=digest_rows(whole.rows, ordered=ordered),
            result=encode_rows(whole.rows),
        )
