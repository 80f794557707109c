"""Preflight over whole corpora: databases fanned out, findings gathered, one report."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.engine.fanout import run_shards
from envbuild.errors import CorpusError
from envbuild.io.files import sha256_file, write_bytes
from envbuild.io.parquet import arrow_schema, iter_records, write_records
from envbuild.io.sorting import SortedRecords, iter_grouped
from envbuild.preflight.checks import (
    DATABASE_CHECKS,
    GOLD_CHECKS,
    SEVERITIES,
    UNDETERMINED,
    few_rows,
    meaning_of,
    refused,
    severity_of,
)
from envbuild.preflight.row_counts import CountedDatabase, MeasuredCorpus, measure_corpora
from envbuild.preflight.subjects import DatabaseInput, DatabaseSubject, Draft, as_finding
from envbuild.records.corpus import Question, Reject
from envbuild.records.execution import Limits
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
from envbuild.sql.connect import VERSIONS, SQLiteError, has_log

# Findings and gold health, from databases up to one corpus.


EXAMPLES = 3
WORST = 10
"""Databases listed as the worst."""

_CODE_ORDER = {code: position for position, code in enumerate(SEVERITIES)}
_SEVERITY_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def summarize(findings: Iterable[Finding]) -> tuple[FindingSummary, ...]:
    """Sorted findings by code and severity, worst severity first, then in the checks' order."""
    groups = groupby(findings, key=lambda found: (found.severity, found.code))
    return tuple(_summary(group) for _, group in groups)


def _summary(findings: Iterable[Finding]) -> FindingSummary:
    """The findings of one code and severity, the first few as examples."""
    first: list[Finding] = []
    databases: set[str] = set()
    number = count = 0
    for finding in findings:
        number, count = number + 1, count + finding.count
        if finding.db_id:
            databases.add(finding.db_id)
        if len(first) < EXAMPLES:
            first.append(finding)
    return FindingSummary(
        code=first[0].code,
        severity=first[0].severity,
        meaning=meaning_of(first[0].code),
        findings=number,
        count=count,
        databases=len(databases),
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
    totals = dict.fromkeys(GoldHealth.__struct_fields__, 0)
    for gold in golds:
        for name in totals:
            totals[name] += getattr(gold, name)
    return GoldHealth(**totals)


def finding_order(finding: Finding) -> tuple[str | int, ...]:
    """Errors first, then by check, database, table and question."""
    return (
        _SEVERITY_ORDER[finding.severity],
        _CODE_ORDER[finding.code],
        finding.db_id,
        finding.table,
        finding.question_id,
        finding.message,
    )


# All checks of one database and its golds; what a worker runs.


class CheckedDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one database."""

    health: DatabaseHealth
    gold: GoldHealth
    findings: tuple[Finding, ...]


class CheckShard(msgspec.Struct, frozen=True, kw_only=True):
    """A few databases for one worker."""

    databases: tuple[DatabaseInput, ...]
    limits: Limits


def check_shard(shard: CheckShard) -> list[CheckedDatabase]:
    """Every database of the shard, checked, in order."""
    return [check_database(given, shard.limits) for given in shard.databases]


def check_database(given: DatabaseInput, limits: Limits) -> CheckedDatabase:
    """One database's findings, gold health and figures. Never raises for what the data hold."""
    drafts: list[Draft] = []
    gold = Counter[str]()
    database = DatabaseSubject(given, limits)
    try:
        for check in DATABASE_CHECKS:
            drafts += check(database)
        for found in _golds(database, gold):
            drafts += found
    except (SQLiteError, CorpusError) as e:  # a damaged page is met only when it is read
        drafts.append(database.finding("unreadable_database", f"SQLite fails on it: {e}"))
    finally:
        database.close()
    findings = tuple(as_finding(d, severity_of(d)) for d in drafts)
    counts = list((given.row_counts or {}).values())
    return CheckedDatabase(
        findings=findings,
        gold=GoldHealth(questions=len(given.questions), **gold),
        health=DatabaseHealth(
            db_id=given.row.db_id,
            tables=len(counts),
            rows=sum(counts),
            median=float(median(counts)) if counts else 0.0,
            golds=gold["golds"],
            golds_hurt=gold["golds"] - gold["sound"],
            errors=sum(f.severity is Severity.ERROR for f in findings),
            warnings=sum(f.severity is Severity.WARNING for f in findings),
        ),
    )


def _golds(database: DatabaseSubject, gold: Counter[str]) -> Iterator[list[Draft]]:
    """The drafts of each gold query; `gold` counts what became of them."""
    for subject in database.golds():
        drafts = [draft for check in GOLD_CHECKS for draft in check(subject)]
        codes = {draft.code for draft in drafts if draft.severity is not Severity.NOTE}
        gold["golds"] += 1
        outcome = subject.result.outcome
        gold["error" if outcome == "invalid" else outcome.value] += 1
        gold["empty"] += "empty_gold" in codes
        gold["trivial"] += "trivial_gold" in codes
        gold["undetermined"] += bool(codes & UNDETERMINED)
        hurt = {"empty_gold", "trivial_gold"} | UNDETERMINED
        gold["sound"] += subject.result.ok and not codes & hurt
        yield [each for draft in drafts for each in subject.for_each_question(draft)]


# A corpus's databases cut into shards, each database with its questions and rejects.


DATABASES_A_SHARD, QUESTIONS_A_SHARD = 64, 400


class TableText(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a row of tables.parquet that says whether its text decodes."""

    db_id: str
    undecodable_cells: int = 0


def iter_shards(
    measured: MeasuredCorpus, rejects: Iterable[Reject], limits: Limits
) -> Iterator[CheckShard]:
    """The corpus's databases, each with its questions and rejects, a few at a time."""
    decodable = _decodable(measured)
    refused_in: dict[str, list[Reject]] = defaultdict(list)
    for reject in rejects:
        refused_in[reject.db_id].append(reject)
    batch: list[DatabaseInput] = []
    questions = 0
    for database, asked in _with_questions(measured):
        batch.append(
            DatabaseInput(
                corpus=measured.folder.name,
                row=database.row,
                path=database.path,
                row_counts=database.counts,
                unreadable=database.unreadable,
                decodable=database.row.db_id in decodable,
                rejects=tuple(refused_in[database.row.db_id]),
                questions=tuple(asked),
            )
        )
        questions += len(asked)
        if len(batch) >= DATABASES_A_SHARD or questions >= QUESTIONS_A_SHARD:
            yield CheckShard(databases=tuple(batch), limits=limits)
            batch, questions = [], 0
    if batch:
        yield CheckShard(databases=tuple(batch), limits=limits)


def _with_questions(
    measured: MeasuredCorpus,
) -> Iterator[tuple[CountedDatabase, list[Question]]]:
    """Every database with its questions, whatever order the questions stand in."""
    folder = measured.folder
    if not folder.catalogued:
        yield from ((database, []) for database in measured.databases)
        return
    by_id = {database.row.db_id: database for database in measured.databases}
    file = folder.root / "questions.parquet"
    for db_id, asked in iter_grouped(file, Question, by="db_id", keys=by_id):
        yield by_id[db_id], asked


def _decodable(measured: MeasuredCorpus) -> set[str]:
    """Databases whose very bytes materialize has looked through and found all text decodable."""
    if not measured.folder.catalogued:
        return set()
    catalogued: set[str] = set()
    bad: set[str] = set()
    for table in iter_records(measured.folder.root / "tables.parquet", TableText):
        (bad if table.undecodable_cells else catalogued).add(table.db_id)
    unchanged = {
        database.row.db_id
        for database in measured.databases
        if database.path.is_file()
        and database.path.stat().st_size == database.row.bytes
        and not has_log(str(database.path.absolute()))
    }
    return (catalogued & unchanged) - bad


# What each shard of a preflight found, kept until all of them are there (`--shard I/N`).
#
# Shards run on machines that share a folder and need not know of each other: whoever ends last
# finds all parts and writes the report. Two that end at once write the same bytes.


PARTS_FOLDER = ".preflight"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One shard's databases."""

    configuration: str
    """Digest of the corpus and the limits; parts of another one are no parts."""
    databases: tuple[CheckedDatabase, ...]


_PART = msgspec.msgpack.Decoder(type=Part)


def configuration_of(folder: CorpusFolder, limits: Limits) -> str:
    """What all parts of one preflight have in common, as a digest."""
    if folder.catalogued:
        corpus = sha256_file(folder.root / INDEX_FILE)
    else:
        corpus = repr([(row.db_id, row.bytes) for row in folder.databases()])
    return hashlib.sha256(f"{corpus}/{limits}".encode()).hexdigest()


def write_part(
    out: Path, shard: tuple[int, int], checked: Sequence[CheckedDatabase], configuration: str
) -> None:
    """Keeps one shard's databases, whole or not at all."""
    part = Part(configuration=configuration, databases=tuple(checked))
    write_bytes(_part_file(out, *shard), msgspec.msgpack.encode(part))


def read_parts(
    out: Path, shards: int, configuration: str
) -> dict[int, tuple[CheckedDatabase, ...]]:
    """The databases of each shard that is there, by its number."""
    found = {}
    for index in range(shards):
        try:
            part = _PART.decode(_part_file(out, index, shards).read_bytes())
        except (OSError, msgspec.MsgspecError):
            continue
        if part.configuration == configuration:
            found[index] = part.databases
    return found


def remove_parts(out: Path, shards: int) -> None:
    """Removes the parts once the report is written."""
    for index in range(shards):
        _part_file(out, index, shards).unlink(missing_ok=True)
    folder = out / PARTS_FOLDER
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _part_file(out: Path, index: int, shards: int) -> Path:
    return out / PARTS_FOLDER / f"{index}-of-{shards}.msgpack"


class CorpusFindings(msgspec.Struct, frozen=True, kw_only=True):
    """One corpus's report and every finding behind it, sorted."""

    folder: CorpusFolder
    report: CorpusReport
    findings: Iterable[Finding]


def check_corpora(
    folders: Sequence[CorpusFolder],
    *,
    thresholds: Thresholds | None = None,
    limits: Limits | None = None,
    workers: int | None = None,
    engine: str = "local",
) -> Report:
    """Rows per table and every check over these corpora, as one report."""
    thresholds = thresholds or Thresholds()
    measured = measure_corpora(folders, thresholds)
    found = [check_corpus(m, limits=limits, workers=workers, engine=engine) for m in measured]
    return as_report([each.report for each in found], thresholds)


def as_report(corpora: Iterable[CorpusReport], thresholds: Thresholds) -> Report:
    """The corpora's reports as one, with the versions that made them."""
    return Report(
        corpora=tuple(corpora),
        thresholds=thresholds,
        versions=VERSIONS,
    )


def check_corpus(
    measured: MeasuredCorpus,
    *,
    limits: Limits | None = None,
    workers: int | None = None,
    engine: str = "local",
    signal: SignalSummary | None = None,
    signal_points: tuple[SignalPoint, ...] = (),
    extra: Iterable[Finding] = (),
    on_progress: Callable[[int], None] | None = None,
) -> CorpusFindings:
    """Every check over one measured corpus, the same for any number of workers.

    `signal`, its points and `extra` (its findings) were measured by the caller. `on_progress` is
    told how many databases were done since the last call.
    """
    checked = check_databases(
        measured, limits=limits, workers=workers, engine=engine, on_progress=on_progress
    )
    return conclude(measured, checked, signal=signal, signal_points=signal_points, extra=extra)


def check_databases(
    measured: MeasuredCorpus,
    *,
    limits: Limits | None = None,
    workers: int | None = None,
    engine: str = "local",
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[CheckedDatabase]:
    """Every measured database, checked with its questions, as the workers get to it."""
    shards = iter_shards(measured, measured.folder.rejects(), limits or Limits())
    for done in run_shards(check_shard, shards, workers=workers, engine=engine, on_crash=_crashed):
        yield from done
        if on_progress:
            on_progress(len(done))


def conclude(
    measured: MeasuredCorpus,
    checked: Iterable[CheckedDatabase],
    *,
    signal: SignalSummary | None = None,
    signal_points: tuple[SignalPoint, ...] = (),
    extra: Iterable[Finding] = (),
) -> CorpusFindings:
    """One corpus's report from its checked databases, whatever their order.

    Findings go to the disk where there are many: a corpus of two rows a table has a million.
    """
    name = measured.folder.name
    findings = SortedRecords(Finding, finding_order)
    for draft in (*few_rows(name, measured.statistics), *refused(name, measured.folder.rejects())):
        findings.add(as_finding(draft, severity_of(draft)))
    golds: list[GoldHealth] = []
    databases: list[DatabaseHealth] = []
    for each in checked:
        golds.append(each.gold)
        databases.append(each.health)
        for finding in each.findings:
            findings.add(finding)
    for finding in extra:
        findings.add(finding)
    report = CorpusReport(
        corpus=name,
        rows=measured.statistics,
        gold=summed_health(golds),
        findings=summarize(findings),
        worst=tuple(worst_databases(databases)),
        signal=signal,
        signal_points=signal_points,
    )
    return CorpusFindings(folder=measured.folder, report=report, findings=findings)


def _crashed(shard: CheckShard, reason: str) -> list[CheckedDatabase]:
    """What stands for a shard whose worker died twice."""
    found = []
    for given in shard.databases:
        finding = Finding(
            corpus=given.corpus,
            code="crashed_database",
            severity=SEVERITIES["crashed_database"],
            db_id=given.row.db_id,
            message=f"the worker that checked its shard of {len(shard.databases)} died: {reason}",
        )
        counts = given.row_counts or {}
        health = DatabaseHealth(
            db_id=given.row.db_id,
            tables=len(counts),
            rows=sum(counts.values()),
            median=0.0,
            golds=len(given.questions),
            golds_hurt=len(given.questions),
            errors=1,
        )
        gold = GoldHealth(questions=len(given.questions))
        found.append(CheckedDatabase(health=health, gold=gold, findings=(finding,)))
    return found


# What preflight leaves behind: preflight.json and findings.parquet.


REPORT_FILE, FINDINGS_FILE = "preflight.json", "findings.parquet"
FORMAT = "envbuild.preflight/1"


def write_findings(found: CorpusFindings, folder: Path, thresholds: Thresholds) -> None:
    """Writes one corpus's report and findings into `folder`; the report last."""
    write_records(folder / FINDINGS_FILE, found.findings, arrow_schema(Finding), metadata=VERSIONS)
    report = as_report([found.report], thresholds)
    encoded = msgspec.json.encode({"format": FORMAT, **report_document(report)})
    write_bytes(folder / REPORT_FILE, msgspec.json.format(encoded, indent=2) + b"\n")


def report_document(report: Report) -> dict[str, object]:
    """The report as plain JSON values, with its counts of errors and warnings."""
    plain: dict[str, object] = msgspec.to_builtins(report)
    return {"errors": report.errors, "warnings": report.warnings, **plain}
