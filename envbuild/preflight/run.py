"""Preflight over whole corpora: databases fanned out, findings gathered, one report."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.engine.fanout import run_shards
from envbuild.io.sorting import SortedRecords
from envbuild.preflight.check_database import CheckedDatabase, CheckShard, check_shard
from envbuild.preflight.checks import SEVERITIES, severity_of
from envbuild.preflight.corpus_checks import few_rows, refused
from envbuild.preflight.drafts import as_finding
from envbuild.preflight.measure import MeasuredCorpus, measure_corpora
from envbuild.preflight.shards import iter_shards
from envbuild.preflight.summaries import (
    finding_order,
    summarize,
    summed_health,
    worst_databases,
)
from envbuild.records.execution import Limits
from envbuild.records.preflight import (
    CorpusReport,
    DatabaseHealth,
    Finding,
    GoldHealth,
    Report,
    SignalPoint,
    Thresholds,
)
from envbuild.records.signal import SignalSummary
from envbuild.sql.connect import VERSIONS


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
