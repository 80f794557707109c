"""What preflight leaves behind: preflight.json and findings.parquet."""

from pathlib import Path

import msgspec

from envbuild.io.files import write_bytes
from envbuild.io.parquet import arrow_schema, write_records
from envbuild.preflight.run import CorpusFindings, as_report
from envbuild.records.preflight import Finding, Report, Thresholds
from envbuild.sql.connect import VERSIONS

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
