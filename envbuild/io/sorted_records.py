"""Records in the order of a key, however many there are: sorted runs on the disk, merged."""

import heapq
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from envbuild.io.files import writing

R = TypeVar("R", bound=msgspec.Struct)

RECORDS_HELD = 8192
"""Records in memory before they go to the disk as one sorted run."""
FRAME_RECORDS = 16
"""Records decoded at once from each run while runs are merged."""


class SortedRecords(Generic[R]):
    """Takes records in any order, and gives them by `key`, as often as asked.

    Records of equal keys come in the order they were added. The runs lie in one file without a
    name on the disk of `near` (without one, where temporary files go): however this process ends,
    nothing is left of it.
    """

    def __init__(
        self,
        record: type[R],
        key: Callable[[R], Any],
        *,
        near: Path | None = None,
        held: int = RECORDS_HELD,
    ) -> None:
        self.key, self.near, self.held = key, near or Path(tempfile.gettempdir()), held
        self.fresh: list[R] = []
        """Records that are not on the disk."""
        self.runs: list[list[tuple[int, int]]] = []
        """Offset and size of each frame of each run."""
        self._file: Any = None
        self._decoder = msgspec.msgpack.Decoder(list[record])  # type: ignore[valid-type]
        self._encoder = msgspec.msgpack.Encoder()

    def __len__(self) -> int:
        return len(self.fresh) + self.held * len(self.runs)

    def __iter__(self) -> Iterator[R]:
        self.fresh.sort(key=self.key)
        runs: list[Iterable[R]] = [self._read(run) for run in self.runs]
        # the newest last: equal keys then come in the order they were added
        return heapq.merge(*runs, self.fresh, key=self.key)

    def add(self, record: R) -> None:
        """Takes one more record. Raises OutputError where the disk is full."""
        self.fresh.append(record)
        if len(self.fresh) >= self.held:
            with writing(self.near):
                self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self.near)  # noqa: SIM115 - lives as we do
        self.fresh.sort(key=self.key)
        run = []
        for start in range(0, len(self.fresh), FRAME_RECORDS):
            encoded = self._encoder.encode(self.fresh[start : start + FRAME_RECORDS])
            frame = zlib.compress(encoded, 1)
            run.append((self._file.tell(), len(frame)))
            self._file.write(frame)
        self._file.flush()
        self.runs.append(run)
        self.fresh = []

    def _read(self, run: list[tuple[int, int]]) -> Iterator[R]:
        for offset, size in run:
            frame = os.pread(self._file.fileno(), size, offset)
            yield from self._decoder.decode(zlib.decompress(frame))
