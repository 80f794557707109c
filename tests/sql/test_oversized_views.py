"""Views that each read the one before twice: left out with their reason, whoever opens the file."""

from pathlib import Path

from envbuild.env.tools import Toolbox
from envbuild.env.views import open_database
from envbuild.materialize.build import build_database
from envbuild.records.corpus import DatabaseRecord
from envbuild.records.episode import EpisodeSettings
from envbuild.sql.connect import Connection
from envbuild.sql.from_names import oversized_views

DDL = "CREATE TABLE t(id);" + "".join(
    f"CREATE VIEW v{i} AS SELECT a.x FROM v{i - 1} a, v{i - 1} b;" if i else
    "CREATE VIEW v0 AS SELECT id AS x FROM t;"
    for i in range(40)
)  # fmt: skip


def test_a_view_counts_what_it_reads_through_others() -> None:
    views = {"A": "CREATE VIEW A AS SELECT * FROM t, t u", "b": "CREATE VIEW b AS SELECT * FROM a"}
    assert oversized_views(views) == frozenset()
    wide = {**views, "c": "CREATE VIEW c AS SELECT * FROM " + ", ".join(["B"] * 501)}
    assert oversized_views(wide) == {"c"}
    circle = {"x": "CREATE VIEW x AS SELECT * FROM y", "y": "CREATE VIEW y AS SELECT * FROM x"}
    assert oversized_views(circle) == frozenset()


def test_materialize_refuses_them_with_their_reason(tmp_path: Path) -> None:
    built = build_database(DatabaseRecord(db_id="d", ddl=DDL), tmp_path / "d.sqlite")
    reasons = [(r.kind, r.reason, r.index) for r in built.rejects]
    assert reasons == [("statement", "oversized_view", 1 + number) for number in range(10, 40)]
    connection = Connection(str(tmp_path / "d.sqlite"))
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'").fetchall()
    assert names == [(f"v{number}",) for number in range(10)]


def test_a_file_that_holds_them_opens_without_them(tmp_path: Path) -> None:
    path = tmp_path / "ready.sqlite"
    Connection(str(path)).execute(DDL)
    for tables in (None, ["t"]):
        toolbox = Toolbox(open_database(path, tables), EpisodeSettings())
        assert toolbox.run("run_query", {"sql": "SELECT * FROM v39"}).failed
        assert "v6" in toolbox.run("list_tables", {}).result
        assert "v39" not in toolbox.run("list_tables", {}).result
