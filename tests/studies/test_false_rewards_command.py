"""`envbuild false-rewards` on a benchmark small enough to check by hand."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from false_rewards.answers import database_paths, read_answers

from envbuild.corpora.source import read_source
from envbuild.errors import SourceError

GOLD = "SELECT name FROM pet WHERE age > 3"
PREDICTED = "SELECT name FROM pet WHERE age >= 3"


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    """One table; only row 5 tells the prediction from the gold, and small cuts may miss it."""
    folder = tmp_path / "pets" / "database" / "zoo"
    folder.mkdir(parents=True)
    connection = apsw.Connection(str(folder / "zoo.sqlite"))
    connection.execute(
        "CREATE TABLE pet (id INTEGER PRIMARY KEY, name TEXT, age INT);"
        "INSERT INTO pet VALUES (1,'a',9),(2,'b',8),(3,'c',1),(4,'d',7),(5,'e',3),(6,'f',2)"
    )
    connection.close()
    questions = [
        {"db_id": "zoo", "question": "old?", "query": GOLD},
        {"db_id": "zoo", "question": "how many?", "query": "SELECT count(*) FROM pet"},
    ]
    (tmp_path / "pets" / "dev.json").write_text(json.dumps(questions))
    predictions = [
        {"question_id": "0", "predicted_sql": PREDICTED},
        {"question_id": "1", "predicted_sql": "SELECT count(id) FROM pet"},
    ]
    lines = "\n".join(json.dumps(one) for one in predictions)
    (tmp_path / "predictions.jsonl").write_text(lines)
    return tmp_path / "pets"


def run(*arguments: str | Path, seed: str = "0") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "docs/studies/false_rewards/run.py", *map(str, arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(
        [*command, "--workers", "1"], capture_output=True, text=True, env=environment, check=False
    )


def test_false_rewards_are_counted_and_do_not_depend_on_hash_seeds(benchmark: Path) -> None:
    arguments = (benchmark, "--predictions", benchmark.parent / "predictions.jsonl", "--json")
    done = run(*arguments, seed="1")
    assert done.returncode == 0, done.stderr
    assert run(*arguments, seed="2").stdout == done.stdout
    document = json.loads(done.stdout)
    assert document["format"] == "envbuild.false-rewards/1"
    (study,) = document["benchmarks"]
    rows = {row["policy"]: row for row in study["rows"]}
    assert study["predictions"] == 2
    assert all(row["wrong"] <= 1 and row["right"] <= 1 for row in rows.values())
    assert (rows["0 rows"]["paid"], rows["full"]["paid"]) == (1, 0)
    assert rows["full"]["refused"] == 0


def test_several_systems_are_counted_together_and_apart(benchmark: Path) -> None:
    first = benchmark.parent / "predictions.jsonl"
    right = benchmark.parent / "right.sql"
    right.write_text(f"{GOLD}\nSELECT count(*) FROM pet\n")
    done = run(benchmark, "--predictions", first, "--predictions", right, "--json")
    (study,) = json.loads(done.stdout)["benchmarks"]
    systems = {row["system"]: row for row in study["systems"]}
    assert [row["wrong"] for row in systems.values()] == [1, 0]
    assert systems["right"]["right"] == 2 and systems["predictions"]["right"] == 1
    assert (study["questions"], study["predictions"]) == (2, 4)
    alone = json.loads(run(benchmark, "--predictions", first, "--json").stdout)["benchmarks"][0]
    assert [row["signal_low"] for row in alone["rows"]] == [
        row["signal_low"] for row in study["rows"]
    ]
    shown = run(benchmark, "--predictions", first, "--predictions", right, "--markdown").stdout
    assert "| right | - |" in shown


def test_files_are_taken_by_the_benchmark_they_are_for(benchmark: Path, tmp_path: Path) -> None:
    lines = tmp_path / "one_line.sql"
    lines.write_text("SELECT 1\n")
    done = run(benchmark, "--predictions", lines)
    assert done.returncode == 2 and "one_line.sql" in done.stderr
    twin = tmp_path / "other" / "one_line.sql"
    twin.parent.mkdir()
    twin.write_text("SELECT 1\n")
    done = run(benchmark, "--predictions", lines, "--predictions", twin)
    assert done.returncode == 2 and "different names" in done.stderr


def test_the_tables_fit_eighty_columns(benchmark: Path) -> None:
    done = run(benchmark, "--predictions", benchmark.parent / "predictions.jsonl")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "wrong paid" in done.stdout and "2 + 1 variant, guided" in done.stdout
    alone = run(benchmark, "--no-amplified", "--markdown")
    assert "| rows a table | signal | gold empty |" in alone.stdout
    assert "Only its lower end is shown" in alone.stdout and "4 independent" in alone.stdout
    assert re.search(r"^\| full \| \d\.\d\d \|", alone.stdout, re.MULTILINE)
    assert re.search(r"\bfull .* \d\.\d\d-\d\.\d\d ", done.stdout)
    assert "Its upper end leaves out" in done.stdout
    assert "wrong paid" not in alone.stdout


def test_predictions_that_carry_their_gold_need_no_ids(benchmark: Path, tmp_path: Path) -> None:
    """Ids of a subset do not match positions; a line's own gold and database do."""
    source = read_source(benchmark)
    paths = database_paths(source)
    file = tmp_path / "own.jsonl"
    line = {"id": 977, "db_id": "zoo", "gold_sql": GOLD, "predicted_sql": PREDICTED}
    other = {**line, "db_id": "elsewhere"}
    file.write_text(json.dumps(line) + "\n" + json.dumps(other))
    (answer,) = read_answers(source, paths, file)
    assert (answer.gold_sql, answer.predicted_sql) == (GOLD, PREDICTED)


def test_a_folder_without_databases_is_refused(tmp_path: Path) -> None:
    (tmp_path / "database").mkdir()
    (tmp_path / "dev.json").write_text(json.dumps([{"db_id": "a", "question": "?", "query": "S"}]))
    with pytest.raises(SourceError, match="no SQLite files"):
        database_paths(read_source(tmp_path))
