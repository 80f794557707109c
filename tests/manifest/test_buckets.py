"""Edges that can be, buckets of whole corpora, and the command that cuts them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.corpora.folder import open_corpora
from envbuild.errors import CorpusFolderError, UnknownNameError, UsageError
from envbuild.io.parquet import open_parquet, parquet_metadata
from envbuild.manifest.buckets import (
    Edges,
    bucket_corpora,
    cut_corpus,
    parse_edges,
    parse_shares,
    read_edges,
    suggest_edges,
)
from envbuild.materialize.any_folder import open_any
from envbuild.records.corpus import Question
from envbuild.sql.connect import VERSIONS
from tests.shared import shared_data
from tests.small_corpus import real_corpus, write_corpus

GOLDS = [
    "SELECT name FROM t WHERE name = \"Joe\"",
    "SELECT name FROM t -- " + "x" * 300,
    "SELECT " + " + ".join(["a"] * 60) + " FROM t",
    "SELECT " + " + ".join(["a"] * 90) + " FROM t",
]  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    questions = [
        Question(question_id=f"q{n}", db_id="../x", question="?", gold_sql=sql, style=style)
        for n, sql in enumerate(GOLDS)
        for style in ("verbose", "casual")
    ]
    write_corpus(tmp_path / "shop", {"../x": "CREATE TABLE t(name, a)"}, questions)
    return tmp_path


def test_every_question_is_cut_once_and_kept(shop: Path) -> None:
    report = bucket_corpora(open_corpora(shop), edges="149,278", shares="0.5,0.25,0.25")
    (found,) = report.corpora
    assert [(band.name, band.questions) for band in found.bands] == [
        ("short", 2), ("medium", 1), ("long", 1),
    ]  # fmt: skip
    assert found.pool_size == 4
    rows = open_parquet(shop / "shop" / "buckets.parquet").read().to_pylist()
    assert [row["question_id"] for row in rows] == ["q0", "q1", "q2", "q3"]
    assert rows[0]["masked_sql"] == "SELECT name FROM t WHERE name = ?"
    assert all(row["masked_length"] == len(row["masked_sql"]) for row in rows)
    assert parquet_metadata(shop / "shop" / "buckets.parquet") == {
        "format": "envbuild.buckets/1", "edges": "149,278", "mask": "literals", **VERSIONS,
    }  # fmt: skip


def test_a_limit_looks_at_the_first_questions_and_writes_nothing(shop: Path) -> None:
    run = CliRunner().invoke(app, ["buckets", str(shop), "--limit", "3", "--quiet", "--json"])
    assert run.exit_code == 1  # no question of these falls into long
    (found,) = json.loads(run.stdout)["corpora"]
    assert (found["questions"], found["empty"]) == (3, ["long"])
    assert not (shop / "shop" / "buckets.parquet").exists()
    with pytest.raises(UsageError, match="--limit 0"):
        bucket_corpora(open_corpora(shop), limit=0)


def test_the_edges_are_read_back(shop: Path) -> None:
    from envbuild.corpora.folder import CorpusFolder

    corpus = CorpusFolder(shop / "shop")
    assert read_edges(corpus) is None
    cut_corpus(corpus, Edges((20, 40, 60)), mask="skeleton")
    assert read_edges(corpus) == (Edges((20, 40, 60)), "skeleton")


def test_the_command_shows_writes_and_exits_by_what_it_found(shop: Path) -> None:
    run = CliRunner().invoke(app, ["buckets", str(shop), "--shares", "0.20,0.25,0.55"])
    assert run.exit_code == 0, run.output
    assert "short" in run.stdout and "50.0%" in run.stdout and "largest pool" in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 80
    run = CliRunner().invoke(app, ["buckets", str(shop), "--edges", "5,6", "--json"])
    assert run.exit_code == 1
    document = json.loads(run.stdout)
    assert document["format"] == "envbuild.buckets/1"
    assert document["corpora"][0]["empty"] == ["short", "medium"]
    (shop / "shop" / "buckets.parquet").unlink()
    run = CliRunner().invoke(app, ["buckets", str(shop), "--suggest", "2", "--json"])
    assert run.exit_code == 0
    assert [band["questions"] for band in json.loads(run.stdout)["suggested"][0]["bands"]] == [2, 2]
    assert not (shop / "shop" / "buckets.parquet").exists()


def test_what_cannot_be_cut_is_said(shop: Path) -> None:
    with pytest.raises(UnknownNameError, match="literals, skeleton"):
        bucket_corpora(open_corpora(shop), mask="words")
    with pytest.raises(CorpusFolderError, match="no questions"):
        bucket_corpora(open_any(shared_data("bird") / "dev_databases"))


def test_synsql_shares_under_both_masks(tmp_path: Path) -> None:
    corpus = real_corpus(tmp_path, "synsql")
    shares = {
        mask: [round(band.share, 3) for band in cut_corpus(corpus, Edges(), mask=mask).bands]
        for mask in ("literals", "skeleton")
    }
    assert corpus.root.joinpath("buckets.parquet").is_file()
    assert shares == {"literals": [0.055, 0.155, 0.79], "skeleton": [0.245, 0.46, 0.295]}


def test_phrasings_far_apart_count_once_and_row_groups_stay_full(tmp_path: Path) -> None:
    many = [
        Question(
            question_id=f"q{n % 70_000}", db_id="d", question="?", gold_sql=f"SELECT {n % 70_000}"
        )
        for n in range(140_000)
    ]
    corpus = write_corpus(tmp_path / "c", {"d": "CREATE TABLE t(a)"}, many)
    assert cut_corpus(corpus, Edges((8, 100))).questions == 70_000
    file = open_parquet(corpus.root / "buckets.parquet")
    groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert groups == [65_536, 70_000 - 65_536]
    ids = file.read(columns=["question_id"]).column(0).to_pylist()
    assert ids == [f"q{n}" for n in range(70_000)]


def test_buckets_are_half_open_and_numbered_unless_three() -> None:
    lengths = (0, 148, 149, 277, 278, 9999)
    names = ["short", "short", "medium", "medium", "long", "long"]
    assert [Edges().bucket(length) for length in lengths] == names
    assert Edges((10,)).names == ("b0", "b1")
    assert [Edges((10, 20, 30)).bucket(n) for n in (9, 10, 29, 30)] == ["b0", "b1", "b2", "b3"]


def test_edges_and_shares_that_cannot_be() -> None:
    assert parse_edges("149,278") == Edges((149, 278))
    for text in ("", "a", "278,149", "149,149", "0,5", "1.5", "-3", "149,278,"):
        with pytest.raises(UsageError, match="149,278"):
            parse_edges(text)
    assert parse_shares("0.20,0.25,0.55", 3) == (0.2, 0.25, 0.55)
    for text in ("0.5,0.5", "0.5,0.5,0.5", "1.5,-0.5,0", "x", "nan,0.5,0.5", "inf,0,0", "", "1,0"):
        with pytest.raises(UsageError, match="add up to 1"):
            parse_shares(text, 3)
    for option in ("edges", "shares"):
        with pytest.raises(UsageError, match=f"--{option} takes"):
            bucket_corpora([], **{option: ""})


def test_suggested_edges_make_even_buckets() -> None:
    assert suggest_edges(range(1, 101), 4).values == (26, 51, 76)
    assert suggest_edges([5] * 90 + [6] * 5 + [7] * 5, 2).values == (6,)
    with pytest.raises(UsageError, match="2 different"):
        suggest_edges([5, 5, 6], 3)
    with pytest.raises(UsageError, match="at least 2"):
        suggest_edges([5, 6], 1)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(2, 6))
def test_suggested_buckets_are_never_empty(lengths: list[int], buckets: int) -> None:
    if len(set(lengths)) < buckets:
        return
    edges = suggest_edges(lengths, buckets)
    assert {edges.bucket(length) for length in lengths} == set(edges.names)
