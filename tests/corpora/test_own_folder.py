"""A folder of one's own: SQLite files anywhere, questions in whatever form and under any keys."""

import csv
import json
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.corpora.folder import open_corpora
from envbuild.corpora.source import read_source
from envbuild.errors import SourceError
from envbuild.records.corpus import Question

RECORDS = [
    {"db": "shop", "nl": "How many orders?", "sql": "SELECT COUNT(*) FROM orders"},
    {"db": "ZOO.db", "nl": "Which ids?", "sql": "SELECT id FROM orders", "hint": "all of them"},
]

runner = CliRunner()


def databases(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with sqlite3.connect(file) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
            connection.executemany("INSERT INTO orders VALUES (?)", [(n,) for n in range(9)])
        connection.close()
    return folder


def write_records(file: Path, records: list[dict[str, str]]) -> None:
    keys = list({key: None for record in records for key in record})
    if file.suffix == ".json":
        file.write_text(json.dumps(records))
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif file.suffix == ".csv":
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, keys)
            writer.writeheader()
            writer.writerows(records)
    else:
        pq.write_table(pa.Table.from_pylist([{k: r.get(k) for k in keys} for r in records]), file)


def questions_of(path: Path, **fields: str) -> list[Question]:
    offered = list(read_source(path, fields=fields).questions())
    assert all(isinstance(question, Question) for question in offered)
    return [question for question in offered if isinstance(question, Question)]


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".csv", ".parquet"])
def test_questions_are_read_in_every_form(tmp_path: Path, ending: str) -> None:
    folder = databases(tmp_path / "mine", "deep/er/shop.sqlite3", "zoo.db")
    write_records(folder / f"dev{ending}", RECORDS)
    (folder / "notes.txt").write_text("nothing")
    source = read_source(folder)
    assert source.kind == "folder"
    assert source.description == (
        f"read 2 questions from dev{ending} (db, nl, sql, hint → db_id, question, gold_sql, "
        "evidence), matched 2 of 2 to 2 of 2 databases; not read: notes.txt"
    )
    first, second = questions_of(folder)
    assert (first.db_id, first.question, first.question_id) == ("shop", "How many orders?", "0")
    assert (second.db_id, second.evidence) == ("zoo", "all of them")
    assert second.gold_sql == "SELECT id FROM orders"


def test_one_database_needs_no_key_for_it(tmp_path: Path) -> None:
    folder = databases(tmp_path, "shop.sqlite")
    write_records(folder / "q.csv", [{"question": "How many?", "query": "SELECT 1"}])
    assert [q.db_id for q in questions_of(folder)] == ["shop"]
    assert [q.db_id for q in questions_of(folder / "shop.sqlite")] == ["shop"]


def test_keys_that_no_table_knows_are_named(tmp_path: Path) -> None:
    folder = databases(tmp_path, "shop.sqlite")
    write_records(folder / "q.jsonl", [{"ask": "How many?", "target": "SELECT 1"}])
    with pytest.raises(SourceError, match="no file of questions has such a key"):
        read_source(folder, fields={"question": "asks", "sql": "target"})
    (found,) = questions_of(folder, question="ask", sql="target")
    assert (found.question, found.gold_sql) == ("How many?", "SELECT 1")
    with pytest.raises(SourceError, match="has no field 'answer'; there are db_id, question"):
        read_source(folder, fields={"answer": "target"})


def test_two_keys_for_one_thing_are_refused(tmp_path: Path) -> None:
    folder = databases(tmp_path, "shop.sqlite")
    write_records(
        folder / "q.json", [{"question": "How many?", "sql": "SELECT 1", "gold_sql": "SELECT 2"}]
    )
    with pytest.raises(SourceError, match="gold_sql and sql could both be the gold_sql"):
        read_source(folder)
    assert [q.gold_sql for q in questions_of(folder, sql="sql")] == ["SELECT 1"]


def test_a_parsed_query_beside_its_text_is_no_second_one(tmp_path: Path) -> None:
    folder = databases(tmp_path, "shop.sqlite")
    record = {"question": "How many?", "query": "SELECT 1", "sql": {"select": [1]}}
    (folder / "q.json").write_text(json.dumps([record]))
    assert [q.gold_sql for q in questions_of(folder)] == ["SELECT 1"]


def test_files_that_share_a_name_are_called_by_their_paths(tmp_path: Path) -> None:
    folder = databases(tmp_path, "a/shop.db", "b/shop.db", "b/shop.sqlite", "zoo.db")
    names = [record.db_id for record in read_source(folder).databases()]
    assert names == ["a/shop", "b/shop.db", "b/shop.sqlite", "zoo"]


def test_a_folder_with_nothing_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(SourceError, match=r"what is known: .*any folder of SQLite files"):
        read_source(tmp_path)


@pytest.mark.parametrize("place", ["database/shop.db", "my_databases/shop.db", "databases/x.db"])
def test_a_folder_that_only_looks_like_a_benchmark_is_ones_own(tmp_path: Path, place: str) -> None:
    folder = databases(tmp_path, place)
    write_records(folder / "questions.csv", [{"question": "How many?", "sql": "SELECT 1"}])
    assert len(questions_of(folder)) == 1


def test_materialize_says_what_it_read_and_leaves_the_folder_alone(tmp_path: Path) -> None:
    folder = databases(tmp_path / "mine", "shop.db", "zoo.db")
    write_records(folder / "q.csv", [*RECORDS, {"db": "farm", "nl": "?", "sql": "SELECT 1"}])
    before = sorted((file, file.stat().st_mtime_ns) for file in folder.iterdir())
    done = runner.invoke(app, ["materialize", str(folder), "--out", str(tmp_path / "corpus")])
    assert done.exit_code == 0
    assert "matched 2 of 3 to 2 of 2 databases" in done.stderr
    assert sorted((file, file.stat().st_mtime_ns) for file in folder.iterdir()) == before
    (corpus,) = open_corpora(tmp_path / "corpus")
    assert [q.db_id for q in corpus.questions()] == ["shop", "zoo"]
    assert [r.reason for r in corpus.rejects()] == ["unknown_db_id"]


def test_other_fields_are_another_corpus(tmp_path: Path) -> None:
    folder = databases(tmp_path / "mine", "shop.db")
    write_records(folder / "q.csv", [{"a": "How many?", "b": "How many rows?", "sql": "SELECT 1"}])
    run = ["materialize", str(folder), "--out", str(tmp_path / "corpus"), "--fields"]
    assert runner.invoke(app, [*run, "question=a"]).exit_code == 0
    again = runner.invoke(app, [*run, "question=b"])
    assert "--question ('a' then, 'b' now)" in str(again.exception)
    assert "--fields takes FIELD=KEY" in str(runner.invoke(app, [*run, "question"]).exception)
