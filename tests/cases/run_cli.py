"""Capability CLI: the command line as a subprocess, its exit code, its documents and its files."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.corpora.source import PARTS_FOLDER
from envbuild.io.episodes import EpisodeJournal
from envbuild.io.json_stream import iter_json
from envbuild.io.parquet import open_parquet
from envbuild.records.episode import EndedBy, Episode
from envbuild.sql.text.mask import mask_sql
from tests.cases.databases import environment, payload_text, write_manifest, write_source
from tests.cases.form import Case, Checks, as_list, close, contains, equals, for_each, value_of

NAMES = {"id": ("id", "question_id", "row_id")}
"""What a case's column is called here."""
LENGTHS = {"short": 20, "medium": 200, "long": 400}
"""Masked lengths of golds, one in each of the published buckets."""


@dataclass(kw_only=True)
class Outcome:
    """One command's end."""

    case: Case
    folder: Path
    code: int | None = None
    stdout: str = ""
    stderr: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """What --json printed."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found


def run(case: Case, folder: Path) -> None:
    """Runs the command that the case's input is for, and checks."""
    given = case.input
    outcome = Outcome(case=case, folder=folder)
    if "samples" in given:
        _evaluate(outcome)
    elif "n_records" in given or "kill_after_s" in given:
        pass  # the checks run the command, and kill it
    else:
        _materialize(outcome, _source(case, folder))
    CHECKS.check(outcome, case.expected)


def _source(case: Case, folder: Path) -> Path:
    given = case.input
    path = folder / "source.jsonl"
    if "file_bytes_hex" in given:
        path.write_bytes(bytes.fromhex(given["file_bytes_hex"]))
    elif "lines" in given:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in given["lines"]]
        path.write_text("".join(f"{line}\n" for line in lines))
    else:
        write_source(folder, map(_record, given["records"]), "source")
    return path


def _record(record: dict[str, Any]) -> dict[str, Any]:
    """A database record with its payload as text."""
    if "payload" in record:
        return {**record, "payload": payload_text(record["payload"])}
    return record


def _cli(outcome: Outcome, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "envbuild", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    outcome.code, outcome.stdout, outcome.stderr = done.returncode, done.stdout, done.stderr
    assert done.returncode != 70, done.stderr


def _materialize(outcome: Outcome, source: Path) -> None:
    out = str(outcome.folder / "corpus")
    _cli(outcome, "materialize", str(source), "--out", out, "--name", "cases", "--json")


def _check_summary(outcome: Outcome, expected: dict[str, Any]) -> None:
    assert outcome.document["format"] == "envbuild.materialize/1"
    found = {key: outcome.document.get(key) for key in expected}
    assert found == expected, outcome.document


def _check_n_rows(outcome: Outcome, expected: int) -> None:
    root = outcome.folder / "corpus" / "cases"
    for name in ("databases", "questions"):
        rows = open_parquet(root / f"{name}.parquet").metadata.num_rows
        assert rows == expected, name


def _check_schema(outcome: Outcome, expected: list[str]) -> None:
    root = outcome.folder / "corpus" / "cases"
    columns = open_parquet(root / "questions.parquet").schema_arrow.names
    for name in expected:
        assert set(NAMES.get(name, (name,))) & set(columns), columns


def _no_partial_files(outcome: Outcome) -> bool:
    """A killed run leaves nothing under a final name that a clean run would not have there."""
    killed, clean = _kill_and_compare(outcome)
    return killed.items() <= clean.items()


def _equals_clean_run(outcome: Outcome) -> bool:
    _, clean = _kill_and_compare(outcome)
    source, out = outcome.folder / "many.jsonl", outcome.folder / "killed"
    _cli(outcome, "materialize", str(source), "--out", str(out), "--name", "cases", "--quiet")
    assert outcome.code == 0, outcome.stderr
    return _final_files(out) == clean


def _kill_and_compare(outcome: Outcome) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the final files after a kill, and after an undisturbed run elsewhere."""
    given = outcome.case.input
    clean_out, out = outcome.folder / "clean", outcome.folder / "killed"
    source = outcome.folder / "many.jsonl"
    if not clean_out.exists():
        _write_many(outcome, int(given.get("n_records", 200)))
        arguments = ["materialize", str(source), "--name", "cases", "--quiet", "--out"]
        process = subprocess.Popen(
            [sys.executable, "-m", "envbuild", *arguments, str(out)],
            env=environment(ENVBUILD_KILLED=str(out)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(float(given.get("kill_after_s", 1)))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        while _lives(f"ENVBUILD_KILLED={out}"):  # workers in other sessions see their parent's end
            time.sleep(0.05)
        _cli(outcome, *arguments, str(clean_out))
        assert outcome.code == 0, outcome.stderr
    return _final_files(out), _final_files(clean_out)


def _lives(variable: str) -> bool:
    """Whether a process runs with this in its environment."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # another user's, or over by now
            if variable.encode() in environ.read_bytes():
                return True
    return False


def _write_many(outcome: Outcome, count: int) -> None:
    """As many databases as the case wants, each with rows and a question."""
    payload = {"t": [{"id": n, "s": f"text {n}" * 8} for n in range(20)]}
    records = [
        {
            "id": str(number),
            "db_id": f"d{number}",
            "ddl": "CREATE TABLE t(id INTEGER PRIMARY KEY, s TEXT);",
            "payload": json.dumps(payload),
            "question": f"How many, {number}?",
            "gold_sql": "SELECT count(*) FROM t",
        }
        for number in range(count)
    ]
    write_source(outcome.folder, map(_record, records), "many")


def _final_files(out: Path) -> dict[str, str]:
    """Digests of the files that a reader may take for finished."""
    found = {}
    for path in sorted(out.rglob("*")) if out.exists() else ():
        inside = path.relative_to(out)
        unfinished = path.name.endswith(".partial") or PARTS_FOLDER in inside.parts
        if path.is_file() and not unfinished:
            found[str(inside)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _evaluate(outcome: Outcome) -> None:
    """Episodes that are right or wrong in the sample's bucket, through `envbuild evaluate`."""
    samples = [_sample(one) for one in outcome.case.input["samples"]]
    questions = [
        {"id": str(n), "db_id": "d", "gold_sql": _gold(bucket, n)}
        for n, (bucket, _) in enumerate(samples)
    ]
    databases = {"d": "CREATE TABLE t(id INTEGER); INSERT INTO t VALUES(1),(2);"}
    episodes = outcome.folder / "episodes"
    if not questions:
        outcome.code = 0
        outcome.stdout = json.dumps({"evaluation": {"scores": []}})
        return
    manifest = write_manifest(outcome.folder, databases, questions)
    rows = {row.question_id: row for row in manifest.rows}
    journal = EpisodeJournal(episodes, configuration={"manifest": str(manifest.root)})
    for number, (_, correct) in enumerate(samples):
        row = rows[str(number)]
        sql = row.gold_sql if correct else "SELECT 'wrong'" if correct is False else ""
        journal.add(
            Episode(
                episode_id=f"{row.row_id}/0",
                row_id=row.row_id,
                sql=sql,
                ended_by=EndedBy.SUBMIT_SQL if sql else EndedBy.NO_ANSWER,
            )
        )
    journal.seal()
    _cli(
        outcome,
        *("evaluate", str(episodes), "--manifest", str(manifest.root), "--json"),
    )


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


def _check_accuracy(outcome: Outcome, expected: Any) -> None:
    """By bucket, null where no question of it was scored."""
    scores = {
        score["name"]: score["official"] for score in outcome.document["evaluation"]["scores"]
    }
    names = outcome.case.input.get("buckets") or list(LENGTHS)
    if not isinstance(expected, dict):
        wanted = for_each(expected, len(names))
        expected = dict(zip(names, wanted, strict=True))
    for name, value in expected.items():
        share = scores.get(name, {"correct": 0, "total": 0})
        found = share["correct"] / share["total"] if share["total"] else None
        assert close(found, value), f"{name}: {found}"


CHECKS = Checks(
    inputs="records file_bytes_hex lines n_records kill_after_s samples buckets",
    by_key={
        "exit_code": lambda o, expected: equals(lambda o: o.code in as_list(expected))(o, True),
        "exit_code_not": lambda o, bad: equals(lambda o: o.code in as_list(bad))(o, False),
        "stderr_contains": contains(lambda o: o.stderr),
        "stdout_contains": contains(lambda o: o.stdout),
        "summary": _check_summary,
        "n_records": equals(lambda o: len(list(iter_json(o.folder / "source.jsonl", dict)))),
        "n_rows": _check_n_rows,
        "schema_has": _check_schema,
        "no_partial_final_files": equals(_no_partial_files),
        "second_run_equals_clean_run": equals(_equals_clean_run),
        "accuracy": _check_accuracy,
    },
)
