"""Preflight over the real data: BIRD, Spider, MachineSpider and SynSQL."""

import json
from collections import defaultdict

from envbuild.materialize.any_folder import open_any
from envbuild.preflight.run import check_database, summed_health
from envbuild.preflight.subjects import DatabaseInput
from envbuild.records.corpus import Question
from envbuild.records.execution import Limits
from envbuild.records.preflight import Finding, GoldHealth
from envbuild.sql.files.inspect import count_rows
from tests.shared import shared_data

LAYOUTS = {
    "bird": ("bird/dev.json", "bird/dev_databases", "SQL"),
    "spider": ("spider/dev.json", "spider/database", "query"),
    "machinespider": ("machinespider_de/dev.json", "machinespider_de/database", "query"),
    "synsql": ("synsql/data.json", "synsql/databases", "sql"),
}


def check(corpus: str) -> tuple[GoldHealth, list[Finding]]:
    """The gold health and findings of every database with its questions."""
    file, databases, gold = LAYOUTS[corpus]
    asked = defaultdict(list)
    for number, q in enumerate(json.loads(shared_data(*file.split("/")).read_text())):
        asked[q["db_id"]].append(
            Question(
                question_id=str(number),
                db_id=q["db_id"],
                question=q["question"],
                evidence=q.get("evidence") or "",
                gold_sql=q[gold],
            )
        )
    (folder,) = open_any(shared_data(*databases.split("/")))
    checked = [
        check_database(
            DatabaseInput(
                corpus=corpus,
                row=row,
                path=folder.database_path(row.db_id),
                counts=count_rows(folder.database_path(row.db_id)),
                questions=tuple(asked[row.db_id]),
            ),
            Limits(),
        )
        for row in folder.databases()
    ]
    return summed_health(c.gold for c in checked), [f for c in checked for f in c.findings]


def test_bird_golds_run_and_some_hang_on_ties() -> None:
    health, findings = check("bird")
    assert (health.questions, health.golds, health.ok) == (287, 286, 286)
    assert sum(f.code == "tie_sensitive_gold" for f in findings) == 13
    assert health.undetermined == 12
    assert sum(f.code == "scan_order_gold" for f in findings) == 2
    assert not [f for f in findings if f.severity == "error" or f.code == "number_as_text"]


def test_spider() -> None:
    health, findings = check("spider")
    assert (health.questions, health.golds, health.ok, health.empty) == (597, 314, 314, 21)
    orphans = {(f.db_id, f.table): f.count for f in findings if f.code == "fk_orphans"}
    assert orphans["car_1", "car_names"] == 1
    numbers = [f.message for f in findings if f.code == "number_as_text"]
    assert len(numbers) == 18
    assert numbers.count("numbers stored as text give 281, read as numbers 49") == 2
    bare = [f for f in findings if f.code == "bare_group_column"]
    assert {f.example for f in bare} == {
        "SELECT id FROM tv_channel GROUP BY country HAVING count(*) > 2"
    }


def test_every_failing_german_gold_is_explained() -> None:
    health, findings = check("machinespider")
    errors = [f for f in findings if f.code == "gold_error"]
    assert (health.questions, health.error, len(errors)) == (197, 16, 26)
    assert all("alter is a name here and a keyword" in f.message for f in errors)


def test_synsql_golds_compile_and_say_nothing() -> None:
    health, findings = check("synsql")
    assert (health.questions, health.ok) == (200, 200)
    assert health.empty + health.trivial >= 190
    assert sum(f.code == "no_rows" for f in findings) == 193
