"""Preflight over whole corpora: databases fanned out, findings gathered, one report."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TypeVar

import msgspec

from envbuild.corpora.source import INDEX_FILE
from envbuild.engine.fanout import run_shards
from envbuild.errors import CorpusError
from envbuild.io.files import write_bytes
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.io.sorting import SortedRecords, iter_grouped
from envbuild.preflight.checks import (
    DATABASE_CHECKS,
    EVALUATION_SEVERITIES,
    GOLD_CHECKS,
    MEANINGS,
    SEVERITIES,
    UNDETERMINED,
    Found,
)
from envbuild.preflight.row_counts import MeasuredCorpus
from envbuild.preflight.subjects import DatabaseInput, DatabaseSubject, GoldSubject
from envbuild.records.corpus import Question, Reject, is_evaluation_split
from envbuild.records.execution import Limits, Outcome
from envbuild.records.preflight import (
    CorpusReport,
    DatabaseHealth,
    Finding,
    FindingSummary,
    GoldHealth,
    Report,
    Severity,
    SignalPoint,
    Thresholds,
)
from envbuild.records.signal import SignalSummary
from envbuild.sql.connect import VERSIONS, SQLiteError

# A corpus: its databases checked by workers, then everything in one report.


DATABASES_A_SHARD, QUESTIONS_A_SHARD = 64, 400
Shard = tuple[Limits, list[DatabaseInput]]
"""A few databases for one worker."""


class CheckedDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one database."""

    health: DatabaseHealth
    gold: GoldHealth
    findings: tuple[Finding, ...]


class CorpusFindings(msgspec.Struct, frozen=True, kw_only=True):
    """One corpus's report and every finding behind it, sorted."""

    report: CorpusReport
    findings: Iterable[Finding]


def check_databases(
    measured: MeasuredCorpus,
    *,
    limits: Limits | None = None,
    workers: int | None = None,
    engine: str = "local",
    on_progress: Callable[[int], None] = lambda databases: None,
) -> Iterator[CheckedDatabase]:
    """Every measured database, checked with its questions; the same for any number of workers.

    `on_progress` is told how many databases were done since the last call.
    """
    shards = _iter_shards(measured, limits or Limits())
    for done in run_shards(
        check_shard,
        shards,
        workers=workers,
        engine=engine,
        on_crash=_crashed,
        shared_file=measured.folder.root / INDEX_FILE,
    ):
        yield from done
        on_progress(len(done))


def _iter_shards(measured: MeasuredCorpus, limits: Limits) -> Iterator[Shard]:
    """The corpus's databases, each with its questions and rejects, a few at a time."""
    refused: dict[str, list[Reject]] = defaultdict(list)
    for reject in measured.folder.rejects():
        refused[reject.db_id].append(reject)
    by_id = {database.row.db_id: database for database in measured.databases}
    file = measured.folder.root / "questions.parquet"
    batch: list[DatabaseInput] = []
    questions = 0
    for db_id, asked in iter_grouped(file, Question, by="db_id", keys=by_id):
        given = {"rejects": tuple(refused[db_id]), "questions": tuple(asked)}
        batch.append(msgspec.structs.replace(by_id[db_id], **given))
        questions += len(asked)
        if len(batch) >= DATABASES_A_SHARD or questions >= QUESTIONS_A_SHARD:
            yield limits, batch
            batch, questions = [], 0
    if batch:
        yield limits, batch


def check_shard(shard: Shard) -> list[CheckedDatabase]:
    """Every database of the shard, checked, in order; what a worker runs."""
    limits, databases = shard
    return [check_database(given, limits) for given in databases]


def _crashed(shard: Shard, reason: str) -> list[CheckedDatabase]:
    """What stands for a shard whose worker died twice."""
    died = Found(f"the worker that checked its shard of {len(shard[1])} died: {reason}")
    found = []
    for given in shard[1]:
        finding = as_finding(died, "crashed_database", corpus=given.corpus, db_id=given.row.db_id)
        asked = len(given.questions)
        health = _health(given, GoldHealth(golds=asked), [finding])
        gold = GoldHealth(questions=asked)
        found.append(CheckedDatabase(health=health, gold=gold, findings=(finding,)))
    return found


def conclude(
    measured: MeasuredCorpus,
    checked: Iterable[CheckedDatabase],
    *,
    signal: SignalSummary | None = None,
    signal_points: tuple[SignalPoint, ...] = (),
    extra: Iterable[Finding] = (),
) -> CorpusFindings:
    """One corpus's report from its checked databases, whatever their order.

    `signal`, its points and `extra` (its findings) were measured by the caller. Findings go to the
    disk where there are many: a corpus of two rows a table has a million.
    """
    findings = SortedRecords(Finding, finding_order)
    golds: list[GoldHealth] = []
    databases: list[DatabaseHealth] = []
    for finding in (*_corpus_findings(measured), *extra):
        findings.add(finding)
    for each in checked:
        golds.append(each.gold)
        databases.append(each.health)
        for finding in each.findings:
            findings.add(finding)
    report = CorpusReport(
        corpus=measured.folder.name,
        rows=measured.statistics,
        gold=summed_health(golds),
        findings=summarize(findings),
        worst=tuple(worst_databases(databases)),
        signal=signal,
        signal_points=signal_points,
    )
    return CorpusFindings(report=report, findings=findings)


def _corpus_findings(measured: MeasuredCorpus) -> Iterator[Finding]:
    """Too few rows, and databases and questions of the source that were not taken."""
    rows, corpus = measured.statistics, measured.folder.name
    if rows.verdict is not None:
        few = Found("; ".join(rows.reasons), count=rows.tables, severity=rows.verdict)
        yield as_finding(few, "few_rows", corpus=corpus)
    for reject in measured.folder.rejects():
        if reject.kind in ("database", "question"):
            message = f"{reject.kind} not taken: {reject.reason}"
            found = Found(message, question_id=reject.question_id, example=reject.detail)
            yield as_finding(found, f"{reject.kind}_refused", corpus=corpus, db_id=reject.db_id)


# All checks of one database and its golds.


S = TypeVar("S", DatabaseSubject, GoldSubject)


def check_database(given: DatabaseInput, limits: Limits) -> CheckedDatabase:
    """One database's findings, gold health and figures. Never raises for what the data hold.

    A check on which SQLite fails, as on a damaged page, is a finding too, and the others go on.
    """
    failures: list[Exception] = []

    def run(
        checks: Mapping[Callable[[S], Iterator[Found]], Severity], subject: S
    ) -> Iterator[tuple[str, Found]]:
        for check in checks:
            try:
                yield from [(check.__name__, found) for found in check(subject)]
            except (SQLiteError, CorpusError) as e:
                failures.append(e)

    tally: Counter[str] = Counter()
    here = {"corpus": given.corpus, "db_id": given.row.db_id}
    with closing(DatabaseSubject(given, limits)) as database:
        findings = [
            as_finding(found, code, **here) for code, found in run(DATABASE_CHECKS, database)
        ]
        for gold in database.golds():
            drafts = list(run(GOLD_CHECKS, gold))
            findings += [each for draft in drafts for each in _each_question(gold, *draft)]
            codes = {code for code, found in drafts if found.severity is not Severity.NOTE}
            tally.update(_fate(gold.result.outcome, codes))
    if failures:
        said = Found(f"SQLite fails on it: {failures[0]}")
        findings.append(as_finding(said, "unreadable_database", **here))
    health = GoldHealth(questions=len(given.questions), **tally)
    return CheckedDatabase(
        findings=tuple(findings), gold=health, health=_health(given, health, findings)
    )


def _fate(outcome: Outcome, codes: set[str]) -> Iterator[str]:
    """The counts of GoldHealth that one gold belongs to."""
    hurt = {
        "empty": "empty_gold" in codes,
        "trivial": "trivial_gold" in codes,
        "undetermined": bool(codes & UNDETERMINED),
    }
    yield "golds"
    yield "error" if outcome is Outcome.INVALID else outcome.value
    yield from (name for name, holds in hurt.items() if holds)
    if outcome is Outcome.OK and not any(hurt.values()):
        yield "sound"


def _health(given: DatabaseInput, gold: GoldHealth, findings: Sequence[Finding]) -> DatabaseHealth:
    counts = list((given.counts or {}).values())
    return DatabaseHealth(
        db_id=given.row.db_id,
        tables=len(counts),
        rows=sum(counts),
        median=float(median(counts)) if counts else 0.0,
        golds=gold.golds,
        golds_hurt=gold.golds - gold.sound,
        errors=sum(f.severity is Severity.ERROR for f in findings),
        warnings=sum(f.severity is Severity.WARNING for f in findings),
    )


def _each_question(gold: GoldSubject, code: str, found: Found) -> Iterator[Finding]:
    """The finding once for every question that shares the gold; its count is their phrasings.

    Whoever looks a question up must find what is wrong with its gold.
    """
    given = gold.database.given
    phrasings = Counter(question.question_id for question in gold.questions)
    trained = {q.question_id for q in gold.questions if not is_evaluation_split(q.split)}
    for question_id, count in phrasings.items():
        milder = None if question_id in trained else EVALUATION_SEVERITIES.get(code)
        about = msgspec.structs.replace(
            found,
            question_id=question_id,
            count=count,
            example=found.example or gold.sql,
            severity=found.severity or milder,
        )
        yield as_finding(about, code, corpus=given.corpus, db_id=given.row.db_id)


EXAMPLE_CHARACTERS = 300
"""An example longer than this is cut, and says so with an ellipsis."""


def as_finding(found: Found, code: str, *, corpus: str, db_id: str = "") -> Finding:
    """What a check found, under its code, with the example cut to a readable length."""
    example = " ".join(found.example.split())
    if len(example) > EXAMPLE_CHARACTERS:
        example = example[: EXAMPLE_CHARACTERS - 1] + "…"
    said = {
        **msgspec.structs.asdict(found),
        "example": example,
        "severity": found.severity or SEVERITIES[code],
    }
    return Finding(corpus=corpus, code=code, db_id=db_id, **said)


# Findings and figures, from databases up to one corpus.


EXAMPLES = 3
WORST = 10
"""Databases listed as the worst."""

_ORDER = {name: place for place, name in enumerate((*Severity, *SEVERITIES))}


def summarize(findings: Iterable[Finding]) -> tuple[FindingSummary, ...]:
    """Sorted findings by code and severity, worst severity first, then in the checks' order."""
    groups = groupby(findings, key=lambda found: (found.severity, found.code))
    return tuple(_summary(*kind, group) for kind, group in groups)


def _summary(severity: Severity, code: str, findings: Iterable[Finding]) -> FindingSummary:
    """The findings of one code and severity, the first few as examples."""
    first: list[Finding] = []
    databases: set[str] = set()
    number = count = 0
    for finding in findings:
        number, count = number + 1, count + finding.count
        databases.add(finding.db_id)
        if len(first) < EXAMPLES:
            first.append(finding)
    return FindingSummary(
        code=code,
        severity=severity,
        meaning=MEANINGS[code],
        findings=number,
        count=count,
        databases=len(databases - {""}),
        examples=tuple(first),
    )


def worst_databases(databases: Iterable[DatabaseHealth]) -> list[DatabaseHealth]:
    """The databases that hurt most: hurt golds, then errors, then the fewest rows per table."""
    return sorted(
        (d for d in databases if d.errors or d.warnings or d.golds_hurt),
        key=lambda d: (-d.golds_hurt, -d.errors, d.median, -d.warnings, d.db_id),
    )[:WORST]


def summed_health(golds: Iterable[GoldHealth]) -> GoldHealth:
    """The counts of several databases added up."""
    total: Counter[str] = Counter()
    for gold in golds:
        total.update(msgspec.structs.asdict(gold))
    return GoldHealth(**total)


def finding_order(finding: Finding) -> tuple[str | int, ...]:
    """Errors first, then by check, database, table and question."""
    place = (_ORDER[finding.severity], _ORDER[finding.code])
    return (*place, finding.db_id, finding.table, finding.question_id, finding.message)


# What preflight leaves behind: preflight.json and findings.parquet.


REPORT_FILE, FINDINGS_FILE = "preflight.json", "findings.parquet"
FORMAT = "envbuild.preflight/1"


def write_findings(found: CorpusFindings, folder: Path, thresholds: Thresholds) -> None:
    """Writes one corpus's report and findings into `folder`; the report last."""
    write_records(folder / FINDINGS_FILE, found.findings, arrow_schema(Finding), metadata=VERSIONS)
    report = Report(corpora=(found.report,), thresholds=thresholds, versions=VERSIONS)
    encoded = msgspec.json.encode({"format": FORMAT, **report_document(report)})
    write_bytes(folder / REPORT_FILE, msgspec.json.format(encoded, indent=2) + b"\n")


def report_document(report: Report) -> dict[str, object]:
    """The report as plain JSON values, with its counts of errors and warnings."""
    plain: dict[str, object] = msgspec.to_builtins(report)
    return {"errors": report.errors, "warnings": report.warnings, **plain}
