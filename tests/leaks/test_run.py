"""The command: both sides in every form, the ledger's bytes, exit codes and pages."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from envbuild.corpora.folder import CorpusFolder
from envbuild.io.parquet import parquet_metadata, read_records
from envbuild.leaks.run import Found, find_leaks, write_ledger
from envbuild.leaks.sides import between_splits, read_benchmarks, read_side
from envbuild.records.corpus import Question
from envbuild.records.leaks import Leak
from tests.leaks.planted_questions import Asked, benchmark_questions, reworded_questions
from tests.shared import envbuild, shared_data
from tests.small_corpus import write_corpus

SHOP = """
CREATE TABLE customer (id INTEGER PRIMARY KEY, full_name TEXT, city TEXT, joined_on TEXT);
CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer_id INT, article TEXT, paid_cents INT);
"""
ZOO = """
CREATE TABLE animal (id INTEGER PRIMARY KEY, species TEXT, keeper TEXT, enclosure_id INT);
CREATE TABLE enclosure (id INTEGER PRIMARY KEY, climate TEXT, square_metres REAL);
"""
QUERY = "SELECT full_name FROM customer WHERE city = 'Oslo' ORDER BY joined_on"
BIRDS = "SELECT species FROM animal WHERE keeper = 'Ann' ORDER BY enclosure_id"


def question(number: str, db_id: str, asked: str, sql: str, split: str = "train") -> Question:
    return Question(
        question_id=number, db_id=db_id, split=split, question=asked, gold_sql=sql, corpus="own"
    )


@pytest.fixture
def own(tmp_path: Path) -> CorpusFolder:
    """A corpus whose dev split asks about the shop, and whose training does so too."""
    return write_corpus(
        tmp_path / "own",
        {"shop": SHOP, "shop_2": SHOP.replace("customer", "Customers"), "zoo": ZOO},
        [
            question("1", "shop", "Who are the customers from Oslo, by date?", QUERY, "dev"),
            question("2", "shop_2", "Which towns are there?", "SELECT city FROM Customers"),
            question("3", "zoo", "Who are the customers from Oslo by date", "SELECT 1 FROM animal"),
            question("4", "zoo", "Anything?", QUERY.replace("Oslo", "Rome")),
            question("5", "zoo", "Which birds does Ann keep?", BIRDS),
        ],
    )


def kinds(found: Found) -> set[tuple[str, str, str, str]]:
    return {(x.kind, x.db_id, x.question_id, x.benchmark_question_id) for x in found.leaks}


def test_between_the_splits_of_a_corpus(own: CorpusFolder) -> None:
    training, benchmarks = between_splits(read_side(own.root))
    found = find_leaks(training, benchmarks, workers=1)
    assert kinds(found) == {
        ("schema", "shop_2", "", ""),
        ("question", "zoo", "3", "1"),
        ("sql", "zoo", "4", "1"),
    }
    (one,) = found.benchmarks
    assert (one.benchmark, one.databases, one.questions) == ("own:dev", 1, 1)
    assert (one.schemas_compared, one.questions_compared) == (2, 4)
    assert (one.leaked_databases, one.leaked_questions, one.leaked_queries, one.leaked) == (
        *(1, 1),
        *(1, 1),
    )


def test_published_files_need_no_databases() -> None:
    files = [shared_data("leaks", name) for name in ("bird_dev_tables.json", "bird_dev.json")]
    training = read_side(shared_data("leaks", "spider_tables.json"))
    (bird,) = find_leaks(training, read_benchmarks(files), workers=1).benchmarks
    assert (bird.benchmark, bird.databases, bird.questions) == ("bird_dev", 11, 1534)
    assert (bird.leaked_databases, bird.questions_of_leaked_databases) == (2, 303)
    assert [x.leak.benchmark_db_id for x in bird.examples] == ["formula_1", "european_football_2"]


def test_same_bytes_for_any_workers(tmp_path: Path) -> None:
    asked = [as_question(number, one) for number, one in enumerate(benchmark_questions())]
    training = [
        as_question(number, Asked("", "shop", one.question, one.of.sql))
        for number, one in enumerate(reworded_questions())
    ]
    bench = write_corpus(tmp_path / "bench", {"zoo": ZOO}, asked)
    corpus = write_corpus(tmp_path / "train", {"shop": SHOP}, [*training * 50])
    files = [tmp_path / "1.parquet", tmp_path / "3.parquet"]
    for workers, file in zip((1, 3), files, strict=True):
        found = find_leaks(read_side(corpus.root), [read_side(bench.root)], workers=workers)
        write_ledger(found, file, threshold=0.5)
    assert files[0].read_bytes() == files[1].read_bytes()
    leaks = read_records(files[0], Leak)
    assert leaks == sorted(leaks)
    assert {leak.kind for leak in leaks} == {"question", "sql", "skeleton"}
    assert pq.read_schema(files[0]).field("score").type == "double"


def as_question(number: int, one: Asked) -> Question:
    return question(str(number), one.db_id, one.question, one.sql)


def test_the_command(own: CorpusFolder, tmp_path: Path) -> None:
    done = envbuild("leaks", own.root, "--out", tmp_path / "out", "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert [leak["kind"] for leak in document["leaks"]] == ["question", "schema", "sql"]
    ledger = own.root / "leaks.parquet"
    assert ledger.read_bytes() == (tmp_path / "out" / "leaks.parquet").read_bytes()
    assert parquet_metadata(ledger)["benchmarks"] == '{"own:dev":[1,1]}'
    page = (tmp_path / "out" / "leaks.html").read_text()
    assert "Who are the customers from Oslo by date" in page
    assert "http" not in page
    shown = envbuild("leaks", own.root)
    assert "schema 1.00" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_nothing_found_is_0_and_says_so(own: CorpusFolder, tmp_path: Path) -> None:
    bench = write_corpus(tmp_path / "b", {"zoo": "CREATE TABLE t (a, b);"}, [])
    done = envbuild("leaks", own.root, "--against", bench.root)
    assert done.returncode == 0, done.stderr
    assert read_records(own.root / "leaks.parquet", Leak) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [("[]", "neither schemas"), ('[{"a": 1}]', "neither schemas"), ("{", "truncated")],
)
def test_what_is_no_benchmark_is_said(
    own: CorpusFolder, tmp_path: Path, content: str, said: str
) -> None:
    file = tmp_path / "dev.json"
    file.write_text(content)
    done = envbuild("leaks", own.root, "--against", file)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_without_splits_or_benchmarks_one_is_asked_for(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c", {"zoo": ZOO}, [question("1", "zoo", "Any?", BIRDS)])
    done = envbuild("leaks", corpus.root)
    assert (done.returncode, "--against" in done.stderr) == (2, True)
