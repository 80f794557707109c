"""All checks of one database and its golds; what a worker runs."""

from collections import Counter
from collections.abc import Iterator
from statistics import median

import msgspec

from envbuild.errors import CorpusError
from envbuild.preflight.checks import DATABASE_CHECKS, GOLD_CHECKS, UNDETERMINED, severity_of
from envbuild.preflight.drafts import Draft, as_finding
from envbuild.preflight.subjects import DatabaseInput, DatabaseSubject
from envbuild.records.execution import Limits
from envbuild.records.preflight import DatabaseHealth, Finding, GoldHealth, Severity
from envbuild.sql.connect import SQLiteError


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
