"""One database's questions become manifest rows or rejects, their golds run once (CONTRACT 6)."""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from envbuild.corpora.wording import is_placeholder
from envbuild.engine.seeds import derive_seed
from envbuild.errors import CorpusError, GoldError
from envbuild.manifest.buckets import Edges
from envbuild.manifest.read import escape_part, row_id_of
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.corpus import DatabaseRow, Reject, Schema
from envbuild.records.execution import Limits, Outcome, QueryResult, Rows, Verdict
from envbuild.records.manifest import GoldResult, ManifestRow, VariantBatch
from envbuild.schema.graph import SchemaGraph
from envbuild.schema.read import read_schema
from envbuild.schema.sampler import draw_target, sample_schema
from envbuild.sql.execution.session import Session
from envbuild.sql.files.subset import build_view_image
from envbuild.sql.from_names import order_matters
from envbuild.sql.gold_tables import GoldTableReader, GoldTables
from envbuild.sql.mask import mask_sql
from envbuild.sql.names import read_identifiers
from envbuild.sql.verdicts import decode_rows, digest_rows, encode_rows, judge

KEPT_BYTES = 64 * 1024 * 1024
"""Views kept open: many golds of a database read the same tables."""


class RowSource(msgspec.Struct, frozen=True, kw_only=True):
    """What all rows of one corpus have in common."""

    corpus: str
    revision: str
    root: Path
    """The corpus folder."""
    sqlite_root: str
    """The corpus folder as the manifest names it: relative to the manifest folder."""
    edges: Edges
    mask: str
    settings: ManifestSettings


class AskedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a row takes from questions.parquet."""

    question_id: str
    db_id: str
    split: str = ""
    question: str
    style: str = ""
    evidence: str = ""
    gold_sql: str
    difficulty: str = ""


class QuestionSignal(msgspec.Struct, frozen=True, kw_only=True):
    """What a row takes from signal.parquet; the queries quoted there are gigabytes."""

    question_id: str
    signal_high: float | None = None
    mutants: int = 0


class AskedDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """One database's questions, with what earlier stages found about them."""

    db_id: str
    row: DatabaseRow | None
    """None where the corpus has no such database."""
    questions: tuple[AskedQuestion, ...]
    signals: dict[str, QuestionSignal]
    """By question id."""
    findings: dict[str, tuple[str, ...]]
    """Question id -> codes, sorted."""


class Refusal(NamedTuple):
    """Why a question is no row, or a gold cannot be scored."""

    reason: str
    detail: str


class RowBuilder:
    """Builds the rows of one database's questions; it stays open meanwhile."""

    def __init__(self, source: RowSource, asked: AskedDatabase) -> None:
        self.source, self.asked = source, asked
        self.used: dict[str, Gold] = {}
        """Gold SQL -> its tables and result, for golds that rows refer to."""
        self.golds: GoldRunner | None = None
        self.refusal = Refusal("unknown_db_id", f"the corpus has no database {asked.db_id!r}")
        if asked.row is not None:
            try:
                path = source.root / asked.row.sqlite_file
                prefix = f"{escape_part(source.corpus)}/{escape_part(asked.db_id)}/"
                self.golds = GoldRunner(path, prefix, source.settings.limits)
            except CorpusError as e:
                self.refusal = Refusal("database_unreadable", str(e))

    def __enter__(self) -> "RowBuilder":
        return self

    def __exit__(self, *_: object) -> None:
        if self.golds is not None:
            self.golds.close()

    @property
    def schema(self) -> Schema:
        """The database's; without tables where it cannot be read."""
        return self.golds.schema if self.golds else Schema(tables=(), foreign_keys=())

    def outcomes(self, *, check_view: bool = False) -> Iterator[tuple[str, ManifestRow | Reject]]:
        """Each question's row id with its row, or with the reason why it is none.

        `check_view` runs the gold query on the sample's own view. Without it the check on the view
        of its gold tables alone stands for every sample, but for queries that read the catalogue.
        """
        phrasings = Counter(question.question_id for question in self.asked.questions)
        seen: set[str] = set()
        for question in self.asked.questions:
            style = question.style if phrasings[question.question_id] > 1 else ""
            row_id = row_id_of(self.source.corpus, question.db_id, question.question_id, style)
            found = self._refusal(question, repeated=row_id in seen)
            seen.add(row_id)
            row = found or self._row(question, row_id, check_view=check_view)
            yield row_id, self._reject(question, row) if isinstance(row, Refusal) else row

    def used_golds(self) -> list[GoldResult]:
        """The gold results that rows refer to, by id."""
        return sorted((gold.stored for gold in self.used.values()), key=lambda gold: gold.gold_id)

    def make_variants(self) -> VariantBatch:
        """The hidden variants that the settings ask for, for the golds that rows refer to."""
        settings = self.source.settings
        if not settings.variants or self.golds is None or not self.used:
            return VariantBatch()
        from envbuild.signal.variants import make_variants  # sqlglot only when needed

        return make_variants(
            self.golds.path,
            [(gold.stored.gold_id, sql) for sql, gold in self.used.items()],
            corpus=self.source.corpus,
            db_id=self.asked.db_id,
            count=settings.variants,
            seed=settings.seed,
        )

    def _refusal(self, question: AskedQuestion, *, repeated: bool) -> Refusal | None:
        """Why a question cannot or shall not be a row, whatever its gold gives."""
        settings = self.source.settings
        if not question.db_id:
            return Refusal("missing_db_id", "the question names no database")
        if repeated:
            return Refusal("duplicate_question", "its question id and style were there before")
        if settings.styles and question.style not in settings.styles:
            return Refusal("style_not_taken", f"--styles takes {', '.join(settings.styles)}")
        if is_placeholder(question.question):
            return Refusal("placeholder_phrasing", question.question[:80] or "(empty)")
        if not question.gold_sql.strip():
            return Refusal("no_gold_sql", "")
        found = self.asked.findings.get(question.question_id, ())
        codes = [code for code in settings.leave_out if code in found]
        return Refusal(codes[0], "left out for this finding") if codes else None

    def _row(
        self, question: AskedQuestion, row_id: str, *, check_view: bool
    ) -> ManifestRow | Refusal:
        if self.golds is None or self.asked.row is None:
            return self.refusal
        gold = self.golds.examine(question.gold_sql)
        if isinstance(gold, Refusal):
            return gold
        source, settings, database = self.source, self.source.settings, self.asked.row
        seed = derive_seed(settings.seed, row_id, "sample")
        sample = sample_schema(
            self.golds.schema,
            gold.tables.tables,
            target=draw_target(seed, smallest=settings.smallest, largest=settings.largest),
            seed=seed,
            distractors=settings.distractors,
            extra=settings.extra,
            full=settings.full,
            graph=self.golds.graph,
        )
        if check_view or gold.tables.reads_schema:
            whole = decode_rows(gold.stored.result)
            if difference := self.golds.difference(sample.tables, question.gold_sql, whole):
                return Refusal("view_differs", difference)
        self.used[question.gold_sql] = gold
        masked = mask_sql(question.gold_sql, identifiers=self.golds.identifiers, mode=source.mask)
        signal = self.asked.signals.get(question.question_id)
        return ManifestRow(
            row_id=row_id,
            corpus=source.corpus,
            corpus_revision=source.revision,
            split=question.split,
            question_id=question.question_id,
            db_id=question.db_id,
            question=question.question,
            style=question.style,
            evidence=question.evidence,
            gold_sql=question.gold_sql,
            masked_length=masked.length,
            bucket=source.edges.bucket(masked.length),
            difficulty=question.difficulty,
            gold_tables=sample.gold_tables,
            literals=masked.literals,
            signal=signal.signal_high if signal else None,
            signal_mutants=signal.mutants if signal else 0,
            tables=sample.tables,
            distractors=sample.distractors,
            target_size=sample.target_size,
            seed=seed,
            sqlite_file=f"{source.sqlite_root}/{database.sqlite_file}",
            database_sha256=database.sha256,
            gold_id=gold.stored.gold_id,
            gold_digest=gold.stored.digest,
            gold_rows=gold.rows,
            gold_columns=len(gold.stored.columns),
            gold_ordered=gold.stored.ordered,
            findings=self.asked.findings.get(question.question_id, ()),
        )

    def _reject(self, question: AskedQuestion, refusal: Refusal) -> Reject:
        style = f"[{question.style}] " if question.style else ""
        return Reject(
            corpus=self.source.corpus,
            db_id=self.asked.db_id,
            question_id=question.question_id,
            kind="question",
            reason=refusal.reason,
            detail=(style + refusal.detail).strip(),
        )


class Gold(NamedTuple):
    """A gold query that can be scored."""

    tables: GoldTables
    stored: GoldResult
    rows: int
    """Of its result."""


class GoldRunner:
    """One database, opened for reading, and the gold queries met so far."""

    def __init__(self, path: Path, prefix: str, limits: Limits) -> None:
        """`prefix` begins the golds' ids.

        Raises CorpusError (`database_unreadable`) where the file is no database.
        """
        self.path, self.prefix, self.limits = path, prefix, limits
        self.session = Session.open_file(path, limits=limits)
        self.compiler = Session.open_file(path, limits=limits)
        self.schema = read_schema(self.compiler.connection)
        self.graph = SchemaGraph(self.schema)
        self.identifiers = read_identifiers(self.compiler.connection)
        self.reader = GoldTableReader(self.compiler.connection)
        self.known: dict[str, Gold | Refusal] = {}
        self.views: OrderedDict[tuple[str, ...], tuple[Session, int]] = OrderedDict()
        """Tables -> the view of them and its bytes, the last used one at the end."""

    def examine(self, sql: str) -> Gold | Refusal:
        """The gold query's tables and result, or why it has none; each is run once."""
        if sql not in self.known:
            self.known[sql] = self._examine(sql)
        return self.known[sql]

    def difference(self, tables: Sequence[str], sql: str, whole: Rows) -> str:
        """What differs when `sql` runs with only `tables` there; empty where it gives `whole`."""
        try:
            result = self._view(tuple(tables)).run(sql)
        except CorpusError as e:
            return str(e)
        if not result.ok:
            return f"{result.outcome.value}: {result.error}"
        expected = QueryResult(outcome=Outcome.OK, columns=result.columns, rows=whole)
        verdict = judge(result, expected, verdict="ordered@1", ordered=order_matters(sql))
        if verdict is Verdict.EQUAL:
            return ""
        return f"{len(result.rows)} rows that differ from the whole database's {len(whole)}"

    def close(self) -> None:
        """Releases every connection."""
        self.reader.close()
        for session in (self.session, self.compiler, *(view for view, _ in self.views.values())):
            session.close()

    def _examine(self, sql: str) -> Gold | Refusal:
        try:
            tables = self.reader.read(sql)
        except GoldError as e:
            return Refusal(e.reason, e.detail)
        unknown = [name for name in tables.tables if name not in self.graph.tables]
        if unknown:
            detail = f"no ordinary table: {', '.join(unknown)}"
            return Refusal("gold_reads_virtual_table", detail)
        whole = self.session.run(sql)
        if not whole.ok:
            return Refusal(f"gold_{whole.outcome.value}", whole.error)
        # A result hangs on the tables it reads and on nothing else, so one view of them alone
        # stands for every larger one; a query that reads the catalogue is checked row by row.
        if not tables.reads_schema and (
            difference := self.difference(tables.tables, sql, whole.rows)
        ):
            return Refusal("view_differs", difference)
        digest = hashlib.sha256(sql.encode("utf-8", "surrogatepass")).hexdigest()
        ordered = order_matters(sql)
        stored = GoldResult(
            gold_id=self.prefix + digest[:16],
            outcome=Outcome.OK.value,
            columns=whole.columns,
            ordered=ordered,
            digest=digest_rows(whole.rows, ordered=ordered),
            result=encode_rows(whole.rows),
        )
        return Gold(tables, stored, len(whole.rows))

    def _view(self, tables: tuple[str, ...]) -> Session:
        if tables not in self.views:
            image = build_view_image(self.path, tables)
            self.views[tables] = Session.open_image(image, limits=self.limits), len(image)
        self.views.move_to_end(tables)
        while len(self.views) > 1 and sum(size for _, size in self.views.values()) > KEPT_BYTES:
            _, (oldest, _) = self.views.popitem(last=False)
            oldest.close()
        return self.views[tables][0]
