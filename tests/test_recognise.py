"""Paths that are not one source: missing, one level too high, several in one, or our own."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.corpora.source import READERS, read_source
from envbuild.corpora.synthetic.shapes import write_shape
from envbuild.errors import OutputError, SourceError
from envbuild.materialize.corpus import build_corpus


def write_database(folder: Path) -> None:
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / f"{folder.name}.sqlite") as connection:
        connection.execute("CREATE TABLE t (a)")


def write_bird(root: Path, question_file: str = "dev.json") -> Path:
    write_database(root / "dev_databases" / "shop")
    question = {"question_id": 0, "db_id": "shop", "question": "How many?", "SQL": "SELECT 1"}
    (root / question_file).write_text(json.dumps([question]))
    return root


def write_spider(root: Path) -> Path:
    write_database(root / "database" / "pets")
    question = {"db_id": "pets", "question": "How many?", "query": "SELECT 1"}
    (root / "dev.json").write_text(json.dumps([question]))
    return root


@pytest.mark.parametrize("reader", ["auto", *(name for name in READERS if name != "hub")])
def test_a_missing_path_is_said_to_be_missing(reader: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file or folder"):
        read_source(tmp_path / "nope", reader)


def test_a_folder_above_several_sources_names_them(tmp_path: Path) -> None:
    write_bird(tmp_path / "bird")
    write_spider(tmp_path / "spider")
    write_shape("sqale", tmp_path / "dense", databases=1, seed=0)
    with pytest.raises(
        SourceError, match=r"bird/ \(BIRD\), spider/ \(Spider\), dense/ \(row payloads\)"
    ):
        read_source(tmp_path)
    shutil.rmtree(tmp_path / "spider")
    shutil.rmtree(tmp_path / "dense")
    assert read_source(tmp_path).kind == "bird"


def test_the_folder_above_one_source_says_which(tmp_path: Path) -> None:
    write_spider(tmp_path / "spider")
    with pytest.raises(SourceError, match=r"give .*/spider$"):
        read_source(tmp_path)


@pytest.mark.parametrize("other", ["sqale", "synsql"])
def test_two_sources_written_into_one_folder_are_refused(other: str, tmp_path: Path) -> None:
    write_shape(other, tmp_path, databases=1, seed=0)
    assert read_source(tmp_path).kind == other
    write_bird(tmp_path)
    with pytest.raises(SourceError, match=r"several sources: .*\(BIRD\)"):
        read_source(tmp_path)
    assert read_source(tmp_path, "bird").kind == "bird"  # the operator has said which


def test_a_second_synthetic_source_wants_a_folder_of_its_own(tmp_path: Path) -> None:
    write_shape("sqale", tmp_path, databases=1, seed=0)
    write_shape("sqale", tmp_path, databases=1, seed=0)
    with pytest.raises(OutputError, match="holds a source already, read as sqale"):
        write_shape("bird", tmp_path, databases=1, seed=0)


def test_bird_reads_the_questions_beside_its_databases_alone(tmp_path: Path) -> None:
    write_bird(tmp_path / "dev_20240627")
    write_spider(tmp_path / "spider")
    source = read_source(tmp_path, "bird")
    assert len(list(source.questions())) == 1
    assert "dev_20240627/dev.json (dev)" in source.said


def test_two_releases_of_bird_are_not_one(tmp_path: Path) -> None:
    write_bird(tmp_path / "dev_20240627")
    write_bird(tmp_path / "train", "train.json")
    assert len(list(read_source(tmp_path).questions())) == 2
    write_bird(tmp_path / "dev_20251106")
    with pytest.raises(SourceError, match=r"dev_20240627/dev.json, dev_20251106/dev.json"):
        read_source(tmp_path)


@pytest.mark.parametrize("reader", ["auto", "bird", "payload"])
def test_what_envbuild_made_is_no_source(reader: str, tmp_path: Path) -> None:
    source = read_source(write_bird(tmp_path / "bird"))
    build_corpus(source, tmp_path / "corpus", workers=1)
    with pytest.raises(SourceError, match="corpus/bird is a corpus that `envbuild materialize`"):
        read_source(tmp_path / "corpus" / "bird", reader)
    with pytest.raises(SourceError, match=r"holds corpora .* \(bird\)"):
        read_source(tmp_path / "corpus", reader)


def test_a_corpus_inside_its_source_does_not_hide_it(tmp_path: Path) -> None:
    write_shape("sqale", tmp_path / "sqale", databases=1, seed=0)
    before = read_source(tmp_path / "sqale")
    build_corpus(before, tmp_path / "sqale", workers=1)
    after = read_source(tmp_path / "sqale")
    assert (after.kind, after.files) == (before.kind, before.files)
    (tmp_path / "sqale" / "sqale" / "corpus.json").unlink()  # as a stopped materialize leaves it
    (tmp_path / "sqale" / "sqale" / ".parts").mkdir()
    assert read_source(tmp_path / "sqale").files == before.files


@pytest.mark.parametrize(("name", "said"), [("we ird/na'me", True), ("bird-dev", False)])
def test_a_name_that_no_folder_can_have_is_said(name: str, said: bool, tmp_path: Path) -> None:
    source, out = write_bird(tmp_path / "bird"), tmp_path / "out"
    arguments = ["materialize", str(source), "--name", name, "--out", str(out), "--quiet"]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0
    (made,) = out.iterdir()
    assert (f"the corpus is {made.name}" in found.stderr) is said
