"""JSON arrays and lines of any size: cut right, also where a cut looks right and is not."""

import json
import random
import resource
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envbuild.errors import SourceError
from envbuild.io import json_stream
from envbuild.io.json_stream import RawRecord, iter_json


class Entry(msgspec.Struct):
    n: int
    text: str = ""


class Loose(msgspec.Struct):
    n: int
    text: Any = None


def tricky(count: int) -> list[dict[str, Any]]:
    """Records with `}, {` inside strings, nested lists, quotes and backslashes."""
    generator = random.Random(3)
    bits = ["}, {", '"', "\\", "},\n  {", "[{", "}]", "é😀", "plain ", '{"n": 1}, {"n": 2}']
    return [
        {
            "skipped": [{"a": 1}, {"a": 2}, {"text": "}, {"}],
            "n": n,
            "text": "".join(generator.choices(bits, k=generator.randint(0, 30))),
        }
        for n in range(count)
    ]


@pytest.mark.parametrize("indent", [None, 1, 4, "lines"])
@pytest.mark.parametrize("chunk", [64, 200, 1000, 100_000])
def test_every_record_whatever_the_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: Any, chunk: int
) -> None:
    """What is no number in one of them refuses no other one."""
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", chunk)
    odd = {3: float("nan"), 50: float("inf"), 51: float("-inf"), 119: float("nan")}
    records = [{**r, "text": odd.get(r["n"], r["text"] + "NaN, Infinity")} for r in tricky(120)]
    content = json.dumps(records, indent=None if indent == "lines" else indent, ensure_ascii=False)
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    file = tmp_path / "data.json"
    file.write_text(lines if indent == "lines" else content, encoding="utf-8")
    read = [(record.n, record.text) for record in iter_json(file, Loose)]
    assert read == [(n, None if n in odd else r["text"]) for n, r in enumerate(records)]
    raw = [bytes(r["text"]) for r in iter_json(file, RawRecord)]
    assert raw == [json.dumps(r["text"], ensure_ascii=False).encode() for r in records]


@pytest.mark.parametrize("content", ["", "[]", " \n[ ]\n", "\ufeff[]", "\ufeff", "\n\n"])
def test_nothing_is_no_records(tmp_path: Path, content: str) -> None:
    (tmp_path / "data.json").write_text(content, encoding="utf-8")
    assert list(iter_json(tmp_path / "data.json", Entry)) == []


def test_lines_with_a_mark_and_carriage_returns(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"n":1,"text":"a\\r\\n"}\r\n\r\n{"n":2}')
    assert [(r.n, r.text) for r in iter_json(file, Entry)] == [(1, "a\r\n"), (2, "")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"n": 1}\n{"n": \n', "line 2"),
        ('{"n": 1}\n{"n": "x"}\n', "line 2"),
        ('[{"n": 1}, {"n": 2', "malformed behind byte"),
        ('[{"n": 1}, {"n": "x"}]', r"Expected `int`"),
        ("[1, 2]", "malformed"),
        ("hello", "line 1"),
        ('{\n  "n": 1\n}\n', "line 1: .*wanted is an array of records, or a record a line"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "data.json").write_text(content)
    with pytest.raises(SourceError, match=said):
        list(iter_json(tmp_path / "data.json", Entry))
    with pytest.raises(SourceError, match="no file"):
        list(iter_json(tmp_path / "nope.json", Entry))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "data.json"
    record = json.dumps({"n": 1, "skipped": "x" * 4000})
    with file.open("w") as stream:
        stream.write("[" + record)
        for _ in range(40_000):
            stream.write(", " + record)
        stream.write("]")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(entry.n for entry in iter_json(file, Entry)) == 40_001
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 40_000  # KiB, for a file of 160 MB


def test_malformed_stays_malformed_beside_nan(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('[{"n": 1, "text": NaN}, {"n": NaNs}]')
    with pytest.raises(SourceError, match="malformed"):
        list(iter_json(tmp_path / "data.json", Loose))
