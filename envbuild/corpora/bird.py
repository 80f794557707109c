"""A BIRD folder: train, dev or mini-dev, of whichever release; which one it is gets recorded."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from envbuild.corpora.question_files import iter_questions, question_files
from envbuild.corpora.ready_databases import iter_ready
from envbuild.corpora.recognise import database_folders
from envbuild.corpora.source import Source
from envbuild.errors import SourceError
from envbuild.io.files import sha256_file
from envbuild.records.corpus import DatabaseRecord, Reject

_FILES = {
    "train.json": "train",
    "dev.json": "dev",
    "test.json": "test",
    "mini_dev_sqlite.json": "mini_dev",
}
_DATE = re.compile(r"20\d{6}")


def read(path: str, *, split: str | None = None) -> Source:
    """The BIRD source in folder `path`. Raises SourceError where it has no questions.

    mini-dev repeats questions of dev: with both there it is read only when `split` asks for it.
    """
    root = Path(path)
    folders = list(database_folders(root))
    split_of = {
        file: name
        for pattern in _FILES
        for file in (root / pattern, *sorted(root.glob(f"*/{pattern}")))
        if file.is_file() and (name := _FILES[pattern])
    }
    if not split_of:
        raise SourceError(f"{path} is no BIRD folder: it has none of {', '.join(_FILES)}")
    if split is not None:
        chosen = [file for file in split_of if split_of[file] == split]
    else:
        without = {"mini_dev"} if "dev" in split_of.values() else set()
        chosen = [file for file in split_of if split_of[file] not in without]
    own = _own_folders(folders, {split_of[file] for file in chosen})
    files = question_files(chosen, split_of)

    def iter_databases() -> Iterator[DatabaseRecord | Reject]:
        return chain.from_iterable(iter_ready(f, f.name.removesuffix("_databases")) for f in own)

    release = _release(root, chosen)
    shown = ", ".join(f"{f.name} ({split_of[f]})" for f in chosen)
    return Source(
        name=root.resolve().name,
        kind="bird",
        said=f"a BIRD folder: {shown}; {', '.join(f.name for f in own)}; release {release}",
        databases=iter_databases,
        questions=lambda: iter_questions(files),
        files=tuple(chosen),
        revision=release,
        splits=tuple(sorted(set(split_of.values()))),
    )


def _own_folders(folders: list[Path], splits: set[str]) -> list[Path]:
    """The databases folders of these splits; mini-dev uses dev's."""
    wanted = {"dev" if name == "mini_dev" else name for name in splits} | splits
    own = [f for f in folders if f.name.removesuffix("_databases").lower() in wanted]
    return own or folders


def _release(root: Path, files: list[Path]) -> str:
    """A date in a folder's name (`dev_20240627`), else what the questions' digest says."""
    for place in (*(file.parent for file in files), root.resolve()):
        if date := _DATE.search(place.name):
            return f"{date[0][:4]}-{date[0][4:6]}-{date[0][6:]}"
    digests = ", ".join(f"{file.stem} sha256 {sha256_file(file)[:12]}" for file in files)
    return f"unnamed ({digests})"
