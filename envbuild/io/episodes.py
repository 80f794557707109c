"""The episodes folder: a journal while a rollout runs, one Parquet file once it is done.

    episodes/
      journal.jsonl      one finished episode a line, synced; only while a rollout is unfinished,
                         as journal.jsonl.configuration, what the rollout was asked for
      journal.lock       held by the one process that writes here; gone once it is done
      episodes.parquet   every finished episode, sorted by episode_id, turns nested as lists
      episodes.json      format, counts and the rollout's configuration; written last

A kill at any moment loses nothing finished: a torn last line of the journal is an episode that
was not finished, and is run again. So is an episode that its server failed: it is kept to be read,
but a later line, or the journal's over the Parquet file's, stands for it. A second process is
refused while a first one writes.
"""

import heapq
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from envbuild.errors import ConfigurationError, CorpusFolderError, OutputError, StateError
from envbuild.io.files import WriterLock, changed_entries, stands_at, write_bytes, writing
from envbuild.io.parquet import arrow_schema, iter_records, write_records
from envbuild.records.episode import EndedBy, Episode

FORMAT = "envbuild.episodes/1"
PARQUET, JOURNAL, INDEX = "episodes.parquet", "journal.jsonl", "episodes.json"
BEGUN = JOURNAL + ".configuration"
LOCK = "journal.lock"
VERSIONS = ("envbuild", "sqlite")
"""Keys of the configuration that stand in the Parquet file too."""
GROUP_EPISODES, READ_EPISODES = 256, 64
"""Episodes in memory at once as they are written and read: one may have a hundred kilobytes."""
_DECODER = msgspec.json.Decoder(Episode)
T = TypeVar("T")


class EpisodesIndex(msgspec.Struct, frozen=True, kw_only=True):
    """episodes.json."""

    format: str = FORMAT
    episodes: int
    configuration: dict[str, object]
    """What the rollout was asked for: manifest digest, model, settings, seed, and with which
    versions of `envbuild` and `sqlite` it was answered."""


class EpisodeJournal:
    """Writes episodes as they finish; `seal` turns them into the Parquet file."""

    def __init__(self, folder: Path, *, configuration: dict[str, object]) -> None:
        """Opens or resumes `folder`; `close` removes it again where it was made for nothing.

        Raises OutputError where another process writes into it, and ConfigurationError, naming the
        keys, where it was begun under another configuration.
        """
        self.folder = Path(folder)
        self.configuration = configuration
        self.finished: set[str] = set()
        """Episodes that are done; those that their server failed are not, and are asked again."""
        self.unanswered: set[str] = set()
        """Episodes kept that their server failed."""
        self._made = not self.folder.exists()
        self._lock = WriterLock(self.folder / LOCK, of=self.folder)
        try:
            for episode in iter_episodes(self.folder, empty=True):
                self._note(episode)
            self._check_configuration()
            with writing(self.folder):
                _drop_torn_line(self.folder / JOURNAL)
                self._stream = (self.folder / JOURNAL).open("ab")
        except BaseException:
            self._lock.release()
            raise

    def add(self, episode: Episode) -> None:
        """Keeps one finished episode; it is on the disk when this returns.

        Raises StateError in a forked child, and once it is closed, and OutputError where the folder
        was removed meanwhile.
        """
        self._check_held()
        with writing(self.folder / JOURNAL):
            self._stream.write(msgspec.json.encode(episode) + b"\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        self._note(episode)

    def seal(self) -> int:
        """Writes episodes.parquet and the index, drops the journal; returns the episode count.

        Nothing can be added afterwards. Raises as `add` does.
        """
        self._check_held()
        self._stream.close()
        made = {key: str(self.configuration[key]) for key in VERSIONS if key in self.configuration}
        schema = arrow_schema(Episode)
        count = write_records(
            self.folder / PARQUET,
            iter_episodes(self.folder, empty=True),
            schema,
            metadata={"format": FORMAT, **made},
            group=GROUP_EPISODES,
        )
        index = EpisodesIndex(episodes=count, configuration=self.configuration)
        write_bytes(self.folder / INDEX, msgspec.json.format(msgspec.json.encode(index)))
        (self.folder / JOURNAL).unlink()
        (self.folder / BEGUN).unlink(missing_ok=True)
        self._lock.release()
        return count

    def close(self) -> None:
        """Leaves the journal for a later resume, if there is anything in it."""
        self._stream.close()
        if not self._lock.held:
            return
        in_vain = self._made and not self._keeps_any()
        if in_vain:
            (self.folder / JOURNAL).unlink(missing_ok=True)
            (self.folder / BEGUN).unlink(missing_ok=True)
        self._lock.release()
        if in_vain:
            with suppress(OSError):  # somebody else writes into it by now
                self.folder.rmdir()

    def __enter__(self) -> "EpisodeJournal":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_held(self) -> None:
        if not self._lock.held:
            raise StateError(f"{self.folder} is not this journal's any more: open it anew")
        if not (self._lock.stands and stands_at(self._stream.fileno(), self.folder / JOURNAL)):
            raise OutputError(
                f"{self.folder} was removed or replaced while it was written: what this run had "
                "kept there is gone with it, so roll out again"
            )

    def _keeps_any(self) -> bool:
        return bool(self.finished or self.unanswered or (self.folder / INDEX).exists())

    def _note(self, episode: Episode) -> None:
        if episode.ended_by is EndedBy.SERVER_ERROR:
            self.unanswered.add(episode.episode_id)
        else:
            self.unanswered.discard(episode.episode_id)
            self.finished.add(episode.episode_id)

    def _check_configuration(self) -> None:
        earlier = read_configuration(self.folder)
        if earlier is None or not self._keeps_any():
            write_bytes(self.folder / BEGUN, msgspec.json.encode(self.configuration))
            return
        different = [
            f"{key} ({then} then, {now} now)" if key in VERSIONS else key
            for key, then, now in changed_entries(earlier, self.configuration)
        ]
        if different:
            raise ConfigurationError(
                f"{self.folder} was begun with another {', '.join(different)}: choose another "
                "--out, or give the options it was begun with"
            )


def check_episodes(folder: Path) -> None:
    """Raises CorpusFolderError, saying what is there instead, where `folder` holds no episodes."""
    folder = Path(folder)
    if not folder.exists():
        raise CorpusFolderError(
            f"no folder {folder}: give an episodes folder, as rollout writes it"
        )
    if not folder.is_dir():
        raise CorpusFolderError(f"{folder} is a file: give the episodes folder around it")
    if not (folder / PARQUET).exists() and not (folder / JOURNAL).exists():
        raise CorpusFolderError(f"no episodes in {folder}: it needs {PARQUET} from a rollout")


def read_configuration(folder: Path) -> dict[str, object] | None:
    """What the folder's rollout was asked for, from its start on; None where it does not say.

    Raises CorpusFolderError for a file that cannot be read.
    """
    if (Path(folder) / INDEX).exists():
        return read_index(folder).configuration
    begun = Path(folder) / BEGUN
    return (
        _read_json(begun, dict[str, object], "a rollout's configuration")
        if begun.exists()
        else None
    )


def read_index(folder: Path) -> EpisodesIndex:
    """episodes.json of a sealed folder. Raises CorpusFolderError where it is not one."""
    path = Path(folder) / INDEX
    if not path.exists():
        raise CorpusFolderError(f"{folder} has no {INDEX}: is its rollout finished?")
    return _read_json(path, EpisodesIndex, "an episodes index")


def _read_json(path: Path, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.MsgspecError as e:
        raise CorpusFolderError(f"{path} is not {what}: {e}") from None


def iter_episodes(folder: Path, *, empty: bool = False) -> Iterator[Episode]:
    """Every kept episode, each once, in the order of episode_id; few are in memory at once.

    One that its server failed gives way to the same episode once that is finished. Raises
    CorpusFolderError where the folder holds none, unless `empty` allows that.
    """
    folder = Path(folder)
    with ExitStack() as stack:
        journal = None
        with suppress(FileNotFoundError, NotADirectoryError):
            # before the Parquet file is looked for: a rollout that ends now drops the journal last
            journal = stack.enter_context((folder / JOURNAL).open("rb"))
        places = _choose_lines(journal) if journal else {}
        if not places and not empty:
            check_episodes(folder)
        sources: list[Iterator[Episode]] = []
        if (folder / PARQUET).exists():
            sources.append(iter_records(folder / PARQUET, Episode, held=READ_EPISODES))
        if journal:
            sources.append(_read_line(journal, places[key]) for key in sorted(places))
        by_id = attrgetter("episode_id")
        for _, same in groupby(heapq.merge(*sources, key=by_id), key=by_id):
            first, *later = same  # the sealed one, and the journal's
            failed = first.ended_by is EndedBy.SERVER_ERROR
            yield later[-1] if failed and later else first


def _choose_lines(journal: BinaryIO) -> dict[str, int]:
    """episode_id -> where its line starts: the first finished one, else the last.

    A line that a kill tore before the rollout resumed is none, nor is the one being written.
    """
    chosen: dict[str, int] = {}
    finished: set[str] = set()
    start = end = 0
    for line in journal:
        start, end = end, end + len(line)
        try:
            read = _DECODER.decode(line) if line.endswith(b"\n") else None
        except msgspec.MsgspecError:
            continue
        if read is not None and read.episode_id not in finished:
            chosen[read.episode_id] = start
            if read.ended_by is not EndedBy.SERVER_ERROR:
                finished.add(read.episode_id)
    return chosen


def _read_line(journal: BinaryIO, place: int) -> Episode:
    journal.seek(place)
    return _DECODER.decode(journal.readline())


def _drop_torn_line(journal: Path) -> None:
    """Cuts what a kill left after the last whole line, so that the next line starts clean."""
    if not journal.exists():
        return
    with journal.open("r+b") as stream:
        whole = sum(len(line) for line in stream if line.endswith(b"\n"))
        stream.truncate(whole)
