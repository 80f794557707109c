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
    split_of = _question_files(root, folders)
    if not split_of:
        raise SourceError(f"{path} is no BIRD folder: it has none of {', '.join(_FILES)}")
    if split is not None:
        chosen = [file for file in split_of if split_of[file] == split]
    else:
        without = {"mini_dev"} if "dev" in split_of.values() else set()
        chosen = [file for file in split_of if split_of[file] not in without]
    _refuse_several(root, chosen)
    own = _own_folders(folders, {split_of[file] for file in chosen})
    files = question_files(chosen, split_of)

    def iter_databases() -> Iterator[DatabaseRecord | Reject]:
        return chain.from_iterable(iter_ready(f, f.name.removesuffix("_databases")) for f in own)

    release = _release(root, chosen)
    shown = ", ".join(f"{f.relative_to(root)} ({split_of[f]})" for f in chosen)
    beside = ", ".join(str(f.relative_to(root)) for f in own)
    return Source(
        name=root.resolve().name,
        kind="bird",
        said=f"a BIRD folder: {shown}; {beside}; release {release}",
        databases=iter_databases,
        questions=lambda: iter_questions(files),
        files=tuple(chosen),
        revision=release,
        splits=tuple(sorted(set(split_of.values()))),
    )


def _question_files(root: Path, folders: list[Path]) -> dict[Path, str]:
    """Question file -> split: in `root` and beside databases; only for want of these, elsewhere."""
    places = dict.fromkeys((root, *(folder.parent for folder in folders)))
    beside = [place / name for name in _FILES for place in places]
    found = [file for file in beside if file.is_file()]
    found = found or [file for name in _FILES for file in sorted(root.glob(f"*/{name}"))]
    return {file: _FILES[file.name] for file in found if file.is_file()}


def _refuse_several(root: Path, files: list[Path]) -> None:
    """Two files of one split are two releases: their questions would have the same ids."""
    for file in files:
        if same := [other for other in files if other.name == file.name and other != file]:
            shown = ", ".join(str(f.relative_to(root)) for f in (file, *same))
            raise SourceError(f"{root} holds several releases of BIRD: {shown}; give one folder")


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
