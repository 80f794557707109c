"""Watched golds: run again exactly where a table that they read has other rows."""

import apsw
import pytest

from envbuild.generate.golds import GoldMonitor
from envbuild.generate.tables import Workspace, open_workspace
from envbuild.records.execution import QueryResult
from envbuild.schema.read import read_schema
from envbuild.sql.connect import open_writable_image
from tests.generate.test_amplify import grow

ANN = "SELECT name FROM person WHERE name = 'Ann'"
VIEWED = "SELECT * FROM paid"
BOTH = "SELECT name FROM person JOIN bill ON bill.owner = person.id"
BROKEN = "SELECT nothing FROM nowhere"


@pytest.fixture
def workspace() -> Workspace:
    made = apsw.Connection(":memory:")
    made.execute("""
        CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT);
        CREATE TABLE bill (id INTEGER PRIMARY KEY, owner INT, total REAL);
        CREATE VIEW paid AS SELECT total FROM bill WHERE total > 5;
        INSERT INTO person VALUES (1, 'Ann');
    """)
    connection = open_writable_image(made.serialize("main"))
    connection.execute("BEGIN")
    return open_workspace(connection, read_schema(connection))


class Counting(GoldMonitor):
    """Notes every query that is really run."""

    def run(self, sql: str) -> QueryResult:
        self.ran = [*getattr(self, "ran", []), sql]
        return super().run(sql)


def test_a_gold_is_run_again_only_where_its_tables_changed(workspace: Workspace) -> None:
    watch = Counting(workspace, [ANN, VIEWED, BOTH, BROKEN])
    assert watch.before == {ANN: 1, VIEWED: 0, BOTH: 0, BROKEN: -1}
    watch.ran = []
    assert watch.emptied() == [] and watch.ran == [BROKEN]  # its tables are not known
    assert workspace.insert(workspace.tables["bill"], [1, 1, 9.5]) is not None
    watch.ran = []
    assert (watch.rows(ANN), watch.rows(VIEWED), watch.rows(BOTH)) == (1, 1, 1)
    assert watch.ran == [VIEWED, BOTH]


def test_a_row_taken_back_is_forgotten_by_the_counts_too(workspace: Workspace) -> None:
    watch = GoldMonitor(workspace, [ANN, VIEWED])
    person = workspace.tables["person"]
    found: list[int] = []

    def seen(keep: bool) -> bool:
        found.append(watch.rows(ANN))
        return keep

    assert not workspace.add(lambda: workspace.insert(person, [2, "Ann"]), lambda: seen(False))
    found.append(watch.rows(ANN))
    assert found == [2, 1]
    # as many rows as in the change before, but other ones
    assert workspace.add(lambda: workspace.insert(person, [2, "Bea"]), lambda: seen(True))
    assert watch.gold(ANN).rows == (("Ann",),)
    workspace.insert(person, [3, "Ann"])
    assert watch.rows(ANN) == 2 and watch.rows(VIEWED) == 0


def test_a_gold_that_counts_through_ties_of_a_window_is_told_apart() -> None:
    ddl = (
        "CREATE TABLE pay (id INTEGER PRIMARY KEY, who TEXT, amount INT);"
        "INSERT INTO pay VALUES (1, 'a', 10), (2, 'b', 10), (3, 'c', 30)"
    )
    number = "SELECT who, ROW_NUMBER() OVER (ORDER BY {}) FROM pay"
    ties, untied = number.format("amount"), number.format("amount, id")
    peers, lot = ties.replace("ROW_NUMBER", "RANK"), "SELECT who FROM pay ORDER BY random()"
    grown = grow(ddl, ties, untied, peers, lot, rows_low=3, rows_high=3)
    told = [state.tie_sensitive for state in grown.growth.golds]
    assert told == [True, False, False, False]
