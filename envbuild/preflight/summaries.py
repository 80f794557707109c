"""Findings and gold health, from databases up to one corpus."""

from collections import defaultdict
from collections.abc import Iterable

from envbuild.preflight.checks import SEVERITIES, meaning_of
from envbuild.records.finding import Finding, Severity
from envbuild.records.preflight import DatabaseHealth, FindingSummary, GoldHealth

EXAMPLES = 3
WORST = 10
"""Databases listed as the worst."""

_CODE_ORDER = {code: position for position, code in enumerate(SEVERITIES)}
_SEVERITY_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def summarize(findings: Iterable[Finding]) -> tuple[FindingSummary, ...]:
    """Sorted findings by code and severity, worst severity first, then in the checks' order."""
    by_code: dict[tuple[int, int, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        key = (_SEVERITY_ORDER[finding.severity], _CODE_ORDER[finding.code], finding.code)
        by_code[key].append(finding)
    return tuple(
        FindingSummary(
            code=code,
            severity=found[0].severity,
            meaning=meaning_of(code),
            findings=len(found),
            count=sum(f.count for f in found),
            databases=len({f.db_id for f in found if f.db_id}),
            examples=tuple(found[:EXAMPLES]),
        )
        for (_, _, code), found in sorted(by_code.items(), key=lambda pair: pair[0])
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


def finding_order(finding: Finding) -> tuple[object, ...]:
    """Errors first, then by check, database, table and question."""
    return (
        _SEVERITY_ORDER[finding.severity],
        _CODE_ORDER[finding.code],
        finding.db_id,
        finding.table,
        finding.question_id,
        finding.message,
    )
