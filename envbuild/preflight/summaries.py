"""Findings and gold health, from databases up to one corpus."""

from collections.abc import Iterable
from itertools import groupby

from envbuild.preflight.checks import SEVERITIES, meaning_of
from envbuild.records.preflight import DatabaseHealth, Finding, FindingSummary, GoldHealth, Severity

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
