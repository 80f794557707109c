"""`envbuild preflight` as a user meets it: exit codes, tables, files, the page."""

import json
import os
import re
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from envbuild.corpora.folder import CorpusFolder
from envbuild.io.parquet import read_records
from envbuild.preflight.row_counts import measure_corpus
from envbuild.records.preflight import Finding, Thresholds
from envbuild.records.signal import SignalScore
from tests.preflight.corpora import ask, build_corpus, build_sqlite
from tests.preflight.test_checks import SHOP
from tests.shared import envbuild, shared_data

FULL = "CREATE TABLE t(a); WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n LIMIT 50)"
FULL += "INSERT INTO t SELECT v FROM n;"


preflight = partial(envbuild, "preflight", XDG_CACHE_HOME="/nonexistent")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpora")
    questions = [
        ask("shop", "SELECT name FROM shop ORDER BY sold DESC LIMIT 2", "q1"),
        ask("shop", "SELECT nme FROM shop", "q2"),
        ask("<b>&", "SELECT max(a) FROM t", "q3", question="Höchster <a>?"),
    ]
    build_corpus(root / "small", {"shop": SHOP, "<b>&": SHOP.replace("shop", "t")}, questions)
    build_corpus(root / "full", {f"d{n}": FULL for n in range(9)}, [ask("d1", "SELECT a FROM t")])
    return root


def test_rows_per_table_come_first(corpora: Path) -> None:
    run = preflight(corpora, "--signal", "off")
    assert run.returncode == 1, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == "Rows per table"
    assert lines[1].split()[:5] == ["corpus", "dbs", "tables", "rows", "median"]
    assert lines[3].split() == ["full", "9", "9", "450", "50", "50", "50", "50", "0%", "0%"]
    assert lines[4].split()[:5] == ["small", "2", "4", "14", "3.5"]
    assert max(map(len, lines[: lines.index("Gold queries") + 5])) < 80
    assert "\x1b" not in run.stdout
    assert "gold_error" in run.stdout


def test_json_is_one_document_and_the_files_are_there(corpora: Path) -> None:
    run = preflight(corpora / "small", "--json", "--signal", "off")
    document = json.loads(run.stdout)
    assert document["format"] == "envbuild.preflight/1"
    assert document == json.loads((corpora / "small" / "preflight.json").read_text())
    findings = read_records(corpora / "small" / "findings.parquet", Finding)
    assert len(findings) == sum(f["findings"] for f in document["corpora"][0]["findings"])
    assert {f.code for f in findings if f.question_id == "q1"} == {"tie_sensitive_gold"}


def test_exit_codes(corpora: Path, tmp_path: Path) -> None:
    full = corpora / "full"
    assert preflight(full, "--signal", "off").returncode == 0
    strict = tmp_path / "strict.toml"
    strict.write_text("median_error = 51")
    assert preflight(full, "--signal", "off", "--thresholds", strict).returncode == 1
    strict.write_text("median_eror = 51")
    refused = preflight(full, "--thresholds", strict)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "median_error" in refused.stderr
    strict.write_text("[signal]\nquestion_eror = 0.5")
    refused = preflight(full, "--thresholds", strict)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "in the table [signal] question_error, question_warning, mean_error" in refused.stderr
    assert preflight(tmp_path / "nope", "--json").returncode == 2
    assert preflight(full, "--signal", "some").returncode == 2


def test_a_smaller_sample_never_replaces_a_larger_one_of_its_seed(tmp_path: Path) -> None:
    golds = [f"SELECT name FROM shop WHERE sold > {n} AND city = 1" for n in range(8)]
    questions = [ask("shop", sql, f"q{n}") for n, sql in enumerate(golds)]
    folder = build_corpus(tmp_path / "c", {"shop": SHOP}, questions)
    scores = tmp_path / "c" / "signal.parquet"

    def sampled(*arguments: object) -> tuple[int, str]:
        run = preflight(folder, "--json", *arguments)
        (corpus,) = json.loads(run.stdout)["corpora"]
        return corpus["signal"]["sampled"], run.stderr

    assert sampled("--signal", 8) == (8, "")
    stored = scores.read_bytes()
    assert sampled("--signal", 5) == (8, "")
    assert scores.read_bytes() == stored
    assert sampled()[1] == "", "the default asks for more than there are"
    found, said = sampled("--signal", 5, "--seed", 1)
    assert found == len(read_records(scores, SignalScore)) == 5
    assert "sample of 8 questions (seed 0, signal@1) was replaced by one of 5" in said


def test_a_plain_folder_keeps_nothing_of_ours(tmp_path: Path) -> None:
    build_sqlite(tmp_path / "plain" / "a" / "a.sqlite", FULL)
    assert preflight(tmp_path / "plain").returncode == 0
    assert sorted(p.name for p in (tmp_path / "plain").rglob("*")) == ["a", "a.sqlite"]
    assert preflight(tmp_path / "plain", "--out", tmp_path / "out").returncode == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "findings.parquet",
        "preflight.json",
    ]


def test_any_number_of_workers_gives_the_same_bytes(corpora: Path, tmp_path: Path) -> None:
    def files(out: Path) -> list[bytes]:
        return [(out / name).read_bytes() for name in ("findings.parquet", "preflight.json")]

    source = corpora / "small"
    options = ("--signal", "off", "--out")
    preflight(source, *options, tmp_path / "one", "--workers", 1, PYTHONHASHSEED="1")
    preflight(source, *options, tmp_path / "two", "--workers", 2, PYTHONHASHSEED="2")
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_the_page_needs_nothing_else(corpora: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    preflight(corpora, "--signal", "off", "--html", page)
    text = page.read_text()
    assert "<svg" in text
    assert "&lt;b&gt;&amp;" in text
    assert "<b>&" not in text.replace("<b>&lt;", "")
    assert not re.search(r"(?:src|href)=|@import|url\(|<script", text)


def test_an_unwritable_folder_is_a_sentence(corpora: Path) -> None:
    run = preflight(corpora / "full", "--signal", "off", "--out", "/proc/none", "--json")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("envbuild: cannot write")


def test_synsql_without_rows_is_refused() -> None:
    run = preflight(shared_data("synsql", "databases"), "--json")
    rows = json.loads(run.stdout)["corpora"][0]["rows"]
    assert (run.returncode, rows["databases"], rows["median"]) == (1, 193, 0)


def test_bird_has_rows() -> None:
    run = preflight(shared_data("bird", "dev_databases"), "--json")
    rows = json.loads(run.stdout)["corpora"][0]["rows"]
    assert (run.returncode, rows["tables"], rows["rows"]) == (0, 18, 53125)


@pytest.mark.parametrize(("split", "said"), [("dev", 1), ("train", 0)])
def test_an_empty_gold_that_is_a_warning_only_says_why(
    split: str, said: int, tmp_path: Path
) -> None:
    empty = ask("shop", "SELECT name FROM shop WHERE sold > 99", split=split)
    build_corpus(tmp_path / "shop", {"shop": SHOP}, [empty])
    run = preflight(tmp_path / "shop", "--signal", "off")
    assert "empty_gold" in run.stdout
    assert run.stdout.count("a warning only: questions for evaluation") == said


@pytest.mark.parametrize("same_size", [True, False])
def test_a_database_changed_since_the_catalogue_is_counted(tmp_path: Path, same_size: bool) -> None:
    script = "CREATE TABLE t (a); INSERT INTO t VALUES (1), (2), (3)"
    folder = CorpusFolder(build_corpus(tmp_path / "shop", {"shop": script}))
    assert measure_corpus(folder, Thresholds()).statistics.rows == 3
    path = folder.database_path("shop")
    size = path.stat().st_size
    os.utime(folder.root / "corpus.json", ns=(0, path.stat().st_mtime_ns))
    with closing(sqlite3.connect(path)) as connection:
        rows = [("x" * (1 if same_size else 900),)] * 40
        connection.executemany("INSERT INTO t VALUES (?)", rows)
        connection.commit()
    assert (path.stat().st_size == size) is same_size
    assert measure_corpus(folder, Thresholds()).statistics.rows == 43
