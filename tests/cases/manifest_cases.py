"""Cases about a manifest, from records through Parquet, and about the command line."""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pyarrow as pa

from envbuild.corpora.source import PARTS_FOLDER
from envbuild.evaluate.answers import read_predictions
from envbuild.evaluate.predicted import judge_predictions, load_benchmark
from envbuild.io.episodes import EpisodeJournal
from envbuild.io.json_stream import iter_json
from envbuild.io.parquet import (
    open_parquet,
    parquet_metadata,
    read_records,
    write_batches,
    write_records,
)
from envbuild.manifest.read import GOLD_SCHEMA, REJECTS_FILE, ROWS_FILE
from envbuild.records.corpus import Question, Reject
from envbuild.records.episode import EndedBy, Episode
from envbuild.records.execution import Outcome, QueryResult
from envbuild.records.manifest import GoldResult
from envbuild.sql.mask import mask_sql
from envbuild.sql.verdicts import decode_rows
from tests.cases.databases import (
    Run,
    build_rows,
    gold_of,
    leaves,
    python,
    write_corpus,
    write_database,
    write_manifest,
    write_source,
)
from tests.cases.form import (
    Checks,
    as_list,
    deep,
    holds,
    lacks,
    plain,
    same,
    same_bag,
    same_number,
    same_status,
    says,
    value_of,
)
from tests.shared import envbuild

DDL = "CREATE TABLE t(id INTEGER); INSERT INTO t VALUES(1),(2);"
LENGTHS = {"short": 20, "medium": 200, "long": 400}
"""Masked lengths of golds, one in each of the published buckets."""
_MANIFEST = """
import sys
from envbuild.cli.app import app

for arguments in (
    ["materialize", sys.argv[1], "--out", "corpus", "--name", "cases"],
    ["manifest", "corpus", "--out", "manifest"],
):
    code = app([*arguments, "--workers", "1", "--quiet"], standalone_mode=False)
    assert code in (None, 0, 1), code
"""


def manifest(run: Run) -> Checks:
    """Records and results through Parquet, and questions through a manifest."""
    given, folder = run.given, run.folder
    shards = value_of(given.get("shards") or ([given["records"]] if "records" in given else []))
    schema = _schema_of([record for shard in shards for record in shard])
    files = [folder / f"shard-{number}.parquet" for number in range(len(shards))]
    for file, shard in zip(files, shards, strict=True):
        columns = [[_stored(record.get(f.name), f) for record in shard] for f in schema]
        arrays = [pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)]
        write_batches(file, [pa.record_batch(arrays, schema=schema)], schema)
    read_back = [record for file in files for record in _read_back(file)]
    rejects: list[Reject] = []
    scored = 0
    if "known_db_ids" in given:  # the records are questions over these databases
        databases = dict.fromkeys(given["known_db_ids"], given.get("ddl", DDL))
        corpus = write_corpus(folder / "built", databases, given["records"])
        rejects = [r for r in corpus.rejects() if r.kind == "question"]
        if corpus.questions():
            scored = len(build_rows(corpus, folder / "manifest").rows)
            rejects += read_records(folder / "manifest" / REJECTS_FILE, Reject)
            files.append(folder / "manifest" / ROWS_FILE)
        same(scored + len(rejects), len(given["records"]))
    parquet = list(map(open_parquet, files))

    def type_of(expected: dict[str, str]) -> None:
        for file in parquet:
            found = {name: _type_text(file.schema_arrow.field(name).type) for name in expected}
            same(found, {name: wanted.replace(" ", "") for name, wanted in expected.items()})

    def roundtrip(expected: dict[str, list[Any]]) -> None:
        for name, values in expected.items():
            same(deep([record[name] for record in read_back]), deep(value_of(values)))

    def roundtrip_typed(expected: dict[str, list[Any]]) -> None:
        """As records, and, where the values are rows of a result, as stored gold results too."""
        roundtrip(expected)
        results = [tuple(map(tuple, rows)) for rows in value_of(expected.get("gold_rows", []))]
        golds = [gold_of(QueryResult(outcome=Outcome.OK, rows=rows), "") for rows in results]
        write_records(folder / "gold.parquet", golds, GOLD_SCHEMA)
        kept = read_records(folder / "gold.parquet", GoldResult)
        same(deep([decode_rows(gold.result) for gold in kept]), deep(results))

    def distinct(expected: list[str]) -> None:
        """`blob ff`, `text ff`, …: values that are all there, and none equal to another."""
        readers: dict[str, Callable[[str], Any]] = {
            **{"blob": bytes.fromhex, "text": str, "null": lambda text: None},
            **{"int": int, "integer": int, "float": float, "real": float},
        }
        pairs = [text.partition(" ") for text in expected]
        wanted = {deep(readers[kind.lower()](rest)) for kind, _, rest in pairs}
        assert wanted <= set(map(deep, leaves(read_back)))
        same(len(wanted), len(expected))

    def max_nesting(expected: str) -> None:
        """No column is nested deeper than this type, and one is of it."""
        wanted = expected.replace(" ", "")
        types = [_type_text(field.type) for file in parquet for field in file.schema_arrow]
        assert max(text.count("<") for text in types) <= wanted.count("<"), types
        assert wanted in types, types

    def readable_by(expected: list[str]) -> None:
        for reader in expected:
            for path, file in zip(files, parquet, strict=True):
                same(_READERS[reader](path), file.metadata.num_rows)

    def errors(expected: list[list[str]]) -> None:
        found = [[r.question_id, plain(r.reason)] for r in rejects]
        same_bag(found, [[str(id_), plain(reason)] for id_, reason in expected])

    def forbidden_metadata(expected: Any) -> None:
        """Nothing of the kind stands in the Parquet file's own metadata."""
        for path, file in zip(files, parquet, strict=True):
            own = file.metadata
            said = f"{parquet_metadata(path)} {own.metadata} {own.created_by}".lower()
            lacks(said, [text.lower() for text in as_list(expected)])

    @cache
    def judged() -> list[bool | None]:
        """The verdicts on the predictions file, matched to the golds by id."""
        path = write_database(folder / "case.sqlite", given.get("ddl", DDL))
        golds = given["gold"].items() if isinstance(given["gold"], dict) else given["gold"]
        questions = [
            Question(question_id=str(i), db_id="case", question="?", gold_sql=sql)
            for i, sql in golds
        ]
        lines = ({"id": str(i), "sql": sql} for i, sql in given["pred_in_file_order"])
        predictions = read_predictions(write_source(folder, lines, "predictions"), questions)
        verdicts = judge_predictions(
            questions,
            predictions.sql,
            benchmark=load_benchmark("bird"),
            database_path=lambda db_id: path,
        )
        return [verdict.official_correct for verdict in verdicts]

    def identical_rows(expected: bool) -> None:
        """The command line's manifest of these files has the same bytes under every hash seed."""
        source, inputs = folder / "source", given["inputs"]
        read = list(map(_records_of, inputs.values() if isinstance(inputs, dict) else inputs))
        questions = [[{"db_id": "d", **record} for record in records] for records in read]
        db_ids = sorted({str(q["db_id"]) for records in questions for q in records})
        ddl = given.get("ddl", DDL)
        write_source(source, ({"db_id": db_id, "ddl": ddl} for db_id in db_ids), "0-databases")
        usual = {"question": "?", "gold_sql": "SELECT id FROM t"}
        for number, records in enumerate(questions, 1):
            write_source(source, ({**usual, **q} for q in records), f"{number}-questions")
        found = set()
        for seed in map(str, given.get("hashseeds", [0, 1])):
            out = folder / f"out-{seed}"
            out.mkdir()
            python("-c", _MANIFEST, str(source), cwd=out, PYTHONHASHSEED=seed)
            found.add((out / "manifest" / ROWS_FILE).read_bytes())
        same(len(found) == 1, expected)

    equal = all(
        f.schema_arrow.equals(parquet[0].schema_arrow, check_metadata=True) for f in parquet
    )
    return {
        "schemas_equal": lambda x: same(equal, x),
        "type_of": type_of,
        "n_rows": lambda x: same(sum(file.metadata.num_rows for file in parquet), x),
        "roundtrip": roundtrip,
        "roundtrip_typed": roundtrip_typed,
        "distinct": distinct,
        "max_nesting": max_nesting,
        "readable_by": readable_by,
        "status": lambda x: same_status("error" if rejects else "ok", x),
        "errors": errors,
        "scored": lambda x: same(scored, x),
        "forbidden_metadata_substring": forbidden_metadata,
        "correct": lambda x: same(judged().count(True), x),
        "total": lambda x: same(len(judged()), x),
        "identical_rows_in_order": identical_rows,
    }


def _schema_of(records: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """One schema for records of no fixed type; without a value a column is text.

    What no Arrow type gives back as it was (objects whose keys differ, nested rows, integers past
    64 bits, blobs among text) becomes JSON text, in which a blob is `{"$hex": …}`.
    """
    fields = []
    for name in dict.fromkeys(name for record in records for name in record):
        values = [r[name] for r in records if r.get(name) is not None]
        try:
            array = pa.array(values)
            same(deep(array.to_pylist()), deep(values))
            type_ = array.type if values else pa.string()
            fields.append(pa.field(name, type_))
        except (AssertionError, pa.ArrowException, OverflowError, TypeError, ValueError):
            fields.append(pa.field(name, pa.string(), metadata={b"envbuild": b"json"}))
    return pa.schema(fields)


def _stored(value: Any, field: pa.Field) -> Any:
    if value is None or not field.metadata:
        return value
    return json.dumps(value, default=lambda blob: {"$hex": blob.hex()})


def _read_back(path: Path) -> list[dict[str, Any]]:
    table = open_parquet(path).read()
    json_text = {field.name for field in table.schema if field.metadata}
    return [
        {
            name: value_of(json.loads(value)) if value and name in json_text else value
            for name, value in record.items()
        }
        for record in table.to_pylist()
    ]


def _type_text(type_: pa.DataType) -> str:
    """`list<struct<role:string,content:string>>`: Arrow's own words without element names."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list<{_type_text(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{f.name}:{_type_text(f.type)}' for f in type_)}>"
    return str(type_).removeprefix("large_")


def _by_datasets(path: Path) -> int:
    import datasets

    files, folder = str(path), str(path.parent / "hf")
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=folder)
    return len(loaded)


_READERS: dict[str, Callable[[Path], int]] = {
    "pyarrow": lambda path: import_module("pyarrow.parquet").read_table(path).num_rows,
    "pandas": lambda path: len(import_module("pandas").read_parquet(path)),
    "polars": lambda path: import_module("polars").read_parquet(path).height,
    "duckdb": lambda path: len(import_module("duckdb").read_parquet(str(path))),
    "datasets": _by_datasets,
}


def _records_of(file: Any) -> list[dict[str, Any]]:
    """A file's records: a list of them, or its text, or `{"records": […]}`."""
    if isinstance(file, dict):
        file = file.get("records", [file])
    lines = filter(str.strip, file.splitlines()) if isinstance(file, str) else file
    return [json.loads(one) if isinstance(one, str) else one for one in lines]


def command_line(run: Run) -> Checks:
    """The command line as a subprocess, its exit code, its documents and its files."""
    given, folder = run.given, run.folder
    source, corpus = folder / "source.jsonl", folder / "corpus"
    if "file_bytes_hex" in given:
        source.write_bytes(bytes.fromhex(given["file_bytes_hex"]))
    elif "lines" in given:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in given["lines"]]
        source.write_text("".join(f"{line}\n" for line in lines))
    else:
        write_source(folder, given.get("records", []))
    done = CompletedProcess[str]([], 0, "{}", "")
    if given.get("samples"):
        done = _evaluate(folder, given["samples"])
    elif not {"n_records", "kill_after_s", "samples"} & set(given):
        done = envbuild("materialize", source, "--out", corpus, "--name", "cases", "--json")
    assert done.returncode != 70, done.stderr

    def table(name: str) -> Any:
        return open_parquet(corpus / "cases" / f"{name}.parquet")

    def summary(expected: dict[str, Any]) -> None:
        document = json.loads(done.stdout)
        same(document["format"], "envbuild.materialize/1")
        same({key: document.get(key) for key in expected}, expected)

    def schema_has(expected: list[str]) -> None:
        wanted = {"question_id" if name == "id" else name for name in expected}
        assert wanted <= set(table("questions").schema_arrow.names)

    def n_rows(expected: int) -> None:
        for name in ("databases", "questions"):
            same(table(name).metadata.num_rows, expected)

    @cache
    def runs() -> list[dict[str, str]]:
        """Digests of the final files: after a kill, of the next run, of one never disturbed."""
        write_source(folder, _many(int(given.get("n_records", 200))), "many")
        return _kill_and_repeat(folder, float(given.get("kill_after_s", 1)))

    def no_partial_files(expected: bool) -> None:
        """A killed run leaves nothing under a final name that a clean run would not have there."""
        killed, _, clean = runs()
        same(killed.items() <= clean.items(), expected)

    def accuracy(expected: Any) -> None:
        """By bucket, null where no question of it was scored."""
        found = json.loads(done.stdout).get("evaluation", {"scores": []})["scores"]
        scores = {score["name"]: score["official"] for score in found}
        if not isinstance(expected, dict):
            names = given.get("buckets") or list(LENGTHS)
            values = expected if isinstance(expected, list) else [expected] * len(names)
            expected = dict(zip(names, values, strict=True))
        for name, value in expected.items():
            share = scores.get(name, {"correct": 0, "total": 0})
            same_number(share["correct"] / share["total"] if share["total"] else None, value)

    return {
        "exit_code": lambda x: holds(done.returncode in as_list(x), done.stderr),
        "exit_code_not": lambda x: holds(done.returncode not in as_list(x), done.stderr),
        "stderr_contains": lambda x: says(done.stderr, x),
        "stdout_contains": lambda x: says(done.stdout, x),
        "summary": summary,
        "n_records": lambda x: same(len(list(iter_json(source, dict))), x),
        "n_rows": n_rows,
        "schema_has": schema_has,
        "no_partial_final_files": no_partial_files,
        "second_run_equals_clean_run": lambda x: same(runs()[1] == runs()[2], x),
        "accuracy": accuracy,
    }


def _many(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": str(number),
            "db_id": f"d{number}",
            "ddl": "CREATE TABLE t(id INTEGER PRIMARY KEY, s TEXT);",
            "payload": {"t": [{"id": n, "s": f"text {n}" * 8} for n in range(20)]},
            "question": f"How many, {number}?",
            "gold_sql": "SELECT count(*) FROM t",
        }
        for number in range(count)
    ]


def _kill_and_repeat(folder: Path, seconds: float) -> list[dict[str, str]]:
    many = [sys.executable, "-m", "envbuild", "materialize", folder / "many.jsonl"]
    many += ["--name", "cases", "--quiet", "--out"]
    kill = ["timeout", "--signal=KILL", str(seconds)]
    subprocess.run([*kill, *many, folder / "killed"], capture_output=True, check=False)
    time.sleep(0.2)  # until workers in other sessions have seen their parent's end
    found = [_final_files(folder / "killed")]
    for out in ("killed", "clean"):
        subprocess.run([*many, folder / out], capture_output=True, check=True)
        found.append(_final_files(folder / out))
    return found


def _evaluate(folder: Path, samples: Sequence[Any]) -> CompletedProcess[str]:
    """Episodes that are right or wrong in the sample's bucket, through `envbuild evaluate`."""
    read = list(map(_sample, samples))
    questions = [
        {"id": str(n), "db_id": "d", "gold_sql": _gold(bucket, n)}
        for n, (bucket, _) in enumerate(read)
    ]
    manifest = write_manifest(folder, {"d": DDL}, questions)
    rows = {row.question_id: row for row in manifest.rows}
    journal = EpisodeJournal(folder / "episodes", configuration={"manifest": str(manifest.root)})
    for number, (_, correct) in enumerate(read):
        row = rows[str(number)]
        sql = row.gold_sql if correct else "SELECT 'wrong'" if correct is False else ""
        ended_by = EndedBy.SUBMIT_SQL if sql else EndedBy.NO_ANSWER
        episode_id = f"{row.row_id}/0"
        journal.add(Episode(episode_id=episode_id, row_id=row.row_id, sql=sql, ended_by=ended_by))
    journal.seal()
    return envbuild("evaluate", folder / "episodes", "--manifest", manifest.root, "--json")


def _final_files(out: Path) -> dict[str, str]:
    """Digests of the files that a reader may take for finished."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
        and not path.name.endswith(".partial")
        and PARTS_FOLDER not in path.relative_to(out).parts
    }


def _sample(sample: Any) -> tuple[str, bool | None]:
    """(bucket, right?) of a sample: an object or a pair; right may be a score."""
    if not isinstance(sample, dict):
        bucket, correct = sample
    else:
        bucket = sample["bucket"]
        names = ("correct", "official", "match", "equal", "score", "ok", "right")
        correct = next((sample[name] for name in names if name in sample), None)
        if correct is None and "gold" in sample and "pred" in sample:
            correct = value_of(sample["gold"]) == value_of(sample["pred"])
    return bucket, None if correct is None else bool(correct)


def _gold(bucket: str, number: int) -> str:
    """A gold query that falls into the bucket."""
    assert bucket in LENGTHS, f"unknown bucket {bucket}; there are {', '.join(LENGTHS)}"
    start = f"SELECT id AS a{number}"
    sql = f"{start}{'_' * max(0, LENGTHS[bucket] - len(start) - 7)} FROM t"
    same(mask_sql(sql).text, sql)
    return sql
