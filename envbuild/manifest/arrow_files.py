"""Arrow files between a manifest's stages: quick to write, streamed back batch by batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from envbuild.io.files import atomic_path


@contextmanager
def open_writer(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """A writer of record batches; the file is there, whole, once the block ends well."""
    with (
        atomic_path(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        yield writer


def iter_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The record batches of a file that `open_writer` wrote."""
    with pa.OSFile(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
