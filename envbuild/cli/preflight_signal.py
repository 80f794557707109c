"""The signal sample of a preflight: scored once, stored, turned into findings and plot points."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from envbuild.cli.options import warn
from envbuild.errors import UsageError
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from envbuild.preflight.measure import MeasuredCorpus
    from envbuild.records.finding import Finding
    from envbuild.records.preflight import SignalPoint
    from envbuild.records.signal import CorpusSignal, SignalSummary, SignalThresholds

MOST_POINTS = 500
OFF = -1
"""No golds are scored."""


class MeasuredSignal(msgspec.Struct, frozen=True, kw_only=True):
    """What one corpus's signal adds to its report."""

    summary: "SignalSummary | None" = None
    findings: "Iterable[Finding]" = ()
    """Read from the scores as they are asked for, once."""
    points: "tuple[SignalPoint, ...]" = ()


def parse_wanted(text: str) -> int | None:
    """`all` is None, `off` is OFF, else how many golds. Raises UsageError for anything else."""
    if text in ("all", "off"):
        return None if text == "all" else OFF
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise UsageError(f"--signal takes all, off or a number of golds; got {text!r}")


def measure_signal(
    measured: "MeasuredCorpus",
    thresholds: "SignalThresholds",
    *,
    wanted: int | None,
    seed: int,
    workers: int | None,
    engine: str,
    quiet: bool,
) -> MeasuredSignal:
    """The corpus's signal, read from signal.parquet where it answers, else scored and stored."""
    from envbuild.signal.store import covers, read_signal, write_signal
    from envbuild.signal.summary import signal_findings

    folder = measured.folder
    if wanted == OFF or not folder.catalogued:
        return MeasuredSignal()
    stored = signal = read_signal(folder)
    if signal is None or not covers(signal, wanted=wanted, verdict="ordered@1", seed=seed):
        signal = _scored(measured, wanted, seed, workers, engine, quiet)
        write_signal(folder, signal)
    if stored is not None and (sentence := _said(stored.summary, signal.summary, wanted)):
        warn(f"{folder.name}: {sentence}")
    if not signal.summary.sampled:
        return MeasuredSignal()
    findings = signal_findings(signal.scores, signal.summary, thresholds)
    return MeasuredSignal(
        summary=signal.summary, findings=findings, points=_points(measured, signal)
    )


def _said(stored: "SignalSummary", now: "SignalSummary", wanted: int | None) -> str:
    """What became of the stored scores, where that is not just what was asked for."""
    if stored == now:
        if wanted is None or wanted >= stored.sampled:
            return ""
        return f"its larger stored sample of {_sample(stored)} answers --signal {wanted} and stays"
    if now.sampled < stored.sampled:
        return f"its stored sample of {_sample(stored)} was replaced by one of {_sample(now)}"
    return ""


def _sample(summary: "SignalSummary") -> str:
    version = summary.version or "no version"
    return f"{counted(summary.sampled, 'question')} (seed {summary.seed}, {version})"


def _scored(
    measured: "MeasuredCorpus",
    wanted: int | None,
    seed: int,
    workers: int | None,
    engine: str,
    quiet: bool,
) -> "CorpusSignal":
    from envbuild.cli.progress import progress_count
    from envbuild.signal.corpus import score_corpus

    label = f"{measured.folder.name} signal"
    with progress_count(total=wanted, label=label, quiet=quiet) as advance:
        return score_corpus(
            measured.folder,
            wanted=wanted,
            seed=seed,
            workers=workers,
            engine=engine,
            on_scored=advance,
        )


def _points(measured: "MeasuredCorpus", signal: "CorpusSignal") -> "tuple[SignalPoint, ...]":
    from envbuild.records.preflight import SignalPoint
    from envbuild.signal.summary import Shares

    scores: dict[str, Shares] = defaultdict(Shares)
    for score in signal.scores:
        if score.signal_high is not None:
            scores[score.db_id].add(score.signal_high)
    rows = {d.row.db_id: list((d.counts or {}).values()) for d in measured.databases}
    return tuple(
        SignalPoint(
            db_id=db_id,
            median_rows=float(median(rows[db_id])),
            signal=scores[db_id].mean or 0.0,
            scored=scores[db_id].counts.total(),
        )
        for db_id in sorted(scores)
        if rows.get(db_id)
    )[:MOST_POINTS]
