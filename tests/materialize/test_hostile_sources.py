"""Sources that nobody would write on purpose: a named reject or a sentence, never a traceback."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.corpora.source import read_source
from envbuild.errors import CorpusFolderError, SourceError
from envbuild.io import json_stream
from envbuild.io.json_stream import iter_json
from envbuild.materialize.any_folder import open_any
from envbuild.materialize.corpus import build_corpus
from envbuild.sql.connect import open_read_only
from envbuild.sql.execution.session import Session

PACKED = json.dumps("\0envbuild packed/1")


def record(**fields: Any) -> str:
    """One line of a records file: a database and a question about it."""
    plain = {
        "db_id": "d",
        "ddl": "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)",
        "payload": '{"t":[{"a":1,"b":"x"}]}',
        "sql": "SELECT a FROM t",
        "question": "Which?",
        "id": "1",
    }
    return json.dumps(plain | fields) + "\n"


def materialized(tmp_path: Path, content: str | bytes) -> CorpusFolder:
    source = tmp_path / "records.jsonl"
    source.write_bytes(content if isinstance(content, bytes) else content.encode())
    build_corpus(read_source(source), tmp_path / "out", workers=1)
    (corpus,) = open_corpora(tmp_path / "out")
    return corpus


@pytest.mark.parametrize(
    "payload",
    [
        '{"t":[{"a":1}],"t":[{"a":2}]}',
        '{"t": [{"a": 1}], "t": [{"a": 2}]}',
        '{"é":[],"t":[{"a":1}],"u":[],"t":[{"a":2}]}',
        '\n{ "t":[{"a":1}]\n,"t":[{"a":2}]}\n',
    ],
)
def test_a_small_table_named_twice_keeps_all_rows(tmp_path: Path, payload: str) -> None:
    corpus = materialized(tmp_path, record(payload=payload))
    assert [(table.rows_offered, table.rows_stored) for table in corpus.tables()] == [(2, 2)]


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        ({"payload": f'{{{PACKED}:1,"t":[{{"a":1,"b":{{"$hex":"zz"}}}}]}}'}, "payload_parse_error"),
        ({"payload": f'{{{PACKED}:1,"t":[{{"b":{{"$float":"abc"}}}}]}}'}, "payload_parse_error"),
        ({"payload": 5}, "payload_not_object"),
        ({"payload": '{"\\ud800":[{"a":1}]}'}, "unknown_table"),
        ({"ddl": 5}, "ddl_refused"),
    ],
)
def test_what_is_no_payload_is_a_reject(
    tmp_path: Path, fields: dict[str, Any], reasons: str
) -> None:
    counts = Counter(r.reason for r in materialized(tmp_path, record(**fields)).rejects())
    assert counts[reasons] == 1


@pytest.mark.parametrize("number", ["9" * 6000, "1e999", "-1e999"])
def test_a_number_past_every_type_is_its_digits(tmp_path: Path, number: str) -> None:
    corpus = materialized(tmp_path, record().replace('"id": "1"', f'"id": {number}'))
    assert [q.question_id for q in corpus.questions()] == [number]


def test_text_that_is_not_utf8_is_shown_with_replacements(tmp_path: Path) -> None:
    content = record(question="caf\u00e9?").replace("\\u00e9", "\u00e9").encode("latin-1")
    (question,) = materialized(tmp_path, content).questions()
    assert question.question == "caf\ufffd?"


def test_a_record_nested_too_deeply_is_a_sentence(tmp_path: Path) -> None:
    deep = record().replace('"id": "1"', '"id": ' + "[" * 100_000 + "]" * 100_000)
    with pytest.raises(SourceError, match="line 1"):
        materialized(tmp_path, deep)


@pytest.mark.parametrize("chunk", [40, 41, 43, 45, 46, 47, 49, 77, 4096])
@pytest.mark.parametrize("lines", [False, True])
def test_a_lone_surrogate_is_replaced_wherever_a_chunk_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, lines: bool
) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", chunk)
    texts = ["x\ud800y", "\U0001f600", "\\ud800", "\udc00\ud83d", "\U0001f600\ud83d", "\\\ud800"]
    records = [{"a": text} for text in texts * 3]
    file = tmp_path / "records.json"
    file.write_text("\n".join(map(json.dumps, records)) if lines else json.dumps(records))
    expected = [t.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for t in texts]
    assert [found["a"] for found in iter_json(file, dict)] == expected * 3


def damage(file: Path) -> None:
    """Overwrites pages in the middle of a Parquet file, whose footer stays readable."""
    content = bytearray(file.read_bytes())
    content[100 : len(content) // 2] = b"\x07" * (len(content) // 2 - 100)
    file.write_bytes(content)


def test_a_damaged_payload_file_is_a_sentence(tmp_path: Path) -> None:
    ids = [str(n) for n in range(500)]
    columns = {"schema_id": ids, "full_schema": ["CREATE TABLE t(a)" + " " * n for n in range(500)]}
    pq.write_table(pa.table(columns), tmp_path / "train.parquet", compression="none")
    damage(tmp_path / "train.parquet")
    with pytest.raises(SourceError, match="damaged"):
        build_corpus(read_source(tmp_path), tmp_path / "out", workers=1)


def test_a_damaged_or_foreign_catalogue_is_a_sentence(tmp_path: Path) -> None:
    corpus = materialized(tmp_path, record())
    file = corpus.root / "questions.parquet"
    pq.write_table(pa.table({"corpus": [1], "question_id": [None]}), file)
    with pytest.raises(CorpusFolderError, match="not ours"):
        corpus.questions()
    pq.write_table(pa.table({"corpus": [str(n) for n in range(500)]}), file, compression="none")
    damage(file)
    with pytest.raises(CorpusFolderError, match="damaged"):
        corpus.questions()


def test_bytes_of_a_nested_payload_are_blobs_and_deeper_ones_cost_their_row(
    tmp_path: Path,
) -> None:
    rows = [
        {"a": 1, "b": b"\xff", "c": {"k": b"", "n": [1]}},
        {"a": 2, "b": b"", "c": None},
        {"a": 3, "b": None, "c": {"k": None, "n": [2]}},
    ]
    columns = {
        "schema_id": ["d"],
        "full_schema": ["CREATE TABLE t(a, b, c)"],
        "schema_content": [{"t": rows}],
    }
    pq.write_table(pa.table(columns), tmp_path / "train.parquet")
    build_corpus(read_source(tmp_path), tmp_path / "out", workers=1)
    (corpus,) = open_corpora(tmp_path / "out")
    connection = open_read_only(corpus.database_path("d"))
    found = connection.execute("SELECT a, b, c FROM t").fetchall()
    connection.close()
    assert found == [(2, b"", None), (3, None, '{"k": null, "n": [2]}')]
    (reject,) = corpus.rejects()
    assert (reject.kind, reject.index, reject.reason) == ("row", 0, "binary_in_json")


def test_nan_in_a_record_costs_one_question(tmp_path: Path) -> None:
    """Python writes NaN where pandas had nothing; JSON has no such token."""
    nan = float("nan")
    lines = [
        record(id=1, question=nan),
        record(id=2, sql=nan),
        record(id=3, evidence=nan, difficulty=float("inf")),
        record(id=4, payload={"t": [{"a": 1, "b": nan}, {"a": 2, "b": float("inf")}]}),
    ]
    corpus = materialized(tmp_path, "".join(lines))
    assert [(q.question_id, q.evidence) for q in corpus.questions()] == [("3", ""), ("4", "")]
    refused = {(r.question_id, r.reason) for r in corpus.rejects() if r.kind == "question"}
    assert refused == {("1", "no_phrasing"), ("2", "no_gold_sql")}


def test_nan_in_a_payload_kept_as_an_object_is_counted(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": float("nan")}, {"a": 2, "b": float("inf")}, {"a": 3, "b": "NaN"}]
    corpus = materialized(tmp_path, record(payload={"t": rows}))
    (row,) = corpus.databases()
    with Session.open_file(corpus.database_path(row.db_id)) as session:
        found = session.run("SELECT b FROM t ORDER BY a").rows
    assert found == ((None,), ("Inf",), ("NaN",))
    assert Counter(r.reason for r in corpus.rejects()) == {"nan_to_null": 1}


def test_a_device_is_no_corpus() -> None:
    with pytest.raises(CorpusFolderError, match="is no SQLite file"):
        open_any(Path("/dev/null"))
