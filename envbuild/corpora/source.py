"""A source as every reader gives it: databases and questions, streamed, never executed.

A new layout is a reader and a line of LAYOUTS; which one a path has is told by the names of its
files and columns alone.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

from envbuild.errors import MissingDependencyError, SourceError, UnknownNameError
from envbuild.records.corpus import DatabaseRecord, Question, Reject

AUTO = "auto"
INDEX_FILE = "corpus.json"
"""Written last into a corpus folder: its presence means that the corpus is whole."""
INDEX_FORMAT = "envbuild.corpus/1"
PARTS_FOLDER = ".parts"
"""What a materialize that has not ended keeps in the corpus folder."""
SQLITE_MAGIC = b"SQLite format 3\0"
"""How every SQLite file that holds anything begins (sqlite.org/fileformat2.html)."""
SQLITE_ENDINGS = (".sqlite", ".sqlite3", ".db")
BIRD_FILES = {
    "train.json": "train",
    "dev.json": "dev",
    "test.json": "test",
    "mini_dev_sqlite.json": "mini_dev",
}
"""BIRD's question files and their splits."""
_RECORD_FILES = (".parquet", ".jsonl", ".json")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(?:@[\w./-]+)?")
_OWN_INDEXES = {
    INDEX_FILE: "a corpus that `envbuild materialize` made",
    "manifest.json": "a manifest",
    "episodes.json": "a folder of episodes",
}
_SCHEMA_COLUMNS = {"Full schema", "full_schema", "ddl", "schema"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One corpus before it is materialized."""

    name: str
    """What the corpus is called unless the operator says otherwise."""
    kind: str
    """The reader."""
    description: str
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
    licence: str = ""
    """What the operator said of it; empty where the layout's is to be taken."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What the operator said of how to read it, beyond the split."""
    has_databases: bool = True
    has_questions: bool = True


UNKNOWN_LICENCE = "unknown: ask the owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way in which corpora are published."""

    read: str
    """`module:function` of `(path, *, split) -> Source`, imported when it is asked for."""
    name: str = ""
    """What an operator calls it."""
    licence: str = UNKNOWN_LICENCE
    """That of the corpus which is published in this layout."""
    looks: str = ""
    """What it looks like, for the error that lists what is known."""
    is_at: Callable[[Path], bool] = lambda folder: False
    """Whether the folder's own entries have this layout."""


def _is_synsql(folder: Path) -> bool:
    return (folder / "data.json").is_file() and (folder / "databases").is_dir()


def _is_bird(folder: Path) -> bool:
    asked = (folder.glob(pattern) for name in BIRD_FILES for pattern in (name, f"*/{name}"))
    return any(path.is_dir() for path in folder.glob("*_databases")) and any(map(any, asked))


def _is_spider(folder: Path) -> bool:
    from envbuild.corpora.tables import columns_of

    ready = ("database",) if _is_synsql(folder) else ("database", "databases")
    if not any((folder / name).is_dir() for name in ready):
        return False
    files = (file for file in folder.glob("*.json") if not file.stem.endswith("tables"))
    return any({"db_id", "question"} <= columns_of(file) for file in files)


_BENCHMARKS = "envbuild.corpora.benchmarks"
READERS = {
    "sqale": Layout(
        read="envbuild.corpora.payload:read_sqale",
        licence="of each schema, MIT, Apache-2.0, BSD or another, as SQaLe is published",
        looks="Parquet files of row payloads (SQaLe's layouts)",
    ),
    "payload": Layout(read="envbuild.corpora.payload:read", name="row payloads"),
    "synsql": Layout(
        read=f"{_BENCHMARKS}:read_synsql",
        name="SynSQL",
        licence="Apache-2.0, as SynSQL-2.5M is published",
        looks="a folder with data.json and databases/ (SynSQL)",
        is_at=_is_synsql,
    ),
    "bird": Layout(
        read=f"{_BENCHMARKS}:read_bird",
        name="BIRD",
        licence="CC BY-SA 4.0, as BIRD is published",
        looks="with train.json, dev.json or mini_dev_sqlite.json and a *_databases/ folder (BIRD)",
        is_at=_is_bird,
    ),
    "spider": Layout(
        read=f"{_BENCHMARKS}:read_spider",
        name="Spider",
        licence="CC BY-SA 4.0, as Spider is published; its kin: ask the owner",
        looks="with questions as JSON and database/ (Spider)",
        is_at=_is_spider,
    ),
    "folder": Layout(
        read="envbuild.corpora.own_folder:read",
        looks="any folder of SQLite files, or one such file, with questions beside or below",
    ),
    "hub": Layout(read="envbuild.corpora.source:read_hub", looks="owner/name@revision (a hub id)"),
}


def read_source(
    path: Path | str,
    reader: str = AUTO,
    *,
    split: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> Source:
    """The source at `path` (a folder, a file, or for `hub` an id like `owner/name@revision`).

    `auto` looks which layout it is. `split` keeps one split only; `fields`, for a folder of no
    known layout, says which key means what: field -> key. Raises SourceError where nothing
    is there, where it is no source but what envbuild made, where it has no layout the reader knows,
    and where `auto` finds several sources in it; UnknownNameError for an unknown reader.
    """
    if reader == AUTO:
        reader = recognise(path)
    if reader not in READERS:
        raise UnknownNameError("reader", reader, (AUTO, *READERS))
    if reader != "hub":
        check_source(Path(path))
    if fields and reader != "folder":
        raise SourceError(
            f"--fields is for folders of no known layout, and {path} is read as {reader}; "
            "--reader folder reads it as any other folder"
        )
    module, _, function = READERS[reader].read.partition(":")
    own = {"fields": fields} if fields else {}
    source: Source = getattr(import_module(module), function)(str(path), split=split, **own)
    if split is not None and split not in source.splits:
        has = ", ".join(source.splits) or "none: leave --split out"
        raise SourceError(f"{path} has no split {split!r}; it has {has}")
    return source


def read_sources(
    paths: Sequence[Path | str],
    reader: str = AUTO,
    *,
    split: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> list[Source]:
    """One source a path; two neighbours of which one holds only databases and the other only
    questions (SQaLe's two sets) are one source, called like the databases.

    Raises SourceError for questions without databases, and as `read_source` does.
    """
    sources: list[Source] = []
    for path in paths:
        source = read_source(path, reader, split=split, fields=fields)
        if sources and _are_halves(sources[-1], source):
            sources[-1] = _joined(sources[-1], source)
        else:
            sources.append(source)
    for source in sources:
        if source.has_questions and not source.has_databases:
            raise SourceError(
                f"{source.name} holds questions and no databases ({source.description}): give the "
                "databases' folder and this one, one after the other, or the folder above both"
            )
    return sources


def _are_halves(one: Source, other: Source) -> bool:
    return one.has_databases != one.has_questions == other.has_databases != other.has_questions


def _joined(one: Source, other: Source) -> Source:
    databases, questions = (one, other) if one.has_databases else (other, one)
    return replace(
        databases,
        description=f"{databases.description}; {questions.description}",
        questions=questions.questions,
        files=databases.files + questions.files,
        revision=" + ".join(r for r in (databases.revision, questions.revision) if r),
        has_questions=True,
    )


def read_hub(path: str, *, split: str | None = None) -> Source:
    """A data set of the Hugging Face hub, `owner/name@revision`, read like local files.

    Without a revision the newest is taken, and its commit recorded. Files already in the local hub
    cache are not fetched again. Raises SourceError, saying what to do, where the hub cannot be
    reached.
    """
    name, _, revision = path.partition("@")
    # a path with a slip in it looks like an id: what was looked for first is said first
    slip = "" if Path(name).exists() else f"there is no folder {name} here; "
    try:
        import datasets  # noqa: F401 - what the extra installs; it brings huggingface_hub
        import huggingface_hub
    except ModuleNotFoundError as e:
        raise MissingDependencyError(
            f"{slip}reading {name} from the hub", "datasets", "pip install '.[hub]' in a checkout"
        ) from e
    try:
        patterns = [f"*{ending}" for ending in _RECORD_FILES]
        snapshot = huggingface_hub.snapshot_download(
            name, repo_type="dataset", allow_patterns=patterns, revision=revision or None
        )
    except Exception as e:
        raise SourceError(
            f"{slip}the hub does not give {name} ({type(e).__name__}); on a machine with a network "
            f"run `hf download {name} --repo-type dataset --revision {revision or 'REVISION'} "
            f"--local-dir FOLDER` and give FOLDER here instead"
        ) from e
    commit = Path(snapshot).name
    found = read_source(snapshot, split=split)
    return replace(
        found,
        name=name.rpartition("/")[2],
        description=f"{name} at commit {commit}: {found.description}",
        revision=commit,
    )


def recognise(path: Path | str) -> str:
    """The name of the reader for `path`.

    Raises SourceError, saying what is known, where none is for it; naming them, where `path` holds
    several sources.
    """
    folder = Path(path)
    if not folder.exists() and _HUB_ID.fullmatch(str(path)) and not str(path).startswith("."):
        return "hub"
    check_source(folder)
    if folder.is_file():
        return _recognise_file(folder)
    found = _sources_in(folder)
    kinds = {kind for _, kind in found}
    inside = all(place != folder for place, _ in found)
    if len(kinds) > 1 or (inside and len(found) > 1 and kinds != {"bird"}):
        names = ", ".join(
            f"{place.relative_to(folder).as_posix() + '/' if place != folder else 'its own files'} "
            f"({READERS[kind].name})"
            for place, kind in found
        )
        raise SourceError(
            f"{path} holds several sources: {names}; give one by a path of its own, such as "
            f"{found[0][0]}, or say with --reader which one is meant"
        )
    if inside and kinds and kinds != {"bird"}:
        raise SourceError(f"{path} is the folder above a source: give {found[0][0]}")
    if kinds:
        return kinds.pop()
    holds_sqlite = any(file.suffix.lower() in SQLITE_ENDINGS for file in files_below(folder))
    if holds_sqlite and not _holds_payloads(tabular_files(folder)):
        return "folder"
    unreadable: SourceError | None = None
    for file in tabular_files(folder):
        try:
            return _recognise_file(file)
        except SourceError as e:
            unreadable = unreadable or e
    known = "; ".join(layout.looks for layout in READERS.values() if layout.looks)
    raise unreadable or SourceError(f"{path} has no layout that is known; what is known: {known}")


def begins_as_sqlite(file: Path) -> bool:
    """True for a SQLite file by its first bytes; one without any is an empty database."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        start = stream.read(len(SQLITE_MAGIC))
    return start == SQLITE_MAGIC or (not start and file.suffix.lower() in SQLITE_ENDINGS)


def files_below(root: Path) -> Iterator[Path]:
    """Every file, sorted; hidden ones are left out, and the folders that envbuild has made."""
    for place, folders, names in os.walk(root):
        kept = (name for name in sorted(folders) if not name.startswith("."))
        folders[:] = [n for n in kept if made_by_envbuild(Path(place) / n) is None]
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))


def check_source(path: Path) -> None:
    """Raises SourceError where nothing is at `path`, or what envbuild itself has made."""
    if not path.exists():
        raise SourceError(f"no such file or folder: {path}")
    if path.is_dir() and (made := made_by_envbuild(path)) is not None:
        raise SourceError(
            f"{path} is {made}, no source: give the folder that the corpus was made from (the "
            "benchmark's, the data set's own)"
        )


def tabular_files(folder: Path) -> Iterator[Path]:
    """Parquet and JSON record files at most two levels down, sorted; see `files_below`."""
    for file in sorted(files_below(folder)):
        near = len(file.relative_to(folder).parts) <= 3
        if near and file.suffix in _RECORD_FILES and file.is_file():
            yield file


def _sources_in(folder: Path) -> list[tuple[Path, str]]:
    """(place, kind) of every source in `folder` or one level below that its names give away.

    Row payloads count only beside others: alone, all Parquet files of a folder are one source.
    """
    children = [
        child
        for child in sorted(folder.iterdir())
        if child.is_dir()
        and not child.name.startswith(".")
        and child.name not in ("database", "databases")
        and not child.name.endswith("_databases")
        and made_by_envbuild(child) is None
    ]
    found: list[tuple[Path, str]] = []
    payloads: list[tuple[Path, str]] = []
    for place in (folder, *children):
        kinds = [kind for kind, layout in READERS.items() if layout.is_at(place)]
        found += [(place, kind) for kind in kinds]
        files = [*place.glob("*.parquet"), *(place.glob("*/*.parquet") if place != folder else ())]
        if (place == folder or not kinds) and _holds_payloads(files):
            payloads.append((place, "payload"))
    return found + payloads if found else []


def _holds_payloads(files: Iterable[Path]) -> bool:
    from envbuild.corpora.tables import columns_of

    for file in files:
        try:
            columns = columns_of(file)
        except SourceError:
            continue  # some other file of the folder
        if columns & _SCHEMA_COLUMNS or "questions" in columns:
            return True
    return False


def made_by_envbuild(folder: Path) -> str | None:
    """What kind of envbuild's own output the folder is; None where it is none."""
    for name, what in _OWN_INDEXES.items():
        try:
            index = (folder / name).read_bytes()[:200]
        except OSError:
            continue
        if re.search(rb'"format":\s*"envbuild\.', index):
            return what
    return _OWN_INDEXES[INDEX_FILE] if (folder / PARTS_FOLDER).is_dir() else None


def _recognise_file(file: Path) -> str:
    from envbuild.corpora.tables import columns_of

    if file.suffix.lower() in SQLITE_ENDINGS or begins_as_sqlite(file):
        return "folder"
    columns = columns_of(file)
    sqale = {"Full schema", "questions", "full_schema"}
    return "sqale" if sqale & columns or {"schema", "query"} <= columns else "payload"
