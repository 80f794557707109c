"""signal.parquet in a corpus folder: the scores, what drew them, and of which corpus."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import INDEX_FILE
from envbuild.io.files import sha256_file
from envbuild.io.parquet import arrow_schema, iter_records, parquet_metadata, write_records
from envbuild.records.signal import CorpusSignal, SignalScore, SignalSummary
from envbuild.signal.mutants import VERSION
from envbuild.sql.connect import VERSIONS

SIGNAL_FILE = "signal.parquet"
SIGNAL_FORMAT = "envbuild.signal/1"
SCORES_A_GROUP = 8192
"""A score quotes up to a dozen queries: a row group of questions would take half a gigabyte."""


class StoredScores:
    """The scores of a signal.parquet, read anew each time they are iterated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[SignalScore]:
        return iter_records(self.path, SignalScore)


def write_signal(folder: CorpusFolder, signal: CorpusSignal) -> Path:
    """Writes a corpus's scores beside its questions, whole or not at all."""
    path = folder.root / SIGNAL_FILE
    metadata = {
        "format": SIGNAL_FORMAT,
        **VERSIONS,
        "corpus_sha256": sha256_file(folder.root / INDEX_FILE),
        "summary": msgspec.json.encode(signal.summary).decode(),
    }
    schema = arrow_schema(SignalScore)
    write_records(path, signal.scores, schema, metadata=metadata, group=SCORES_A_GROUP)
    return path


def read_signal(folder: CorpusFolder) -> CorpusSignal | None:
    """The stored scores; None where there are none, or where they are of another corpus."""
    path = folder.root / SIGNAL_FILE
    if not folder.catalogued or not path.is_file():
        return None
    metadata = parquet_metadata(path)
    if metadata.get("format") != SIGNAL_FORMAT:
        return None
    if metadata.get("corpus_sha256") != sha256_file(folder.root / INDEX_FILE):
        return None
    return CorpusSignal(
        summary=msgspec.json.decode(metadata["summary"], type=SignalSummary),
        scores=StoredScores(path),
    )


def covers(stored: CorpusSignal, *, wanted: int | None, verdict: str, seed: int) -> bool:
    """True where stored scores answer a request: all, or a sample of its seed and no smaller.

    They must be of the same verdict and mutants.
    """
    summary = stored.summary
    if (summary.verdict, summary.version) != (verdict, VERSION):
        return False
    return summary.wanted is None or (
        summary.seed == seed and wanted is not None and wanted <= summary.wanted
    )
