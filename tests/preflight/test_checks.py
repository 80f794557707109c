"""Every check finds what it is for, and nothing where there is nothing."""

from pathlib import Path

import apsw
import pytest

from envbuild.corpora.wording import is_placeholder
from envbuild.preflight.checks import DATABASE_CHECKS, GOLD_CHECKS, MEANINGS, SEVERITIES
from envbuild.records.corpus import Reject
from envbuild.records.execution import Limits
from envbuild.records.preflight import Severity
from tests.preflight.corpora import ask, build_corpus, checked

SHOP = """
CREATE TABLE city(id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE shop(id INTEGER PRIMARY KEY, name TEXT, city INT REFERENCES city(id), sold REAL);
INSERT INTO city VALUES (1, 'Bern'), (2, 'Köln');
INSERT INTO shop VALUES (1,'a',1,5),(2,'b',1,5),(3,'c',2,5),(4,'d',2,7),(5,'e',2,0.1);
"""

GOLDS: dict[str, tuple[str, ...]] = {
    "SELECT name FROM shop WHERE id = 4": (),
    "SELECT nme FROM shop": ("gold_error",),
    "SELECT 1; SELECT 2": ("gold_error",),
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT max(n) FROM r": (
        "gold_timeout",
    ),
    "DELETE FROM shop": ("gold_denied",),
    "SELECT name FROM shop WHERE sold > 99": ("empty_gold",),
    "SELECT count(*) FROM shop WHERE sold > 99": ("trivial_gold",),
    "SELECT sum(sold) FROM shop WHERE sold > 99": ("trivial_gold",),
    "SELECT count(*), sum(sold), max(sold) FROM shop WHERE sold > 99": ("trivial_gold",),
    "SELECT count(*), max(city) FROM shop WHERE city < 0.5 OR id = 5": (),
    "SELECT name FROM shop ORDER BY sold LIMIT 1, 1": ("tie_sensitive_gold",),
    "SELECT name FROM shop ORDER BY id LIMIT 1 OFFSET 1": (),
    "SELECT count(*) FROM shop": (),
    # ties
    "SELECT name FROM shop ORDER BY sold DESC LIMIT 1": (),
    "SELECT name FROM shop ORDER BY sold DESC LIMIT 2": ("tie_sensitive_gold",),
    "SELECT sold FROM shop ORDER BY sold DESC LIMIT 2": (),
    "SELECT name FROM shop LIMIT 2": ("tie_sensitive_gold", "scan_order_gold"),
    "SELECT name FROM shop WHERE city = (SELECT city FROM shop ORDER BY sold LIMIT 1 OFFSET 1)": (
        "tie_sensitive_gold",
    ),
    "SELECT city, count(*) FROM shop GROUP BY city ORDER BY count(*) DESC LIMIT 1": (),
    "SELECT sold FROM shop GROUP BY sold ORDER BY max(sold) - sold LIMIT 1": (
        "tie_sensitive_gold",
    ),
    "SELECT name, rank() OVER (ORDER BY sold) AS r FROM shop ORDER BY r LIMIT 2": (
        "tie_sensitive_gold",
    ),
    "SELECT name FROM shop UNION SELECT name FROM city LIMIT 3": ("tie_sensitive_gold",),
    "SELECT name FROM shop UNION SELECT name FROM city ORDER BY 1 LIMIT 3": (),
    "SELECT name FROM shop ORDER BY sold": (),
    # ties inside windows
    "SELECT name, row_number() OVER (ORDER BY sold) FROM shop": ("tie_sensitive_gold",),
    "SELECT name, row_number() OVER () FROM shop": ("tie_sensitive_gold", "scan_order_gold"),
    "SELECT name, rank() OVER (ORDER BY sold), dense_rank() OVER (ORDER BY sold) FROM shop": (),
    "SELECT name, lag(id, 1) OVER w, rank() OVER v FROM shop WINDOW w AS (ORDER BY sold), "
    "v AS (w)": ("tie_sensitive_gold",),
    "SELECT id, first_value(name) FILTER (WHERE id > 0) OVER (ORDER BY sold) FROM shop": (
        "gold_error",
    ),
    "SELECT id, last_value(name) OVER (ORDER BY sold) FROM shop": ("scan_order_gold",),
    "SELECT name FROM (SELECT name, row_number() OVER (PARTITION BY city ORDER BY sold DESC) AS n "
    "FROM shop) WHERE n = 1": ("tie_sensitive_gold",),
    "SELECT sold, row_number() OVER (ORDER BY count(*) = 9) FROM shop GROUP BY sold": (
        "tie_sensitive_gold",
    ),
    "SELECT a.n FROM (SELECT id, lead(id) OVER (ORDER BY sold) AS n FROM shop) AS a WHERE a.id = 1 "
    "ORDER BY a.n LIMIT 1": ("tie_sensitive_gold",),
    # scan order
    "SELECT city, group_concat(name) FROM shop GROUP BY city": ("scan_order_gold",),
    "SELECT group_concat(name) FROM (SELECT name FROM shop ORDER BY name DESC)": (),
    "SELECT group_concat(name ORDER BY sold) FROM shop": ("scan_order_gold",),
    "SELECT city, json_group_array(name) FROM shop GROUP BY city": ("scan_order_gold",),
    "SELECT name FROM city WHERE id = (SELECT city FROM shop ORDER BY sold = 5 DESC)": (
        "scan_order_gold",
    ),
    "SELECT group_concat(name ORDER BY id) FROM shop": (),
    # clock
    "SELECT count(*) FROM shop WHERE date('now') > '2010-01-01'": ("clock_gold",),
    "SELECT name FROM shop WHERE CURRENT_TIMESTAMP > '2010'": ("clock_gold",),
    "SELECT count(*) FROM shop WHERE date('2020-01-01') > '2010-01-01'": (),
    # chance
    "SELECT name FROM shop ORDER BY random() LIMIT 1": ("random_gold",),
    "SELECT name FROM shop ORDER BY random()": (),
    # bare columns
    "SELECT name, count(*) FROM shop GROUP BY city": ("bare_group_column",),
    "SELECT upper(T1.name), count(*) FROM shop AS T1 GROUP BY T1.id": (),
    "SELECT T2.name, count(*) FROM shop T1 JOIN city T2 ON T1.city = T2.id GROUP BY T2.id": (),
    "SELECT name, max(id) FROM shop GROUP BY city": (),
    "SELECT count(*) AS n, 'x' FROM shop GROUP BY city HAVING n > 2 ORDER BY n": (),
    "SELECT upper(name) AS u, count(*) FROM shop GROUP BY u": (),
    "WITH g AS (SELECT name, count(*) AS n FROM shop GROUP BY city) SELECT name FROM g": (
        "bare_group_column",
    ),
    "SELECT city, count(*) FILTER (WHERE name > 'b') FROM shop GROUP BY city": (),
    "SELECT sum(count(*)) OVER (ORDER BY name) FROM shop GROUP BY id": (),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    root = build_corpus(
        tmp_path_factory.mktemp("c") / "shop", {"shop": SHOP}, [ask("shop", g) for g in GOLDS]
    )
    findings = checked(root).findings
    order = list(SEVERITIES)
    codes: dict[str, list[str]] = {}
    for finding in findings:
        if finding.question_id and finding.code != "duplicate_questions":
            codes.setdefault(finding.question_id, []).append(finding.code)
    return {gold: tuple(sorted(found, key=order.index)) for gold, found in codes.items()}


@pytest.mark.parametrize("gold", GOLDS)
def test_gold_findings(gold: str, found: dict[str, tuple[str, ...]]) -> None:
    assert found.get(gold, ()) == GOLDS[gold]


def test_a_phrasing_in_a_training_split_makes_an_empty_gold_an_error(tmp_path: Path) -> None:
    gold = "SELECT name FROM shop WHERE sold > 99"
    questions = [
        ask("shop", gold, "a", split="train", style="verbose"),
        ask("shop", gold, "a", split="test", style="casual"),
        ask("shop", gold, "b", split="test"),
    ]
    root = build_corpus(tmp_path / "shop", {"shop": SHOP}, questions)
    report = checked(root).report
    found = {f.severity: f.examples for f in report.findings if f.code == "empty_gold"}
    assert [e.question_id for e in found[Severity.ERROR]] == ["a"]
    assert [e.question_id for e in found[Severity.WARNING]] == ["b"]


def test_a_gold_that_does_not_end_is_said_with_its_limits(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT {} FROM r"
    golds = [ask("shop", endless.format(what)) for what in ("max(n)", "n")]
    root = build_corpus(tmp_path / "shop", {"shop": SHOP}, golds)
    findings = checked(root, Limits(vm_steps=1_000_000, rows=1_000)).findings
    said = {f.code: f.message for f in findings if f.question_id}
    steps = "the query ran out of its step budget; it may use 1,000,000 steps"
    assert said["gold_timeout"].startswith(steps)
    assert said["gold_truncated"].startswith("the gold result goes on after 1,000 rows; it may")


def test_codes_are_the_checks_names() -> None:
    names = [check.__name__ for check in (*DATABASE_CHECKS, *GOLD_CHECKS)]
    assert len(set(names)) == len(names)
    assert set(names) <= set(SEVERITIES)
    assert all(MEANINGS[code] for code in SEVERITIES)


def test_what_was_lost_on_the_way_in_is_said(tmp_path: Path) -> None:
    databases = {
        "orphans": "CREATE TABLE p(id INTEGER PRIMARY KEY, x);CREATE TABLE c(a REFERENCES p(id),"
        "b REFERENCES gone(id), d REFERENCES p(x)); INSERT INTO p VALUES (1, 1);"
        "INSERT INTO c VALUES (7, 1, 1), (1, NULL, 1)",
        "undecodable": "CREATE TABLE t(s TEXT); INSERT INTO t VALUES (CAST(x'ff' AS TEXT))",
        "bare": "CREATE TABLE t(a); CREATE TABLE u(a)",
    }
    rejects = [
        Reject(db_id="bare", kind="statement", reason="syntax_error", detail="CREATE TABEL"),
        Reject(db_id="bare", kind="statement", reason="transpiled", detail="CREATE TABLE t"),
        Reject(db_id="bare", kind="row", table="t", reason="UNIQUE", detail="1"),
        Reject(db_id="bare", kind="row", table="t", reason="UNIQUE", detail="2"),
        Reject(db_id="lost", kind="database", reason="payload_parse_error", detail="{"),
    ]
    root = build_corpus(tmp_path / "mixed", databases, rejects=rejects)
    (tmp_path / "mixed/databases/bare/bare.sqlite").write_bytes(b"no database at all" * 100)
    report = checked(root).report
    counts = {(f.code, f.severity.value): (f.findings, f.count) for f in report.findings}
    assert counts == {
        ("few_rows", "error"): (1, 3),
        ("database_refused", "error"): (1, 1),
        ("unreadable_database", "error"): (1, 1),
        ("ddl_refused", "error"): (1, 1),
        ("ddl_refused", "note"): (1, 1),
        ("rows_refused", "warning"): (1, 2),
        ("missing_parents", "warning"): (1, 1),
        ("fk_mismatch", "warning"): (1, 1),
        ("fk_orphans", "warning"): (1, 1),
        ("undecodable_text", "warning"): (1, 1),
    }
    assert report.rows.databases == 2


def test_questions_asked_twice_and_placeholders(tmp_path: Path) -> None:
    questions = [
        ask("shop", "SELECT 5", "a", question="How many shops?"),
        ask("shop", "SELECT 6", "b", question="how many  shops"),
        ask("shop", "SELECT 5", "c", question="Which city?", style="casual"),
        ask("shop", "SELECT 5", "c", question="...", style="verbose"),
        ask("shop", "SELECT 7", "d", question="Which town?"),
        ask("shop", "SELECT 7", "e", question="Which town?"),
    ]
    root = build_corpus(tmp_path / "shop", {"shop": SHOP}, questions)
    report = checked(root).report
    found = {(f.code, f.severity): f for f in report.findings}
    conflict = found["duplicate_questions", Severity.WARNING].examples[0]
    assert (conflict.question_id, "b, with other gold" in conflict.message) == ("a", True)
    assert found["duplicate_questions", Severity.NOTE].examples[0].question_id == "d"
    placeholder = found["placeholder_phrasing", Severity.WARNING].examples[0]
    assert (placeholder.question_id, placeholder.count) == ("c", 1)
    assert report.gold.golds == 3
    assert report.gold.questions == 6


def test_placeholders_ask_nothing() -> None:
    for text in ("", " … ", "...", "<string>", "**Moderate**", "N/A", "[question]"):
        assert is_placeholder(text), text
    for text in ("Why?", "List <b>all</b> shops", "**Moderate** question: how many?"):
        assert not is_placeholder(text), text


def test_stored_results_are_evidence(tmp_path: Path) -> None:
    right = '[["Bern", 10.0], ["Köln", 12.100000000001]]'
    sql = "SELECT c.name, sum(sold) FROM shop JOIN city c ON c.id = city GROUP BY 1"
    questions = [
        ask("shop", sql, "right", stored_result=right),
        ask("shop", sql + " ", "wrong", stored_result='[["Bern", 10.0]]'),
        ask("shop", sql + "  ", "text", stored_result='{"error": "x"}'),
    ]
    root = build_corpus(tmp_path / "shop", {"shop": SHOP}, questions)
    report = checked(root).report
    (differs,) = [f for f in report.findings if f.code == "stored_result_differs"]
    assert differs.severity is Severity.NOTE
    assert [example.question_id for example in differs.examples] == ["text", "wrong"]


def test_gold_tables_and_the_tables_called_relevant(tmp_path: Path) -> None:
    sql = "SELECT 1 FROM shop JOIN city ON city.id = shop.city"
    questions = [
        ask("shop", sql, "stated", relevant_tables=["City", "SHOP", "x"]),
        ask("shop", sql + " ", "missing", relevant_tables=["shop"]),
        ask("shop", sql + "  ", "silent"),
    ]
    root = build_corpus(tmp_path / "shop", {"shop": SHOP}, questions)
    report = checked(root).report
    (found,) = [f for f in report.findings if f.code == "gold_not_in_relevant_tables"]
    assert [(e.question_id, "reads city" in e.message) for e in found.examples] == [
        ("missing", True)
    ]


def test_a_damaged_page_is_a_finding(tmp_path: Path) -> None:
    filler = "".join(f"INSERT INTO t VALUES ('{'x' * 900}');" for _ in range(200))
    root = build_corpus(
        tmp_path / "c",
        {"hurt": f"CREATE TABLE t(s TEXT); {filler}", "well": SHOP},
        [ask("hurt", "SELECT max(s) FROM t"), ask("well", "SELECT name FROM shop")],
    )
    file = root / "databases/hurt/hurt.sqlite"
    content = bytearray(file.read_bytes())
    content[4096 * 20 : 4096 * 21] = b"\xaa" * 4096
    file.write_bytes(content)
    report = checked(root).report
    codes = {f.code: f.findings for f in report.findings}
    assert codes.keys() & {"unreadable_database", "gold_error"}
    assert report.gold.ok == 1


def test_text_that_lies_in_a_log_is_looked_through_too(tmp_path: Path) -> None:
    root = build_corpus(tmp_path / "c", {"shop": SHOP}, [ask("shop", "SELECT name FROM shop")])
    writer = apsw.Connection(str(root / "databases" / "shop" / "shop.sqlite"))
    writer.execute("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0")
    writer.execute("UPDATE shop SET name = CAST(x'ff' AS TEXT) WHERE id = 1")
    findings = checked(root).findings
    assert "undecodable_text" in {finding.code for finding in findings}
    writer.close()


def test_numbers_stored_as_text_are_told_where_they_change_the_answer(tmp_path: Path) -> None:
    ddl = (
        "CREATE TABLE car (id INTEGER PRIMARY KEY, power TEXT, zip TEXT, year TEXT);"
        "INSERT INTO car VALUES (1, '95', '00501', '1999'), (2, '150', '10001', '2001'),"
        " (3, 'null', '9', '2002'), (4, '200', '12', '2003')"
    )
    told = [
        "SELECT count(*) FROM car WHERE power > 150",
        "SELECT max(power) FROM car WHERE id < 3",
        "SELECT avg(power) FROM car",
        "SELECT id FROM car WHERE power <> 'x' ORDER BY power LIMIT 1",
    ]
    quiet = [
        "SELECT power FROM car WHERE id < 4",
        "SELECT count(*) FROM car WHERE power = '150'",
        "SELECT max(zip) FROM car",
        "SELECT max(year) FROM car WHERE year > '2000'",
        "SELECT count(*) FROM car WHERE power = 'null'",
        "SELECT id FROM car WHERE power LIKE '9%'",
    ]
    asked = [ask("d", sql, str(number)) for number, sql in enumerate([*told, *quiet])]
    root = build_corpus(tmp_path / "c", {"d": ddl}, asked)
    findings = checked(root).findings
    found = {f.question_id: f.message for f in findings if f.code == "number_as_text"}
    assert sorted(found) == ["0", "1", "2", "3"]
    assert found["0"] == "numbers stored as text give 3, read as numbers 1"
