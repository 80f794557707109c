"""Writes a synthetic source of one of the published shapes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from envbuild.corpora.source import recognise
from envbuild.corpora.synthetic.layouts import WRITERS
from envbuild.corpora.synthetic.sample import SampleDatabase, SampleQuestion
from envbuild.corpora.synthetic.shapes import iter_shape
from envbuild.errors import OutputError, SourceError
from envbuild.io.files import writing


class SynthSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    shape: str
    out: str
    databases: int
    tables: int
    rows: int
    questions: int


def write_shape(shape: str, out: Path, *, databases: int, seed: int) -> SynthSummary:
    """Writes `databases` databases of `shape` (sqale, synsql, bird) into `out`, by seed alone.

    Raises UnknownNameError for another shape, OutputError where `out` cannot be written or holds
    a source of another layout: in one folder the two would be read as one.
    """
    corpus = iter_shape(shape, databases=databases, seed=seed)
    _refuse_other(shape, Path(out))
    counts = {"databases": 0, "tables": 0, "rows": 0, "questions": 0}

    def counted() -> Iterator[tuple[SampleDatabase, Sequence[SampleQuestion]]]:
        for database, questions in corpus:
            counts["databases"] += 1
            counts["tables"] += len(database.tables)
            counts["rows"] += sum(map(len, database.rows.values()))
            counts["questions"] += len(questions)
            yield database, questions

    with writing(Path(out)):
        WRITERS[shape](counted(), Path(out), seed=seed)
    return SynthSummary(shape=shape, out=str(out), **counts)


def _refuse_other(shape: str, out: Path) -> None:
    try:
        there = recognise(out) if out.is_dir() else shape
    except SourceError:  # nothing that is read as a source
        return
    if there != shape:
        raise OutputError(f"{out} holds a source already, read as {there}: choose another --out")
