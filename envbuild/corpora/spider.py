"""A Spider folder and its kin (MachineSpider, EHRSQL, BEAVER): JSON questions, database/."""

from collections.abc import Iterator
from pathlib import Path

from envbuild.corpora.question_files import iter_questions, question_files
from envbuild.corpora.ready_databases import iter_ready
from envbuild.corpora.source import Source
from envbuild.corpora.tables import columns_of
from envbuild.errors import SourceError
from envbuild.records.corpus import DatabaseRecord, Reject


def read(path: str, *, split: str | None = None) -> Source:
    """The source in folder `path`. Raises SourceError where it has no databases folder."""
    root = Path(path)
    folder = next((root / n for n in ("database", "databases") if (root / n).is_dir()), None)
    if folder is None:
        raise SourceError(f"{path} is no Spider folder: it has no database/")
    split_of = {
        file: file.stem.split("_")[0]
        for file in sorted(root.glob("*.json"))
        if not file.stem.endswith("tables") and {"db_id", "question"} <= columns_of(file)
    }
    chosen = [file for file in split_of if split in (None, split_of[file])]
    files = question_files(chosen, split_of)

    def iter_databases() -> Iterator[DatabaseRecord | Reject]:
        return iter_ready(folder, split_of[chosen[0]] if len(chosen) == 1 else "")

    names = ", ".join(file.name for file in chosen) or "no questions"
    return Source(
        name=root.resolve().name,
        kind="spider",
        said=f"a Spider folder: {names}; {folder.name}/",
        databases=iter_databases,
        questions=lambda: iter_questions(files),
        files=tuple(chosen),
        splits=tuple(sorted(set(split_of.values()))),
    )
