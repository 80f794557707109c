"""stdout and stderr as pipes and terminals really are: of any encoding, closed early, or absent."""

import codecs
import io
import os
import sys
from pathlib import Path

PLAIN_ASCII = "envbuild-ascii"


def prepare_streams() -> None:
    """No character ends a command: what a stream cannot spell is shown as `?`.

    A stream that was closed before the start (`>&-`) leads nowhere.
    """
    codecs.register(_find_plain_ascii)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(_open_nowhere(number), "w"))
        elif isinstance(stream, io.TextIOWrapper):
            ascii_only = codecs.lookup(stream.encoding).name == "ascii"
            # typer writes UTF-8 past a stream whose encoding it knows as ASCII
            encoding = PLAIN_ASCII if ascii_only else stream.encoding
            stream.reconfigure(encoding=encoding, errors="replace")


def drop_stdout() -> None:
    """Sends what is still buffered nowhere, or Python would complain of it once more at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def name_stdout() -> str:
    """The file that stdout goes into, where it is one that the system names."""
    try:
        named = str(Path(f"/proc/self/fd/{sys.stdout.fileno()}").readlink())
    except (OSError, ValueError):
        named = ""
    return f"the output, {named}" if named.startswith("/") else "the output"


def _open_nowhere(number: int) -> int:
    opened = os.open(os.devnull, os.O_WRONLY)
    if opened != number:  # a file opened later would get the number, and whatever C code prints
        os.dup2(opened, number)
        os.close(opened)
    return number


def _find_plain_ascii(name: str) -> codecs.CodecInfo | None:
    """ASCII under a name of its own."""
    if name.replace("_", "-") != PLAIN_ASCII:
        return None
    plain = codecs.lookup("ascii")
    return codecs.CodecInfo(
        plain.encode,
        plain.decode,
        plain.streamreader,
        plain.streamwriter,
        plain.incrementalencoder,
        plain.incrementaldecoder,
        name=PLAIN_ASCII,
    )
