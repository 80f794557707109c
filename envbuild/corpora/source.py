"""A source as every reader gives it: databases and questions, streamed, never executed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from envbuild.corpora.recognise import check_source, recognise
from envbuild.errors import SourceError, UnknownNameError
from envbuild.records.corpus import DatabaseRecord, Question, Reject

READERS = {
    "sqale": "envbuild.corpora.sqale:read",
    "payload": "envbuild.corpora.payload:read",
    "synsql": "envbuild.corpora.synsql:read",
    "bird": "envbuild.corpora.bird:read",
    "spider": "envbuild.corpora.spider:read",
    "hub": "envbuild.corpora.hub:read",
}
AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One corpus before it is materialized."""

    name: str
    """What the corpus is called unless the operator says otherwise."""
    kind: str
    """The reader."""
    said: str
    """What the reader saw, in one line."""
    databases: Callable[[], Iterator[DatabaseRecord | Reject]]
    """Every database in the source's order; a Reject for one that cannot be read."""
    questions: Callable[[], Iterator[Question | Reject]]
    """Every question in the source's order; a Reject for one without SQL or text."""
    files: tuple[Path, ...] = ()
    """Files whose content decides the result, ready SQLite files left out; sorted."""
    revision: str = ""
    """Release or commit, where the source shows one."""
    splits: tuple[str, ...] = ()
    """Splits it holds, where it tells."""
    has_databases: bool = True
    has_questions: bool = True


class Reader(Protocol):
    """What a reader module offers as its `read`."""

    def __call__(self, path: str, *, split: str | None) -> Source: ...


def read_source(path: Path | str, reader: str = AUTO, *, split: str | None = None) -> Source:
    """The source at `path` (a folder, a file, or for `hub` an id like `owner/name@revision`).

    `auto` looks which layout it is. `split` keeps one split only. Raises SourceError where nothing
    is there, where it is no source but what envbuild made, where it has no layout the reader knows,
    and where `auto` finds several sources in it; UnknownNameError for an unknown reader.
    """
    if reader == AUTO:
        reader = recognise(path)
    if reader not in READERS:
        raise UnknownNameError("reader", reader, (AUTO, *READERS))
    if reader != "hub":
        check_source(Path(path))
    source = load_reader(reader)(str(path), split=split)
    if split is not None and split not in source.splits:
        has = ", ".join(source.splits) or "none: leave --split out"
        raise SourceError(f"{path} has no split {split!r}; it has {has}")
    return source


def read_sources(
    paths: Sequence[Path | str], reader: str = AUTO, *, split: str | None = None
) -> list[Source]:
    """One source a path; two neighbours of which one holds only databases and the other only
    questions (SQaLe's two sets) are one source, called like the databases.

    Raises SourceError for questions without databases, and as `read_source` does.
    """
    sources: list[Source] = []
    for path in paths:
        source = read_source(path, reader, split=split)
        if sources and _are_halves(sources[-1], source):
            sources[-1] = _joined(sources[-1], source)
        else:
            sources.append(source)
    for source in sources:
        if source.has_questions and not source.has_databases:
            raise SourceError(
                f"{source.name} holds questions and no databases ({source.said}): give the "
                "databases' folder and this one, one after the other, or the folder above both"
            )
    return sources


def _are_halves(one: Source, other: Source) -> bool:
    return (
        one.has_databases != other.has_databases
        and one.has_questions != other.has_questions
        and one.has_databases != one.has_questions
    )


def _joined(one: Source, other: Source) -> Source:
    databases, questions = (one, other) if one.has_databases else (other, one)
    return replace(
        databases,
        said=f"{databases.said}; {questions.said}",
        questions=questions.questions,
        files=databases.files + questions.files,
        revision=" + ".join(r for r in (databases.revision, questions.revision) if r),
        has_questions=True,
    )


def load_reader(name: str) -> Reader:
    """The reader registered under `name`, imported only now."""
    module, _, attribute = READERS[name].partition(":")
    reader: Any = getattr(import_module(module), attribute)
    return reader  # type: ignore[no-any-return]  # the table's strings carry no types
