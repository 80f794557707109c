"""Any folder: SQLite files at any depth, questions in JSON, JSON lines, CSV or Parquet.

Which key of a record means what is told by a table of spellings; two keys that could both be meant
are refused, never guessed. Files are only read.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from envbuild.corpora.payload import questions_of_row
from envbuild.corpora.source import SQLITE_ENDINGS, Source, files_below
from envbuild.corpora.tables import columns_of, iter_cells
from envbuild.errors import SourceError
from envbuild.records.corpus import DatabaseRecord, Question, Reject, counted

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "db_id": ("db_id", "db", "database", "database_id", "db_name"),
    "question": ("question", "nl", "utterance", "text", "nl_question"),
    "gold_sql": ("gold_sql", "sql", "query", "gold", "gold_query"),
    "evidence": ("evidence", "hint", "external_knowledge"),
    "question_id": ("question_id", "id", "qid"),
    "split": ("split",),
    "difficulty": ("difficulty", "hardness"),
}
"""Field -> keys that mean it, whatever their capitals."""
RECORD_ENDINGS = (".json", ".jsonl", ".csv", ".parquet")
_RECORDS_LOOKED_AT = 100
_UNREAD_SHOWN = 5


class QuestionFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of questions, and which of its keys means what."""

    path: Path
    keys: dict[str, str]
    """Field of SPELLINGS -> key."""

    def render(self, root: Path) -> str:
        """`questions.json (db, sql → db_id, gold_sql)`."""
        keys = f"{', '.join(self.keys.values())} → {', '.join(self.keys)}"
        return f"{self.path.relative_to(root).as_posix()} ({keys})"


def read(path: str, *, split: str | None = None, fields: Mapping[str, str] | None = None) -> Source:
    """The source of a folder, or of one SQLite file and the question files beside it.

    `fields` names keys that the table does not: field -> key. Raises SourceError where there is no
    SQLite file, where a key could mean what another one means too, and where a named one is in no
    file.
    """
    root = Path(path)
    folder = root.parent if root.is_file() else root
    inside = sorted(folder.iterdir()) if root.is_file() else list(files_below(root))
    databases = name_databases(
        [root] if root.is_file() else [f for f in inside if f.suffix.lower() in SQLITE_ENDINGS],
        folder,
    )
    if not databases:
        endings = ", ".join(SQLITE_ENDINGS)
        raise SourceError(f"{path} holds no SQLite file ({endings}) at any depth")
    named = _checked(fields or {})
    files, unread = [], []
    for file in inside:
        if file.suffix.lower() in SQLITE_ENDINGS or not file.is_file():
            continue
        found = _look_at(file, named, needs_db_id=len(databases) > 1)
        if isinstance(found, QuestionFile):
            files.append(found)
        else:
            unread.append(f"{file.relative_to(folder).as_posix()}{found}")
    if lost := sorted(set(named) - {field for file in files for field in file.keys}):
        looked = ", ".join(unread) or "none"
        raise SourceError(
            f"--fields names {', '.join(f'{field}={named[field]}' for field in lost)}, and no file "
            f"of questions has such a key; files not read: {looked}"
        )

    def iter_questions() -> Iterator[Question | Reject]:
        return _iter_questions(files, set(databases))

    return Source(
        name=root.resolve().stem if root.is_file() else root.resolve().name,
        kind="folder",
        description=_describe(files, unread, databases, folder, iter_questions()),
        databases=lambda: (
            DatabaseRecord(db_id=db_id, sqlite_file=str(file.resolve()))
            for db_id, file in databases.items()
        ),
        questions=iter_questions,
        files=tuple(file.path for file in files),
        options=named,
        splits=() if split is None else _splits(iter_questions()),
    )


def name_databases(files: list[Path], folder: Path) -> dict[str, Path]:
    """db_id -> file: a database is called as its file.

    Where two share that name it is called by its path below `folder`, and with the ending where
    two share even this.
    """
    paths = [file.relative_to(folder) for file in files]
    ways = [(p.stem, p.with_suffix("").as_posix(), p.as_posix()) for p in paths]
    counts = [Counter(way) for way in zip(*ways, strict=True)]
    named = {
        next(name for name, count in zip(names, counts, strict=True) if count[name] == 1): file
        for names, file in zip(ways, files, strict=True)
    }
    return dict(sorted(named.items()))


def _checked(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields under their own names: `sql` and `db` are short for gold_sql and db_id."""
    checked = {}
    for given, key in fields.items():
        field = next((name for name, keys in SPELLINGS.items() if given in (name, *keys)), None)
        if field is None:
            raise SourceError(f"--fields has no field {given!r}; there are {', '.join(SPELLINGS)}")
        checked[field] = key
    return checked


def _look_at(file: Path, named: Mapping[str, str], *, needs_db_id: bool) -> QuestionFile | str:
    """What the file's keys mean; or in brackets why it holds no questions, empty for other files.

    Only keys that hold text count: Spider's parsed `sql` object beside `query` is none.
    """
    if file.suffix.lower() not in RECORD_ENDINGS:
        return ""
    try:
        present = _text_keys(file)
    except SourceError:
        return " (not readable)"
    keys: dict[str, str] = {}
    for field, spellings in SPELLINGS.items():
        if field in named:
            meant = [named[field]] if named[field] in present else []
        else:
            taken = set(named.values())
            meant = [key for key in present if key.lower() in spellings and key not in taken]
        if len(meant) > 1:
            raise SourceError(
                f"{file}: {' and '.join(meant)} could both be the {field}; say which with --fields "
                f"{field}={meant[0]}"
            )
        keys.update(dict.fromkeys((field,), meant[0]) if meant else {})
    lacking = [field for field in ("question", "gold_sql") if field not in keys]
    if lacking:
        shown = ", ".join(sorted(present)) or "none"
        return f" (no {' and no '.join(lacking)} among its keys: {shown})"
    if needs_db_id and "db_id" not in keys:
        return f" (no db_id among its keys, and there are several databases: {', '.join(present)})"
    return QuestionFile(path=file, keys=keys)


def _text_keys(file: Path) -> list[str]:
    """The keys under which the first records have text or a number."""
    keys = _header(file) if file.suffix.lower() == ".csv" else sorted(columns_of(file))
    found: dict[str, None] = {}
    for record in islice(_iter_records(file, keys), _RECORDS_LOOKED_AT):
        found.update(dict.fromkeys(key for key, value in record.items() if _is_plain(value)))
    return [key for key in keys if key in found]


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip()) and not value.lstrip().startswith(("{", "["))
    return isinstance(value, int)


def _header(file: Path) -> list[str]:
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        return next(csv.reader(stream), [])


def _iter_records(file: Path, keys: list[str]) -> Iterator[dict[str, Any]]:
    if file.suffix.lower() != ".csv":
        for cells in iter_cells(file, keys, large=False):
            yield dict(zip(keys, cells, strict=True))
        return
    csv.field_size_limit(sys.maxsize)  # Python's own limit is 128 KiB, less than some queries
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        try:
            for record in csv.DictReader(stream):
                yield {key: record.get(key) for key in keys}
        except csv.Error as e:
            raise SourceError(f"{file} is no readable CSV file: {e}") from e


def _iter_questions(files: list[QuestionFile], databases: set[str]) -> Iterator[Question | Reject]:
    """The questions in file order; without an id of its own, a question's is its position.

    The file's name stands before the ids where there are several files.
    """
    known: dict[str, str] = {}
    for db_id in sorted(databases):
        known.setdefault(db_id.casefold(), db_id)
    only = next(iter(databases)) if len(databases) == 1 else ""
    for file in files:
        prefix = f"{file.path.stem}-" if len(files) > 1 else ""
        fields = list(file.keys)
        for position, record in enumerate(_iter_records(file.path, list(file.keys.values()))):
            row: dict[str, Any] = dict.fromkeys(
                ("style", "relevant_tables", "stored_result", *SPELLINGS)
            )
            row.update(zip(fields, record.values(), strict=True))
            own = row["question_id"]
            row["question_id"] = f"{prefix}{position if own in (None, '') else own}"
            row["db_id"] = _match(str(row["db_id"] or "") or only, databases, known)
            yield from questions_of_row({**row, "sql": row["gold_sql"]}, position)


def _match(given: str, databases: set[str], known: Mapping[str, str]) -> str:
    """The db_id meant by a name that may have other capitals, a path or a file's ending."""
    if given in databases:
        return given
    path = Path(given.replace("\\", "/"))
    short = path.with_suffix("") if path.suffix.lower() in SQLITE_ENDINGS else path
    tried = (given, short.as_posix(), short.name)
    return next((known[name.casefold()] for name in tried if name.casefold() in known), given)


def _splits(questions: Iterator[Question | Reject]) -> tuple[str, ...]:
    return tuple(sorted({q.split for q in questions if isinstance(q, Question) and q.split}))


def _describe(
    files: list[QuestionFile],
    unread: list[str],
    databases: Mapping[str, Path],
    folder: Path,
    questions: Iterator[Question | Reject],
) -> str:
    """What was read and what was not, in one line."""
    offered = matched = 0
    asked = set()
    for question in questions:
        offered += 1
        if isinstance(question, Question) and question.db_id in databases:
            matched += 1
            asked.add(question.db_id)
    there = counted(len(databases), "database")
    if files:
        shown = ", ".join(file.render(folder) for file in files)
        said = (
            f"read {counted(offered, 'question')} from {shown}, matched {matched:,} of "
            f"{offered:,} to {len(asked):,} of {there}"
        )
    else:
        said = f"read {there}, and found no file of questions ({', '.join(RECORD_ENDINGS)})"
    more = f", … ({len(unread):,} in all)" if len(unread) > _UNREAD_SHOWN else ""
    return f"{said}; not read: {', '.join(unread[:_UNREAD_SHOWN]) or 'nothing'}{more}"
