"""A planted leak trains nothing: not the pool, no export, no adapter; and --leave-out says why."""

import json
from collections import Counter
from pathlib import Path

import pytest

from envbuild.cards.refresh import leaks_block
from envbuild.corpora.folder import CorpusFolder
from envbuild.manifest.read import open_manifest
from envbuild.train.pool import untrainable_rows
from envbuild.train.trainer_env import TrainerEnv
from tests.leaks.test_run import BIRDS, QUERY, SHOP, ZOO, question
from tests.shared import envbuild
from tests.small_corpus import write_corpus

LEAKED = {"train/shop_2/2": "leaked_schema", "train/zoo/3": "leaked_question"}
LEAKED["train/zoo/4"] = "leaked_sql"
ROWS = """
INSERT INTO animal VALUES (1, 'owl', 'Ann', 1), (2, 'eagle', 'Ann', 1), (3, 'carp', 'Bob', 2);
INSERT INTO enclosure VALUES (1, 'dry', 20.5), (2, 'wet', 3.5);
"""
CUSTOMERS = "INSERT INTO {} VALUES (1, 'A', 'Oslo', 'x'), (2, 'B', 'Rome', 'y');"


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusFolder:
    """Five training questions, three of which a benchmark has."""
    bench = write_corpus(
        tmp_path / "bench",
        {"shop": SHOP},
        [question("1", "shop", "Who are the customers from Oslo, by date?", QUERY)],
    )
    other = ZOO + ROWS + SHOP.partition(";")[0] + ";" + CUSTOMERS.format("customer")
    shop = SHOP.replace("customer", "Customers") + CUSTOMERS.format("Customers")
    found = write_corpus(
        tmp_path / "train",
        {"shop_2": shop, "zoo": other},
        [
            question("2", "shop_2", "Which towns are there?", "SELECT city FROM Customers"),
            question("3", "zoo", "Who are the customers from Oslo by date", BIRDS),
            question("4", "zoo", "Anything?", QUERY.replace("Oslo", "Rome")),
            question("5", "zoo", "Which birds does Ann keep?", BIRDS),
            question("6", "zoo", "How wide are dry places?", "SELECT square_metres FROM enclosure"),
        ],
    )
    done = envbuild("leaks", found.root, "--against", bench.root)
    assert done.returncode == 1, done.stderr
    return found


def test_a_leak_is_in_no_training_data(corpus: CorpusFolder, tmp_path: Path) -> None:
    out = tmp_path / "m"
    assert envbuild("manifest", corpus.root, "--out", out).returncode == 0
    manifest = open_manifest(out)
    assert untrainable_rows(manifest) == LEAKED
    assert TrainerEnv(out).splits["train"] == ["train/zoo/5", "train/zoo/6"]  # as adapters ask
    for layout in ("trl", "verl", "skyrl", "verifiers", "nemo", "datasets"):
        done = envbuild("export", out, "--to", layout, "--out", tmp_path / layout, "--json")
        assert done.returncode == 0, done.stderr
        text = b"".join(f.read_bytes() for f in (tmp_path / layout).rglob("*") if f.is_file())
        assert not any(row.encode() in text for row in LEAKED), layout
    pool = envbuild("pool", out, "--json")
    assert not any(row in pool.stdout for row in LEAKED)


def test_without_a_ledger_nothing_changes(corpus: CorpusFolder, tmp_path: Path) -> None:
    (corpus.root / "leaks.parquet").unlink()
    assert envbuild("manifest", corpus.root, "--out", tmp_path / "m").returncode == 0
    assert untrainable_rows(open_manifest(tmp_path / "m")) == {}
    done = envbuild("manifest", corpus.root, "--out", tmp_path / "n", "--leave-out", "leaks")
    assert (done.returncode, "run `envbuild leaks" in done.stderr) == (2, True)
    assert leaks_block(corpus) == "Not searched for leaks.\n"


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        ("leaks", {"leaked_schema": 1, "leaked_question": 1, "leaked_sql": 1}),
        ("leaked_schema", {"leaked_schema": 1}),
    ],
)
def test_leaks_are_left_out_with_their_reason(
    corpus: CorpusFolder, tmp_path: Path, given: str, reasons: dict[str, int]
) -> None:
    done = envbuild(
        "manifest", corpus.root, "--out", tmp_path / "m", "--leave-out", given, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert Counter(json.loads(done.stdout)["counts"]["rejects"]) == Counter(reasons)


def test_a_card_prints_what_was_found(corpus: CorpusFolder) -> None:
    assert "| bench | 1 | 1 | 1 | 1 | 1 |" in leaks_block(corpus)
