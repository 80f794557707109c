"""Corpus folders, and plain folders of SQLite files read as one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from envbuild.corpora.benchmarks import iter_ready
from envbuild.corpora.folder import open_corpora
from envbuild.errors import CorpusFolderError
from envbuild.records.corpus import DatabaseRecord, Reject
from tests.shared import shared_data


def test_a_folder_of_sqlite_files_is_a_corpus() -> None:
    (corpus,) = open_corpora(shared_data("bird") / "dev_databases")
    assert corpus.name == "dev_databases"
    assert [row.db_id for row in corpus.databases()] == ["student_club", "superhero"]
    assert corpus.database_path("superhero").is_file()
    assert corpus.questions() == []
    with pytest.raises(CorpusFolderError, match="no database 'nope'"):
        corpus.database_path("nope")


def test_one_file_is_a_corpus() -> None:
    file = shared_data("large") / "pokedex" / "pokedex.sqlite"
    (corpus,) = open_corpora(file)
    assert corpus.database_path("pokedex") == file


def test_two_files_of_one_name_stay_two_databases(tmp_path: Path) -> None:
    for folder in ("train", "test"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "shop.sqlite").touch()
    (corpus,) = open_corpora(tmp_path)
    assert [row.db_id for row in corpus.databases()] == ["test/shop", "train/shop"]
    (tmp_path / "train" / "shop.db").touch()
    (tmp_path / "train" / "till.db").touch()
    (corpus,) = open_corpora(tmp_path)
    names = ["train/shop.db", "till", "test/shop", "train/shop.sqlite"]
    assert sorted(row.db_id for row in corpus.databases()) == sorted(names)
    files = {corpus.database_path(row.db_id) for row in corpus.databases()}
    assert len(files) == 4


def test_a_second_file_called_like_its_folder_is_a_reject(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    for ending in (".sqlite", ".db"):
        (tmp_path / "shop" / f"shop{ending}").touch()
    taken, refused = iter_ready(tmp_path)
    assert isinstance(taken, DatabaseRecord) and taken.sqlite_file.endswith("shop.sqlite")
    assert isinstance(refused, Reject) and refused.reason == "duplicate_db_id"
    assert refused.detail == "shop.sqlite was read, shop.db was not"


def test_what_is_no_corpus_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CorpusFolderError, match="no folder"):
        open_corpora(tmp_path / "nope")
    with pytest.raises(CorpusFolderError, match="holds no corpus"):
        open_corpora(tmp_path)
    (tmp_path / "shop" / ".parts").mkdir(parents=True)
    with pytest.raises(CorpusFolderError, match="not finished"):
        open_corpora(tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "corpus.json").write_text('{"format": "envbuild.corpus/0"}')
    with pytest.raises(CorpusFolderError, match=r"reads 'envbuild\.corpus/1'"):
        open_corpora(tmp_path / "old")


def test_one_sqlite_file_is_named_after_itself_and_another_file_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE singer (a)")
    (corpus,) = open_corpora(file)
    assert (corpus.name, [row.db_id for row in corpus.databases()]) == ("shop", ["shop"])
    for name, content in (("README.md", b"# shop"), ("broken.sqlite", b"\0" * 5000)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorpusFolderError, match=f"{name} is no SQLite file: give a corpus"):
            open_corpora(tmp_path / name)
