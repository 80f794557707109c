"""Capability manifest: records and results through Parquet, and questions through a manifest."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from envbuild.evaluate.predicted import judge_predictions, load_benchmark
from envbuild.evaluate.predictions import read_predictions
from envbuild.io.open_records import open_schema, read_open_records, write_open_records
from envbuild.io.parquet import open_parquet, parquet_metadata, read_records, write_records
from envbuild.manifest.build import build_manifest
from envbuild.manifest.layout import GOLD_SCHEMA, REJECTS_FILE, ROW_SCHEMA, ROWS_FILE
from envbuild.manifest.read import open_manifest
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.corpus import Question, Reject
from envbuild.records.manifest import GoldResult
from envbuild.sql.results import decode_rows, encode_rows
from tests.cases.databases import environment, write_corpus, write_database
from tests.cases.form import Case, Checks, as_list, assert_status, equals, plain, value_of

DDL = "CREATE TABLE t(id INTEGER); INSERT INTO t VALUES(1),(2);"


@dataclass(kw_only=True)
class Outcome:
    """What was written for the case."""

    case: Case
    folder: Path
    files: list[Path] = field(default_factory=list)
    """One Parquet file a shard."""
    read_back: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    rows: int = 0
    """Rows of the manifest, where one was built."""


def run(case: Case, folder: Path) -> None:
    """Writes the records (and builds a manifest where databases are named), and checks."""
    given = case.input
    outcome = Outcome(case=case, folder=folder)
    shards = given.get("shards") or ([given["records"]] if "records" in given else [])
    if shards:
        _write_shards(outcome, value_of(shards))
    if "known_db_ids" in given:
        _build(outcome)
    CHECKS.check(outcome, case.expected)


def _write_shards(outcome: Outcome, shards: list[list[dict[str, Any]]]) -> None:
    schema = open_schema((r for shard in shards for r in shard), known=ROW_SCHEMA)
    for number, shard in enumerate(shards):
        path = outcome.folder / f"shard-{number}.parquet"
        write_open_records(path, shard, schema)
        outcome.files.append(path)
        outcome.read_back += read_open_records(path)


def _build(outcome: Outcome) -> None:
    """The records as questions over the known databases, to a manifest."""
    given = outcome.case.input
    databases = {db_id: given.get("ddl", DDL) for db_id in given["known_db_ids"]}
    corpus = write_corpus(outcome.folder / "built", databases, given["records"])
    out = outcome.folder / "manifest"
    outcome.rejects = [r for r in corpus.rejects() if r.kind == "question"]
    if corpus.questions():
        build_manifest([corpus], out, settings=ManifestSettings(), workers=1)
        outcome.rows = len(open_manifest(out).rows)
        outcome.rejects += read_records(out / REJECTS_FILE, Reject)
        outcome.files.append(out / ROWS_FILE)
    assert outcome.rows + len(outcome.rejects) == len(given["records"])


def _has_one_schema(outcome: Outcome) -> bool:
    schemas = [open_parquet(path).schema_arrow for path in outcome.files]
    return all(schema.equals(schemas[0], check_metadata=True) for schema in schemas)


def _check_types(outcome: Outcome, expected: dict[str, str]) -> None:
    for path in outcome.files:
        schema = open_parquet(path).schema_arrow
        for name, wanted in expected.items():
            assert _type_text(schema.field(name).type) == wanted.replace(" ", ""), name


def _type_text(type_: pa.DataType) -> str:
    """`list<struct<role:string,content:string>>`: Arrow's own words without element names."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list<{_type_text(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{f.name}:{_type_text(f.type)}' for f in type_)}>"
    return str(type_).removeprefix("large_")


def _n_rows(outcome: Outcome) -> int:
    return sum(open_parquet(path).metadata.num_rows for path in outcome.files)


def _check_roundtrip(outcome: Outcome, expected: dict[str, list[Any]]) -> None:
    for name, values in expected.items():
        assert _deep([r[name] for r in outcome.read_back]) == _deep(value_of(values)), name


def _check_roundtrip_typed(outcome: Outcome, expected: dict[str, list[Any]]) -> None:
    """As records, and, where the values are rows of a result, as stored gold results too."""
    _check_roundtrip(outcome, expected)
    for name, values in expected.items():
        if name == "gold_rows":
            decoded = value_of(values)
            assert _deep(_through_gold(outcome.folder, decoded)) == _deep(decoded)


def _through_gold(folder: Path, results: list[Any]) -> list[Any]:
    path = folder / "gold.parquet"
    golds = [
        GoldResult(
            gold_id=str(number),
            outcome="ok",
            columns=(),
            ordered=False,
            digest="",
            result=encode_rows(tuple(map(tuple, rows))),
        )
        for number, rows in enumerate(results)
    ]
    write_records(path, golds, GOLD_SCHEMA)
    return [
        [list(row) for row in decode_rows(gold.result)] for gold in read_records(path, GoldResult)
    ]


def _deep(value: Any) -> Any:
    """The value with the type of every leaf."""
    if isinstance(value, dict):
        return {key: _deep(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_deep(inner) for inner in value]
    return (type(value).__name__, value)


def _check_distinct(outcome: Outcome, expected: list[str]) -> None:
    """`blob ff`, `text ff`, …: values that are all there, and none equal to another."""
    leaves = list(_leaves(outcome.read_back))
    wanted = [_described(text) for text in expected]
    assert all(_deep(one) in map(_deep, leaves) for one in wanted), leaves
    assert len({repr(_deep(one)) for one in wanted}) == len(expected)


def _described(text: str) -> Any:
    kind, _, rest = text.partition(" ")
    if kind.lower() == "null":
        return None
    readers: dict[str, Callable[[str], Any]] = {"blob": bytes.fromhex, "text": str}
    readers |= {"int": int, "integer": int, "float": float, "real": float}
    return readers[kind](rest)


def _leaves(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def _check_nesting(outcome: Outcome, expected: str) -> None:
    """No column is nested deeper than this type, and one is of it where it is nested at all."""
    wanted = expected.replace(" ", "")
    types = [_type_text(f.type) for path in outcome.files for f in open_parquet(path).schema_arrow]
    assert max(map(_depth, types)) <= _depth(wanted), types
    assert wanted in types, types


def _depth(type_: str) -> int:
    return len(re.findall("<", type_))


def _check_readable(outcome: Outcome, expected: list[str]) -> None:
    for reader in expected:
        for path in outcome.files:
            assert _READERS[reader](path) == open_parquet(path).metadata.num_rows, reader


def _by_datasets(path: Path) -> int:
    import datasets

    files, cache = str(path), str(path.parent / "hf")
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    return len(loaded)


_READERS: dict[str, Callable[[Path], int]] = {
    "pyarrow": lambda path: import_module("pyarrow.parquet").read_table(path).num_rows,
    "pandas": lambda path: len(import_module("pandas").read_parquet(path)),
    "polars": lambda path: import_module("polars").read_parquet(path).height,
    "duckdb": lambda path: len(import_module("duckdb").read_parquet(str(path))),
    "datasets": _by_datasets,
}


def _check_errors(outcome: Outcome, expected: list[list[str]]) -> None:
    found = sorted((r.question_id, plain(r.reason)) for r in outcome.rejects)
    assert found == sorted((str(id_), plain(reason)) for id_, reason in expected)


def _check_metadata(outcome: Outcome, expected: Any) -> None:
    """Nothing of the kind stands in the Parquet file's own metadata (a machine's path, pandas)."""
    for path in outcome.files:
        file = open_parquet(path)
        said = json.dumps(parquet_metadata(path)) + str(file.metadata.metadata)
        said += str(file.metadata.created_by)
        for text in as_list(expected):
            assert text.lower() not in said.lower(), said


def _judged(outcome: Outcome) -> tuple[int, int]:
    """(correct, total) of the predictions file, matched to the golds by id."""
    given = outcome.case.input
    path = outcome.folder / "case.sqlite"
    if not path.exists():
        write_database(path, given.get("ddl", DDL))
    golds = given["gold"]
    pairs = golds.items() if isinstance(golds, dict) else golds
    questions = [
        Question(question_id=str(i), db_id="case", question="?", gold_sql=sql) for i, sql in pairs
    ]
    file = outcome.folder / "predictions.jsonl"
    lines = [json.dumps({"id": str(i), "sql": sql}) for i, sql in given["pred_in_file_order"]]
    file.write_text("\n".join(lines) + "\n")
    found = read_predictions(file, questions)
    verdicts = list(
        judge_predictions(
            questions,
            found.sql,
            benchmark=load_benchmark("bird"),
            database_path=lambda db_id: path,
        )
    )
    scored = [v.official_correct for v in verdicts if v.official_correct is not None]
    return sum(scored), len(verdicts)


def _is_identical(outcome: Outcome) -> bool:
    """The command line's manifest of these files has the same bytes under every hash seed."""
    given = outcome.case.input
    source = outcome.folder / "source"
    source.mkdir()
    records = [_records_of(one) for one in _inputs(given["inputs"])]
    db_ids = sorted({str(r.get("db_id", "d")) for file in records for r in file})
    lines = [json.dumps({"db_id": d, "ddl": given.get("ddl", DDL)}) for d in db_ids]
    (source / "0-databases.jsonl").write_text("\n".join(lines) + "\n")
    for number, file in enumerate(records, 1):
        full = [{"db_id": "d", "question": "?", "gold_sql": "SELECT id FROM t", **r} for r in file]
        text = "".join(json.dumps(r) + "\n" for r in full)
        (source / f"{number}-questions.jsonl").write_text(text)
    found = {_manifest_under(str(seed), outcome.folder) for seed in given.get("hashseeds", [0, 1])}
    return len(found) == 1


def _inputs(inputs: Any) -> list[Any]:
    return list(inputs.values()) if isinstance(inputs, dict) else list(inputs)


def _records_of(file: Any) -> list[dict[str, Any]]:
    """A file's records: a list of them, or its text, or `{"records": […]}`."""
    if isinstance(file, str):
        return [json.loads(line) for line in file.splitlines() if line.strip()]
    if isinstance(file, dict):
        return list(file["records"]) if "records" in file else [file]
    return [json.loads(one) if isinstance(one, str) else one for one in file]


def _manifest_under(hashseed: str, folder: Path) -> bytes:
    out = folder / f"out-{hashseed}"
    for arguments in (
        ["materialize", str(folder / "source"), "--out", str(out / "corpus"), "--name", "cases"],
        ["manifest", str(out / "corpus"), "--out", str(out / "manifest")],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "envbuild", *arguments, "--workers", "1", "--quiet"],
            env=environment(PYTHONHASHSEED=hashseed),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode in (0, 1), done.stderr
    return (out / "manifest" / ROWS_FILE).read_bytes()


CHECKS = Checks(
    inputs="shards records known_db_ids ddl gold pred_in_file_order inputs hashseeds",
    by_key={
        "schemas_equal": equals(_has_one_schema),
        "type_of": _check_types,
        "n_rows": equals(_n_rows),
        "roundtrip": _check_roundtrip,
        "roundtrip_typed": _check_roundtrip_typed,
        "distinct": _check_distinct,
        "max_nesting": _check_nesting,
        "readable_by": _check_readable,
        "status": lambda o, expected: assert_status("error" if o.rejects else "ok", expected),
        "errors": _check_errors,
        "scored": equals(lambda o: o.rows),
        "forbidden_metadata_substring": _check_metadata,
        "correct": equals(lambda o: _judged(o)[0]),
        "total": equals(lambda o: _judged(o)[1]),
        "identical_rows_in_order": equals(_is_identical),
    },
)
