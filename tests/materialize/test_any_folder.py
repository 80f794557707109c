"""Commands that take a corpus take any folder of SQLite files, and leave it as it is."""

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.errors import CorpusFolderError
from envbuild.manifest.read import open_manifest
from envbuild.materialize.any_folder import open_any

runner = CliRunner()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENVBUILD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("shop", "zoo"):
        with sqlite3.connect(folder / f"{name}.db") as connection:
            connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
            connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"n{n}") for n in range(40)])
        connection.close()
    write_questions(folder, "SELECT COUNT(*) FROM t", "SELECT name FROM t WHERE id < 3")
    return folder


def write_questions(folder: Path, *golds: str) -> None:
    records = [
        {"database": name, "utterance": f"Question {n}?", "gold": sql}
        for n, (name, sql) in enumerate(zip(("shop", "zoo"), golds, strict=True))
    ]
    (folder / "q.json").write_text(json.dumps(records))


def listing(folder: Path) -> list[tuple[str, bytes]]:
    return sorted((f.name, f.read_bytes()) for f in folder.rglob("*") if f.is_file())


def test_preflight_runs_every_gold_of_a_folder(mine: Path, tmp_path: Path) -> None:
    write_questions(mine, "SELECT COUNT(*) FROM t", "SELECT nothing FROM t")
    before = listing(mine)
    done = runner.invoke(app, ["preflight", str(mine), "--json"])
    assert "matched 2 of 2 to 2 of 2 databases; not read: nothing" in done.stderr
    (corpus,) = json.loads(done.stdout)["corpora"]
    assert (corpus["gold"]["golds"], corpus["gold"]["error"]) == (2, 1)
    assert done.exit_code == 1
    assert listing(mine) == before


@pytest.mark.parametrize("command", ["buckets", "sample", "preflight"])
def test_a_folder_is_a_corpus_for_every_command(mine: Path, command: str) -> None:
    done = runner.invoke(app, [command, str(mine), "--json"])
    assert done.exit_code in (0, 1) and json.loads(done.stdout)["corpora"]


def test_three_commands_from_a_folder_to_a_scored_episode(mine: Path, tmp_path: Path) -> None:
    for command in (
        ["materialize", str(mine), "--out", str(tmp_path / "corpus")],
        ["manifest", str(tmp_path / "corpus"), "--out", str(tmp_path / "manifest")],
    ):
        assert runner.invoke(app, command).exit_code == 0
    played = runner.invoke(
        app,
        ["play", str(tmp_path / "manifest"), "--row", "mine/zoo/1", "--json"],
        input="sql SELECT name FROM t WHERE id < 3\nsubmit SELECT name FROM t WHERE id < 3\n",
    )
    assert json.loads(played.stdout)["reward"]["reward"] == 3.0


def test_a_manifest_outlives_an_edit_of_the_questions(mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "manifest"
    done = runner.invoke(app, ["manifest", str(mine), "--out", str(out)])
    assert done.exit_code == 0 and "makes a corpus that can be kept" in done.stderr
    write_questions(mine, "SELECT MAX(id) FROM t", "SELECT MIN(id) FROM t")
    (corpus,) = open_any(mine)
    assert next(q.gold_sql for q in corpus.questions()) == "SELECT MAX(id) FROM t"
    manifest = open_manifest(out)
    played = runner.invoke(
        app, ["play", str(out), "--row", manifest.row_ids[0], "--json"], input="tables\nquit\n"
    )
    assert played.exit_code == 0


def test_a_changed_database_is_read_anew(mine: Path) -> None:
    assert [row.rows for row in open_any(mine)[0].databases()] == [40, 40]
    with sqlite3.connect(mine / "zoo.db") as connection:
        connection.execute("DELETE FROM t WHERE id >= 30")
    connection.close()
    assert [row.rows for row in open_any(mine)[0].databases()] == [40, 30]


def test_one_file_is_a_corpus_named_after_itself(mine: Path) -> None:
    (corpus,) = open_any(mine / "shop.db")
    assert (corpus.name, [row.db_id for row in corpus.databases()]) == ("shop", ["shop"])
    (mine / "broken.sqlite").write_bytes(b"\0" * 5000)
    with pytest.raises(CorpusFolderError, match=r"broken\.sqlite is no SQLite file"):
        open_any(mine / "broken.sqlite")
    (mine / "truncated.sqlite").write_bytes((mine / "shop.db").read_bytes()[:1500])
    with pytest.raises(CorpusFolderError, match="can be read: not_a_database 1"):
        open_any(mine / "truncated.sqlite")


def test_what_cannot_be_a_corpus_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no SQLite")
    with pytest.raises(CorpusFolderError, match=r"notes\.txt is no SQLite file"):
        open_any(tmp_path / "notes.txt")
    with pytest.raises(CorpusFolderError, match="no layout that is known"):
        open_any(tmp_path)
    (tmp_path / "p.jsonl").write_text(json.dumps({"ddl": "CREATE TABLE t (a)", "payload": "{}"}))
    with pytest.raises(CorpusFolderError, match="holds row payloads: run `envbuild materialize"):
        open_any(tmp_path)
