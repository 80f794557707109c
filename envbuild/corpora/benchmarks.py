"""The benchmarks that come as folders: BIRD, Spider and its kin, SynSQL.

Questions are JSON records, databases ready SQLite files `<db_id>/<db_id>.sqlite`.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.payload import questions_of_row
from envbuild.corpora.source import BIRD_FILES, SQLITE_ENDINGS, Source
from envbuild.corpora.tables import columns_of
from envbuild.errors import SourceError
from envbuild.io.files import sha256_file
from envbuild.io.json_stream import iter_json
from envbuild.records.corpus import DatabaseRecord, Question, Reject

_DATE = re.compile(r"20\d{6}")


class SourceRecord(msgspec.Struct):
    """The fields that Spider, BIRD, SynSQL and their kin use; all others are skipped unread."""

    db_id: Any = None
    question_id: Any = None
    question: Any = None
    query: Any = None
    sql: Any = None
    SQL: Any = None
    evidence: Any = None
    external_knowledge: Any = None
    difficulty: Any = None
    hardness: Any = None
    sql_complexity: Any = None
    question_style: Any = None
    gold_tables: Any = None

    @property
    def gold_sql(self) -> Any:
        """Spider's `query` comes beside a parsed `sql` object, so only text counts."""
        return next((q for q in (self.SQL, self.query, self.sql) if isinstance(q, str)), None)


class _SchemaRecord(msgspec.Struct):
    """What we read of a record of tables.json."""

    db_id: str
    ddls: list[str] = msgspec.field(default_factory=list)


def read_spider(path: str, *, split: str | None = None) -> Source:
    """A Spider folder or its kin (MachineSpider, EHRSQL, BEAVER): JSON questions, database/.

    Raises SourceError where it has no databases folder.
    """
    root = Path(path)
    folder = next((root / n for n in ("database", "databases") if (root / n).is_dir()), None)
    if folder is None:
        raise SourceError(f"{path} is no Spider folder: it has no database/")
    split_of = {
        file: file.stem.split("_")[0]
        for file in sorted(root.glob("*.json"))
        if not file.stem.endswith("tables") and {"db_id", "question"} <= columns_of(file)
    }
    chosen = {file: own for file, own in split_of.items() if split in (None, own)}
    only = next(iter(chosen.values())) if len(chosen) == 1 else ""
    names = ", ".join(file.name for file in chosen) or "no questions"
    return Source(
        name=root.resolve().name,
        kind="spider",
        description=f"a Spider folder: {names}; {folder.name}/",
        databases=lambda: iter_ready(folder, only),
        questions=lambda: _iter_questions(chosen),
        files=tuple(chosen),
        splits=tuple(sorted(set(split_of.values()))),
    )


def read_synsql(path: str, *, split: str | None = None) -> Source:
    """A SynSQL folder: data.json (one array of any size), databases/, tables.json with DDL.

    Raises SourceError where data.json is missing.
    """
    root = Path(path)
    records, databases, tables = root / "data.json", root / "databases", root / "tables.json"
    if not records.is_file():
        raise SourceError(f"{path} is no SynSQL folder: it has no data.json")
    listed = "tables.json" if tables.is_file() else "no tables.json"
    size = records.stat().st_size
    return Source(
        name=root.resolve().name,
        kind="synsql",
        description=f"a SynSQL folder: data.json of {size:,} bytes, databases/, {listed}",
        databases=lambda: _iter_listed(tables, iter_ready(databases) if databases.is_dir() else ()),
        questions=lambda: _iter_questions({records: ""}),
        files=tuple(file for file in (records, tables) if file.is_file()),
    )


def read_bird(path: str, *, split: str | None = None) -> Source:
    """A BIRD folder: train, dev or mini-dev, of whichever release; which one it is gets recorded.

    mini-dev repeats questions of dev: with both there it is read only when `split` asks for it.
    Raises SourceError where the folder has no questions.
    """
    root = Path(path)
    folders = [p for g in ("*_databases", "*/*_databases") for p in sorted(root.glob(g))]
    folders = [folder for folder in folders if folder.is_dir()]
    split_of = _bird_files(root, folders)
    if not split_of:
        raise SourceError(f"{path} is no BIRD folder: it has none of {', '.join(BIRD_FILES)}")
    repeated = "mini_dev" if split is None and "dev" in split_of.values() else None
    chosen = {f: own for f, own in split_of.items() if split in (None, own) and own != repeated}
    for file in chosen:  # of one split these are two releases, whose questions have the same ids
        if same := [other for other in chosen if other.name == file.name and other != file]:
            shown = ", ".join(str(f.relative_to(root)) for f in (file, *same))
            raise SourceError(f"{root} holds several releases of BIRD: {shown}; give one folder")
    splits = set(chosen.values())
    wanted = splits | ({"dev"} if "mini_dev" in splits else set())  # mini-dev uses dev's databases
    own = [f for f in folders if f.name.removesuffix("_databases").lower() in wanted] or folders
    release = _bird_release(root, list(chosen))
    files = ", ".join(f"{file.relative_to(root)} ({chosen[file]})" for file in chosen)
    places = ", ".join(str(folder.relative_to(root)) for folder in own)
    return Source(
        name=root.resolve().name,
        kind="bird",
        description=f"a BIRD folder: {files}; {places}; release {release}",
        databases=lambda: (
            record for f in own for record in iter_ready(f, f.name.removesuffix("_databases"))
        ),
        questions=lambda: _iter_questions(chosen),
        files=tuple(chosen),
        revision=release,
        splits=tuple(sorted(set(split_of.values()))),
    )


def _bird_files(root: Path, folders: list[Path]) -> dict[Path, str]:
    """Question file -> split: in `root` and beside databases; only for want of these, elsewhere."""
    places = dict.fromkeys((root, *(folder.parent for folder in folders)))
    beside = [place / name for name in BIRD_FILES for place in places]
    found = [file for file in beside if file.is_file()]
    found = found or [file for name in BIRD_FILES for file in sorted(root.glob(f"*/{name}"))]
    return {file: BIRD_FILES[file.name] for file in found if file.is_file()}


def _bird_release(root: Path, files: list[Path]) -> str:
    """A date in a folder's name (`dev_20240627`), else what the questions' digest says."""
    for place in (*(file.parent for file in files), root.resolve()):
        if date := _DATE.search(place.name):
            return f"{date[0][:4]}-{date[0][4:6]}-{date[0][6:]}"
    digests = ", ".join(f"{file.stem} sha256 {sha256_file(file)[:12]}" for file in files)
    return f"unnamed ({digests})"


def _iter_questions(split_of: dict[Path, str]) -> Iterator[Question | Reject]:
    """The questions in file order; without an id of its own, a question's is its position.

    The file's name stands before the ids where there are several files.
    """
    for file, split in split_of.items():
        prefix = f"{file.stem}-" if len(split_of) > 1 else ""
        for position, record in enumerate(iter_json(file, SourceRecord)):
            own, tables = record.question_id, record.gold_tables
            if isinstance(tables, list):  # BEAVER puts `db#sep#` before a table's name
                tables = [str(name).rpartition("#sep#")[2] for name in tables]
            row = {
                "question_id": f"{prefix}{position if own is None else own}",
                "db_id": record.db_id,
                "split": split,
                "sql": record.gold_sql,
                "question": record.question,
                "style": record.question_style,
                "evidence": record.evidence or record.external_knowledge,
                "difficulty": record.difficulty or record.sql_complexity or record.hardness,
                "relevant_tables": tables if isinstance(tables, list) else None,
                "stored_result": None,
            }
            yield from questions_of_row(row, position)


def iter_ready(folder: Path, split: str = "") -> Iterator[DatabaseRecord | Reject]:
    """One database a sub-folder, by name; a folder without a SQLite file is a Reject.

    So is the second of two files that are both called like their folder (`.sqlite` and `.db`).
    """
    for place in sorted(folder.iterdir()):
        if not place.is_dir() or place.name.startswith("."):
            continue
        db_id = place.name.encode("utf-8", "replace").decode()  # a name may be no UTF-8
        named = [place / f"{place.name}{ending}" for ending in SQLITE_ENDINGS]
        files = [file for file in named if file.is_file()]
        if not files:  # one that is called otherwise, where it is the only one
            files = [p for p in place.iterdir() if p.suffix in SQLITE_ENDINGS and p.is_file()]
            files = files if len(files) == 1 else []
        if not files:
            yield _refused(db_id, "missing_file", "its folder holds no SQLite file")
            continue
        yield DatabaseRecord(db_id=db_id, split=split, sqlite_file=str(files[0].resolve()))
        for other in files[1:]:
            detail = f"{files[0].name} was read, {other.name} was not"
            yield _refused(db_id, "duplicate_db_id", detail)


def _iter_listed(
    tables_file: Path, ready: Iterable[DatabaseRecord | Reject]
) -> Iterator[DatabaseRecord | Reject]:
    """The ready ones, then what else tables.json lists: from its DDL, or a Reject."""
    seen = set()
    for found in ready:
        seen.add(found.db_id)
        yield found
    for record in iter_json(tables_file, _SchemaRecord) if tables_file.is_file() else ():
        if record.db_id in seen:
            continue
        seen.add(record.db_id)
        if record.ddls:
            ddl = ";\n".join(statement.rstrip().rstrip(";") for statement in record.ddls)
            yield DatabaseRecord(db_id=record.db_id, ddl=ddl)
        else:
            detail = f"{tables_file.name} lists it, and there is no file"
            yield _refused(record.db_id, "missing_file", detail)


def _refused(db_id: str, reason: str, detail: str) -> Reject:
    return Reject(db_id=db_id, kind="database", reason=reason, detail=detail)
