"""Which reader a source wants, from the names of its files and columns alone."""

import re
from collections.abc import Iterator
from pathlib import Path

from envbuild.corpora.folder_files import INDEX_FILE, PARTS_FOLDER
from envbuild.errors import SourceError

_RECORD_FILES = (".parquet", ".jsonl", ".json")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(?:@[\w./-]+)?")
_LOOKED_FOR = """what is known: Parquet files of row payloads (SQaLe's layouts); a folder with \
data.json and databases/ (SynSQL); with train.json, dev.json or mini_dev_sqlite.json and a \
*_databases/ folder (BIRD); with questions as JSON and database/ (Spider); owner/name@revision (a \
hub id)"""
_OWN_INDEXES = {
    INDEX_FILE: "a corpus that `envbuild materialize` made",
    "manifest.json": "a manifest",
    "episodes.json": "a folder of episodes",
}
_NAMES = {"synsql": "SynSQL", "bird": "BIRD", "spider": "Spider", "payload": "row payloads"}
_SCHEMA_COLUMNS = {"Full schema", "full_schema", "ddl", "schema"}


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
        raise SourceError(f"{path} holds several sources: {_named(found, folder)}")
    if inside and kinds and kinds != {"bird"}:
        raise SourceError(f"{path} is the folder above a source: give {found[0][0]}")
    if kinds:
        return kinds.pop()
    unreadable: SourceError | None = None
    for file in tabular_files(folder):
        try:
            return _recognise_file(file)
        except SourceError as e:
            unreadable = unreadable or e
    raise unreadable or SourceError(f"{path} has no layout that is known; {_LOOKED_FOR}")


def check_source(path: Path) -> None:
    """Raises SourceError where nothing is at `path`, or what envbuild itself has made."""
    if not path.exists():
        raise SourceError(f"no such file or folder: {path}")
    if not path.is_dir():
        return
    wanted = "give the folder that the corpus was made from (the benchmark's, the data set's own)"
    if (made := _made_by_us(path)) is not None:
        raise SourceError(f"{path} is {made}, no source: {wanted}")
    inside = [child for child in _folders(path) if _made_by_us(child) == _OWN_INDEXES[INDEX_FILE]]
    if inside and not _layouts(path) and not _holds_payloads(tabular_files(path)):
        names = ", ".join(child.name for child in inside)
        raise SourceError(
            f"{path} holds corpora that `envbuild materialize` made ({names}), no source: {wanted}"
        )


def database_folders(folder: Path) -> Iterator[Path]:
    """BIRD's `<split>_databases` folders, in `folder` or one level below it."""
    yield from sorted(p for p in folder.glob("*_databases") if p.is_dir())
    yield from sorted(p for p in folder.glob("*/*_databases") if p.is_dir())


def tabular_files(folder: Path) -> Iterator[Path]:
    """Parquet and JSON record files at most two levels down, sorted.

    Hidden ones are left out, and what envbuild has made itself.
    """
    made: dict[Path, bool] = {folder: False}
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder).parts
        hidden = any(part.startswith(".") for part in inside)
        if len(inside) > 3 or hidden or file.suffix not in _RECORD_FILES or not file.is_file():
            continue
        above = [place for place in file.parents if place.is_relative_to(folder)]
        for place in above:
            if place not in made:
                made[place] = _made_by_us(place) is not None
        if not any(made[place] for place in above):
            yield file


def _sources_in(folder: Path) -> list[tuple[Path, str]]:
    """(place, kind) of every source in `folder` or one level below that its names give away.

    Row payloads count only beside others: alone, all Parquet files of a folder are one source.
    """
    found = [(folder, kind) for kind in _layouts(folder)]
    payloads = [(folder, "payload")] if _holds_payloads(folder.glob("*.parquet")) else []
    for child in _folders(folder):
        if _made_by_us(child) is not None:
            continue
        kinds = _layouts(child)
        found += [(child, kind) for kind in kinds]
        nested = (file for pattern in ("*.parquet", "*/*.parquet") for file in child.glob(pattern))
        if not kinds and _holds_payloads(nested):
            payloads.append((child, "payload"))
    return found + payloads if found else []


def _layouts(folder: Path) -> list[str]:
    """The readers whose layout the folder's own entries have."""
    kinds = []
    if (folder / "data.json").is_file() and (folder / "databases").is_dir():
        kinds.append("synsql")
    if any(path.is_dir() for path in folder.glob("*_databases")):
        kinds.append("bird")
    ready = ("database",) if "synsql" in kinds else ("database", "databases")
    if any((folder / name).is_dir() for name in ready):
        kinds.append("spider")
    return kinds


def _folders(folder: Path) -> list[Path]:
    """The folders inside that may be sources themselves."""
    return sorted(
        child
        for child in folder.iterdir()
        if child.is_dir()
        and not child.name.startswith(".")
        and child.name not in ("database", "databases")
        and not child.name.endswith("_databases")
    )


def _holds_payloads(files: Iterator[Path]) -> bool:
    from envbuild.corpora.tables import columns_of

    for file in files:
        try:
            columns = columns_of(file)
        except SourceError:
            continue  # some other file of the folder
        if columns & _SCHEMA_COLUMNS or "questions" in columns:
            return True
    return False


def _named(found: list[tuple[Path, str]], folder: Path) -> str:
    """The sources, and how to give one of them."""
    names = ", ".join(
        f"{place.relative_to(folder).as_posix() + '/' if place != folder else 'its own files'} "
        f"({_NAMES[kind]})"
        for place, kind in found
    )
    if all(place != folder for place, _ in found):
        return f"{names}; give each by its own path, as {found[0][0]}"
    return f"{names}; give each a folder of its own, or say with --reader which one is meant"


def _made_by_us(folder: Path) -> str | None:
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

    if file.suffix in (".sqlite", ".sqlite3", ".db"):
        raise SourceError(f"{file} is a SQLite file already: use it as a corpus, or pack it")
    columns = columns_of(file)
    sqale = {"Full schema", "questions", "full_schema"}
    return "sqale" if sqale & columns or {"schema", "query"} <= columns else "payload"
