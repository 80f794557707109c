"""Cases about a manifest, from records through Parquet, and about the command line."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from envbuild.corpora.source import PARTS_FOLDER
from envbuild.evaluate.answers import read_predictions
from envbuild.evaluate.predicted import judge_predictions, load_benchmark
from envbuild.io.episodes import EpisodeJournal
from envbuild.io.json_stream import iter_json
from envbuild.io.parquet import open_parquet, parquet_metadata, read_records, write_records
from envbuild.manifest.build import build_manifest
from envbuild.manifest.read import GOLD_SCHEMA, REJECTS_FILE, ROW_SCHEMA, ROWS_FILE, open_manifest
from envbuild.manifest.settings import ManifestSettings
from envbuild.records.corpus import Question, Reject
from envbuild.records.episode import EndedBy, Episode
from envbuild.records.manifest import GoldResult
from envbuild.sql.mask import mask_sql
from envbuild.sql.verdicts import decode_rows, encode_rows
from tests.cases.databases import (
    environment,
    python,
    write_corpus,
    write_database,
    write_manifest,
    write_source,
)
from tests.cases.form import (
    Capability,
    as_list,
    assert_status,
    close,
    contains,
    deep,
    lacks,
    plain,
    same,
    value_of,
)
from tests.cases.open_records import open_schema, read_open_records, write_open_records

DDL = "CREATE TABLE t(id INTEGER); INSERT INTO t VALUES(1),(2);"
LENGTHS = {"short": 20, "medium": 200, "long": 400}
"""Masked lengths of golds, one in each of the published buckets."""


class Manifest(Capability):
    """Records and results through Parquet, and questions through a manifest."""

    inputs = "shards records known_db_ids ddl gold pred_in_file_order inputs hashseeds"

    def run(self) -> None:
        given = self.given
        self.files: list[Path] = []
        self.read_back: list[dict[str, Any]] = []
        self.rejects: list[Reject] = []
        self.built_rows = 0
        shards = value_of(given.get("shards") or ([given["records"]] if "records" in given else []))
        schema = open_schema((r for shard in shards for r in shard), known=ROW_SCHEMA)
        for number, shard in enumerate(shards):
            self.files.append(self.folder / f"shard-{number}.parquet")
            write_open_records(self.files[-1], shard, schema)
            self.read_back += read_open_records(self.files[-1])
        if "known_db_ids" in given:
            self._build()
        self.check(self.case.expected)

    def _build(self) -> None:
        """The records as questions over the known databases, to a manifest."""
        given = self.given
        databases = {db_id: given.get("ddl", DDL) for db_id in given["known_db_ids"]}
        corpus = write_corpus(self.folder / "built", databases, given["records"])
        out = self.folder / "manifest"
        self.rejects = [r for r in corpus.rejects() if r.kind == "question"]
        if corpus.questions():
            build_manifest([corpus], out, settings=ManifestSettings(), workers=1)
            self.built_rows = len(open_manifest(out).rows)
            self.rejects += read_records(out / REJECTS_FILE, Reject)
            self.files.append(out / ROWS_FILE)
        assert self.built_rows + len(self.rejects) == len(given["records"])

    def _schemas(self) -> list[pa.Schema]:
        return [open_parquet(path).schema_arrow for path in self.files]

    def found_schemas_equal(self) -> bool:
        first, *others = self._schemas()
        return all(schema.equals(first, check_metadata=True) for schema in others)

    def check_type_of(self, expected: dict[str, str]) -> None:
        for schema in self._schemas():
            found = {name: _type_text(schema.field(name).type) for name in expected}
            same(found, {name: wanted.replace(" ", "") for name, wanted in expected.items()})

    def found_n_rows(self) -> int:
        return sum(open_parquet(path).metadata.num_rows for path in self.files)

    def check_roundtrip(self, expected: dict[str, list[Any]]) -> None:
        for name, values in expected.items():
            same(deep([r[name] for r in self.read_back]), deep(value_of(values)))

    def check_roundtrip_typed(self, expected: dict[str, list[Any]]) -> None:
        """As records, and, where the values are rows of a result, as stored gold results too."""
        self.check_roundtrip(expected)
        results = value_of(expected.get("gold_rows", []))
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
        path = self.folder / "gold.parquet"
        write_records(path, golds, GOLD_SCHEMA)
        kept = [decode_rows(gold.result) for gold in read_records(path, GoldResult)]
        same(deep(kept), deep(results))

    def check_distinct(self, expected: list[str]) -> None:
        """`blob ff`, `text ff`, …: values that are all there, and none equal to another."""
        readers: dict[str, Callable[[str], Any]] = {
            **{"blob": bytes.fromhex, "text": str, "null": lambda text: None},
            **{"int": int, "integer": int, "float": float, "real": float},
        }
        pairs = [text.partition(" ") for text in expected]
        wanted = [deep(readers[kind.lower()](rest)) for kind, _, rest in pairs]
        leaves = [deep(leaf) for leaf in iter_leaves(self.read_back)]
        assert all(one in leaves for one in wanted), leaves
        same(len(set(map(repr, wanted))), len(expected))

    def check_max_nesting(self, expected: str) -> None:
        """No column is nested deeper than this type, and one is of it."""
        wanted = expected.replace(" ", "")
        types = [_type_text(field.type) for schema in self._schemas() for field in schema]
        assert max(text.count("<") for text in types) <= wanted.count("<"), types
        assert wanted in types, types

    def check_readable_by(self, expected: list[str]) -> None:
        for reader in expected:
            for path in self.files:
                same(_READERS[reader](path), open_parquet(path).metadata.num_rows)

    def check_status(self, expected: str) -> None:
        assert_status("error" if self.rejects else "ok", expected)

    def check_errors(self, expected: list[list[str]]) -> None:
        found = sorted((r.question_id, plain(r.reason)) for r in self.rejects)
        same(found, sorted((str(id_), plain(reason)) for id_, reason in expected))

    def found_scored(self) -> int:
        return self.built_rows

    def check_forbidden_metadata_substring(self, expected: Any) -> None:
        """Nothing of the kind stands in the Parquet file's own metadata."""
        for path in self.files:
            file = open_parquet(path).metadata
            said = f"{parquet_metadata(path)} {file.metadata} {file.created_by}".lower()
            lacks(said, [text.lower() for text in as_list(expected)])

    def _judged(self) -> list[bool | None]:
        """The verdicts on the predictions file, matched to the golds by id."""
        given, path = self.given, self.folder / "case.sqlite"
        if not path.exists():
            write_database(path, given.get("ddl", DDL))
        golds = given["gold"].items() if isinstance(given["gold"], dict) else given["gold"]
        questions = [
            Question(question_id=str(i), db_id="case", question="?", gold_sql=sql)
            for i, sql in golds
        ]
        file = self.folder / "predictions.jsonl"
        lines = [json.dumps({"id": str(i), "sql": sql}) for i, sql in given["pred_in_file_order"]]
        file.write_text("\n".join(lines) + "\n")
        judged = judge_predictions(
            questions,
            read_predictions(file, questions).sql,
            benchmark=load_benchmark("bird"),
            database_path=lambda db_id: path,
        )
        return [verdict.official_correct for verdict in judged]

    def found_correct(self) -> int:
        return sum(bool(correct) for correct in self._judged())

    def found_total(self) -> int:
        return len(self._judged())

    def found_identical_rows_in_order(self) -> bool:
        """The command line's manifest of these files has the same bytes under every hash seed."""
        given, source = self.given, self.folder / "source"
        inputs = given["inputs"]
        files = list(inputs.values() if isinstance(inputs, dict) else inputs)
        records = [_records_of(file) for file in files]
        db_ids = sorted({str(r.get("db_id", "d")) for file in records for r in file})
        ddl = given.get("ddl", DDL)
        write_source(source, ({"db_id": d, "ddl": ddl} for d in db_ids), "0-databases")
        for number, file in enumerate(records, 1):
            plain_one = {"db_id": "d", "question": "?", "gold_sql": "SELECT id FROM t"}
            write_source(source, ({**plain_one, **r} for r in file), f"{number}-questions")
        found = set()
        for hashseed in map(str, given.get("hashseeds", [0, 1])):
            out = self.folder / f"out-{hashseed}"
            corpus = str(out / "corpus")
            for arguments in (
                ["materialize", str(source), "--out", corpus, "--name", "cases"],
                ["manifest", corpus, "--out", str(out / "manifest")],
            ):
                options = ["--workers", "1", "--quiet"]
                done = python("-m", "envbuild", *arguments, *options, PYTHONHASHSEED=hashseed)
                assert done.returncode in (0, 1), done.stderr
            found.add((out / "manifest" / ROWS_FILE).read_bytes())
        return len(found) == 1


def _type_text(type_: pa.DataType) -> str:
    """`list<struct<role:string,content:string>>`: Arrow's own words without element names."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list<{_type_text(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{f.name}:{_type_text(f.type)}' for f in type_)}>"
    return str(type_).removeprefix("large_")


def iter_leaves(value: Any) -> Iterator[Any]:
    """The values inside objects and lists."""
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from iter_leaves(inner)
    else:
        yield value


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


def _records_of(file: Any) -> list[dict[str, Any]]:
    """A file's records: a list of them, or its text, or `{"records": […]}`."""
    if isinstance(file, dict):
        file = file.get("records", [file])
    lines = filter(str.strip, file.splitlines()) if isinstance(file, str) else file
    return [json.loads(one) if isinstance(one, str) else one for one in lines]


class CommandLine(Capability):
    """The command line as a subprocess, its exit code, its documents and its files."""

    inputs = "records file_bytes_hex lines n_records kill_after_s samples buckets"

    def run(self) -> None:
        given, source = self.given, self.folder / "source.jsonl"
        if "samples" in given:
            self._evaluate()
        elif not {"n_records", "kill_after_s"} & set(given):  # else the checks run and kill it
            if "file_bytes_hex" in given:
                source.write_bytes(bytes.fromhex(given["file_bytes_hex"]))
            elif "lines" in given:
                lines = [one if isinstance(one, str) else json.dumps(one) for one in given["lines"]]
                source.write_text("".join(f"{line}\n" for line in lines))
            else:
                write_source(self.folder, given["records"])
            self._cli("materialize", source, "--out", self.folder / "corpus", "--name", "cases")
        self.check(self.case.expected)

    def _cli(self, *arguments: Any, form: str = "--json") -> None:
        done = python("-m", "envbuild", *map(str, arguments), form)
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        assert done.returncode != 70, done.stderr

    def check_exit_code(self, expected: Any) -> None:
        assert self.code in as_list(expected), self.stderr

    def check_exit_code_not(self, bad: Any) -> None:
        assert self.code not in as_list(bad)

    def check_stderr_contains(self, expected: Any) -> None:
        contains(self.stderr, expected)

    def check_stdout_contains(self, expected: Any) -> None:
        contains(self.stdout, expected)

    def check_summary(self, expected: dict[str, Any]) -> None:
        document = json.loads(self.stdout)
        same(document["format"], "envbuild.materialize/1")
        same({key: document.get(key) for key in expected}, expected)

    def found_n_records(self) -> int:
        return len(list(iter_json(self.folder / "source.jsonl", dict)))

    def _table(self, name: str) -> Any:
        return open_parquet(self.folder / "corpus" / "cases" / f"{name}.parquet")

    def check_n_rows(self, expected: int) -> None:
        for name in ("databases", "questions"):
            same(self._table(name).metadata.num_rows, expected)

    def check_schema_has(self, expected: list[str]) -> None:
        columns = set(self._table("questions").schema_arrow.names)
        wanted = {"question_id" if name == "id" else name for name in expected}
        assert wanted <= columns, columns

    def found_no_partial_final_files(self) -> bool:
        """A killed run leaves nothing under a final name that a clean run would not have there."""
        killed, clean = self._kill_and_compare()
        return killed.items() <= clean.items()

    def found_second_run_equals_clean_run(self) -> bool:
        _, clean = self._kill_and_compare()
        self._materialize_many(self.folder / "killed")
        return _final_files(self.folder / "killed") == clean

    def _materialize_many(self, out: Path) -> None:
        self._cli(*self._many(), out, form="--quiet")
        assert self.code == 0, self.stderr

    def _many(self) -> list[str]:
        return ["materialize", str(self.folder / "many.jsonl"), "--name", "cases", "--out"]

    def _kill_and_compare(self) -> tuple[dict[str, str], dict[str, str]]:
        """Digests of the final files after a kill, and after an undisturbed run elsewhere."""
        clean, killed = self.folder / "clean", self.folder / "killed"
        if not clean.exists():
            rows = [{"id": n, "s": f"text {n}" * 8} for n in range(20)]
            records = [
                {
                    "id": str(number),
                    "db_id": f"d{number}",
                    "ddl": "CREATE TABLE t(id INTEGER PRIMARY KEY, s TEXT);",
                    "payload": {"t": rows},
                    "question": f"How many, {number}?",
                    "gold_sql": "SELECT count(*) FROM t",
                }
                for number in range(int(self.given.get("n_records", 200)))
            ]
            write_source(self.folder, records, "many")
            process = subprocess.Popen(
                [sys.executable, "-m", "envbuild", *self._many(), str(killed), "--quiet"],
                env=environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                process.wait(float(self.given.get("kill_after_s", 1)))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            time.sleep(0.2)  # until workers in other sessions have seen their parent's end
            self._materialize_many(clean)
        return _final_files(killed), _final_files(clean)

    def _evaluate(self) -> None:
        """Episodes that are right or wrong in the sample's bucket, through `envbuild evaluate`."""
        samples = [_sample(one) for one in self.given["samples"]]
        if not samples:
            self.code, self.stdout = 0, json.dumps({"evaluation": {"scores": []}})
            return
        questions = [
            {"id": str(n), "db_id": "d", "gold_sql": _gold(bucket, n)}
            for n, (bucket, _) in enumerate(samples)
        ]
        manifest = write_manifest(self.folder, {"d": DDL}, questions)
        rows = {row.question_id: row for row in manifest.rows}
        episodes = self.folder / "episodes"
        journal = EpisodeJournal(episodes, configuration={"manifest": str(manifest.root)})
        for number, (_, correct) in enumerate(samples):
            row = rows[str(number)]
            sql = row.gold_sql if correct else "SELECT 'wrong'" if correct is False else ""
            ended_by = EndedBy.SUBMIT_SQL if sql else EndedBy.NO_ANSWER
            journal.add(
                Episode(episode_id=f"{row.row_id}/0", row_id=row.row_id, sql=sql, ended_by=ended_by)
            )
        journal.seal()
        self._cli("evaluate", episodes, "--manifest", manifest.root)

    def check_accuracy(self, expected: Any) -> None:
        """By bucket, null where no question of it was scored."""
        found = json.loads(self.stdout)["evaluation"]["scores"]
        scores = {score["name"]: score["official"] for score in found}
        names = self.given.get("buckets") or list(LENGTHS)
        if not isinstance(expected, dict):
            values = expected if isinstance(expected, list) else [expected] * len(names)
            expected = dict(zip(names, values, strict=True))
        for name, value in expected.items():
            share = scores.get(name, {"correct": 0, "total": 0})
            accuracy = share["correct"] / share["total"] if share["total"] else None
            assert close(accuracy, value), f"{name}: {accuracy}"


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
    assert mask_sql(sql).text == sql
    return sql
