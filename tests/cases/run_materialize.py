"""Capability materialize: DDL and payload in, a SQLite file and its account of refusals out."""

import json
import re
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import read_source
from envbuild.episode.toolbox import Toolbox
from envbuild.episode.views import open_database
from envbuild.errors import CorpusError
from envbuild.materialize.build import Built, build_database
from envbuild.materialize.corpus import build_corpus
from envbuild.records.corpus import DatabaseRecord
from envbuild.records.episode import EpisodeSettings
from envbuild.sql.connect import open_read_only, quote_name
from envbuild.sql.names import fold_name
from tests.cases.databases import payload_text, write_source
from tests.cases.form import (
    Case,
    Checks,
    as_list,
    assert_same_bag,
    assert_same_rows,
    assert_status,
    equals,
    lacks,
    rows_of,
    says,
    typed,
)

SIDECARS = ("-wal", "-shm", "-journal")


@dataclass(kw_only=True)
class Outcome:
    """What materializing came to."""

    case: Case
    path: Path
    built: Built | None = None
    error: CorpusError | None = None
    corpus: CorpusFolder | None = None
    """Where the case names several databases."""
    names: list[str] = field(default_factory=list)
    """File names of the databases."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the built database, undecodable text replaced."""
        assert self.error is None, f"there is no database: {self.error}"
        connection = open_read_only(self.path)
        try:
            return list(connection.execute(sql))
        finally:
            connection.close()

    def objects(self, kind: str) -> list[str]:
        """Names of the database's tables, views, triggers or own indexes."""
        found = self.query(
            f"SELECT name FROM sqlite_schema WHERE type = '{kind}' "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        )
        return [str(name) for (name,) in found]


def run(case: Case, folder: Path) -> None:
    """Builds the database, or the databases, and checks what is expected of them."""
    build = _build_several if "db_ids" in case.input else _build_one
    CHECKS.check(build(case, folder), case.expected)


def _build_one(case: Case, folder: Path) -> Outcome:
    given = case.input
    record = DatabaseRecord(
        db_id=str(given.get("db_id", "case")),
        ddl=given.get("ddl", ""),
        payload=payload_text(given["payload"]) if "payload" in given else "",
        dialect=given.get("ddl_dialect", ""),
    )
    path = folder / "case.sqlite"
    try:
        return Outcome(case=case, path=path, built=build_database(record, path))
    except CorpusError as e:
        return Outcome(case=case, path=path, error=e)


def _build_several(case: Case, folder: Path) -> Outcome:
    ddl = case.input.get("ddl", "CREATE TABLE t(id INTEGER);")
    payload = payload_text(case.input.get("payload", {}))
    records = [{"db_id": i, "ddl": ddl, "payload": payload} for i in case.input["db_ids"]]
    source = read_source(write_source(folder, records), "payload")
    summary = build_corpus(source, folder / "out", name="cases", workers=1)
    corpus = CorpusFolder(Path(summary.root))
    files = sorted(p for p in folder.rglob("*.sqlite"))
    return Outcome(case=case, path=folder, corpus=corpus, names=[str(p) for p in files])


def _check_rows(outcome: Outcome, expected: dict[str, Any]) -> None:
    how = str(outcome.case.expected.get("compare", "")).lower()
    for table, rows in expected.items():
        found = outcome.query(f"SELECT * FROM {quote_name(table)}")
        if "json" in how:
            assert typed(_parsed(found)) == typed(_parsed(rows_of(rows))), table
        else:
            assert_same_bag(found, rows)


def _parsed(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(_parse(cell) for cell in row) for row in rows]


def _parse(cell: Any) -> Any:
    if isinstance(cell, str) and cell[:1] in ("[", "{"):
        try:
            return json.loads(cell)
        except ValueError:
            return cell
    return cell


def _check_compare(outcome: Outcome, expected: str) -> None:
    known = re.search(r"json|order|set|bag", expected, re.IGNORECASE)
    assert known, f"unknown way to compare: {expected}"


def _check_typeof(outcome: Outcome, expected: Any) -> None:
    tables = expected if isinstance(expected, dict) else {outcome.objects("table")[0]: expected}
    for table, classes in tables.items():
        found = outcome.query(f"SELECT * FROM {quote_name(table)} LIMIT 0") or []
        columns = _columns(outcome, table)
        asked = ", ".join(f"typeof({quote_name(column)})" for column in columns)
        found = outcome.query(f"SELECT {asked} FROM {quote_name(table)}")
        wanted = [tuple(as_list(row)) for row in classes]
        assert found == wanted, f"{table}: {found}, expected {wanted}"


def _columns(outcome: Outcome, table: str) -> list[str]:
    literal = table.replace("'", "''")
    rows = outcome.query(
        f"SELECT name FROM pragma_table_xinfo('{literal}') WHERE hidden <> 1 ORDER BY cid"
    )
    return [str(name) for (name,) in rows]


def _check_columns(outcome: Outcome, expected: dict[str, list[str]]) -> None:
    assert {table: _columns(outcome, table) for table in expected} == expected


def _check_indexes(outcome: Outcome, expected: list[str]) -> None:
    """Those expected are there, the optional ones may be, no other is."""
    needed = set(outcome.case.expected.get("indexes", ()))
    named = needed | set(expected) | set(outcome.case.expected.get("optional_indexes", ()))
    assert needed <= set(outcome.objects("index")) <= named


def _check_loaded(outcome: Outcome, expected: Any) -> None:
    assert _counted(outcome, "rows_stored", expected) == expected
    for row in _tables(outcome).values():
        assert row.rows_offered == row.rows_stored + row.rows_refused


def _check_rejected(outcome: Outcome, expected: Any) -> None:
    assert outcome.built is not None
    if not isinstance(expected, dict):
        assert outcome.built.database.rows_refused == expected
        return
    for table, count in expected.items():
        row = _tables(outcome).get(fold_name(table))
        refused = [r for r in outcome.built.rejects if r.kind == "row"]
        listed = sum(fold_name(r.table) == fold_name(table) for r in refused)
        assert (row.rows_refused if row else listed) == count == listed, table


def _counted(outcome: Outcome, name: str, expected: Any) -> Any:
    assert outcome.built is not None, f"there is no database: {outcome.error}"
    if not isinstance(expected, dict):
        return getattr(outcome.built.database, name)
    tables = _tables(outcome)
    return {
        table: getattr(tables[fold_name(table)], name) if fold_name(table) in tables else 0
        for table in expected
    }


def _tables(outcome: Outcome) -> dict[str, Any]:
    assert outcome.built is not None, f"there is no database: {outcome.error}"
    return {fold_name(row.table): row for row in outcome.built.tables}


def _said(outcome: Outcome) -> list[str]:
    """The error, or the reason and detail of everything that was changed or refused."""
    if outcome.built is None:
        return [str(outcome.error)]
    return [f"{r.reason} {r.detail}" for r in outcome.built.rejects]


def _check_diagnostics(outcome: Outcome, expected: list[str]) -> None:
    """Each is a reason that was given; an empty list says that nothing was changed or refused."""
    said = _said(outcome)
    assert expected or not said
    for code in expected:
        assert any(says(text, code) for text in said), f"{code} is not among {said}"


def _check_status(outcome: Outcome, expected: str) -> None:
    failed = outcome.error is not None
    refused = outcome.built is not None and outcome.built.database.ddl_refused > 0
    if expected == "error" and refused:
        return  # a database with a refused statement is there, and says so
    assert_status("error" if failed else "ok", expected)


def _check_error(outcome: Outcome, expected: Any) -> None:
    _check_diagnostics(outcome, as_list(expected))


def _left_behind(outcome: Outcome) -> bool:
    return any(p.is_file() for p in outcome.path.parent.iterdir())


def _check_describe(outcome: Outcome, expected: dict[str, Any]) -> None:
    database = open_database(outcome.path)
    try:
        for table, texts in expected.items():
            said = Toolbox(database, EpisodeSettings()).run("describe_table", {"table_name": table})
            assert not said.failed, said.result
            for text in as_list(texts):
                assert text in said.result
    finally:
        database.close()


def _check_also_sql(outcome: Outcome, expected: list[Any]) -> None:
    for sql, rows in expected:
        assert_same_rows(outcome.query(sql), rows)


def _journal_mode(outcome: Outcome) -> Any:
    with closing(apsw.Connection(str(outcome.path))) as connection:
        return connection.pragma("journal_mode")


def _check_header(outcome: Outcome, expected: Any) -> None:
    wanted = bytes.fromhex(expected) if isinstance(expected, str) else bytes(expected)
    assert outcome.path.read_bytes()[18:20] == wanted


def _check_sidecars(outcome: Outcome, expected: Any) -> None:
    """Files left beside the database: their names or endings, their number, or whether any."""
    outcome.query("SELECT count(*) FROM sqlite_schema")
    left = [p.name for p in outcome.path.parent.iterdir() if p != outcome.path]
    if isinstance(expected, bool):
        assert bool(left) is expected, left
    elif isinstance(expected, int):
        assert len(left) == expected, left
    else:
        assert sorted(left) == sorted(
            f"{outcome.path.name}{name}" if name.startswith("-") else name for name in expected
        )


def _check_n_files(outcome: Outcome, expected: int) -> None:
    assert outcome.corpus is not None
    assert len(outcome.names) == len(outcome.corpus.databases()) == expected


def _is_inside(outcome: Outcome) -> bool:
    root = (outcome.path / "out").resolve()
    return all(Path(name).resolve().is_relative_to(root) for name in outcome.names)


def _file_names(outcome: Outcome) -> list[str]:
    return [part for p in map(Path, outcome.names) for part in (p.stem, p.parent.name)]


def _check_db_ids(outcome: Outcome, expected: list[str]) -> None:
    assert outcome.corpus is not None
    db_ids = [row.db_id for row in outcome.corpus.databases()]
    assert sorted(db_ids) == sorted(expected)
    assert all(outcome.corpus.database_path(db_id).is_file() for db_id in db_ids)


CHECKS = Checks(
    inputs="ddl payload ddl_dialect db_ids db_id",
    by_key={
        "tables": lambda o, expected: equals(lambda o: o.objects("table"))(o, sorted(expected)),
        "views": lambda o, expected: equals(lambda o: o.objects("view"))(o, sorted(expected)),
        "triggers": lambda o, expected: equals(lambda o: o.objects("trigger"))(o, sorted(expected)),
        "indexes": _check_indexes,
        "optional_indexes": _check_indexes,
        "columns": _check_columns,
        "rows": _check_rows,
        "compare": _check_compare,
        "typeof": _check_typeof,
        "also_sql": _check_also_sql,
        "describe_contains": _check_describe,
        "loaded": _check_loaded,
        "rejected": _check_rejected,
        "diagnostics": _check_diagnostics,
        "status": _check_status,
        "error": _check_error,
        "error_contains": _check_error,
        "database_left_behind": equals(_left_behind),
        "journal_mode": lambda o, expected: equals(_journal_mode)(o, expected.lower()),
        "header_bytes_18_19": _check_header,
        "sidecar_files": _check_sidecars,
        "n_files": _check_n_files,
        "distinct_casefold": equals(
            lambda o: len({Path(n).name.casefold() for n in o.names}) == len(o.names)
        ),
        "inside_output_dir": equals(_is_inside),
        "forbidden_in_name": lacks(_file_names),
        "manifest_db_ids": _check_db_ids,
    },
)
