"""Cases about a corpus: its databases, their schema and samples, preflight."""

import json
import re
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import apsw

from envbuild.corpora.folder import CorpusFolder
from envbuild.corpora.source import read_source
from envbuild.env.tools import Toolbox
from envbuild.env.views import open_database
from envbuild.errors import CorpusError
from envbuild.materialize.build import Built, build_database
from envbuild.materialize.corpus import build_corpus
from envbuild.preflight.checks import UNDETERMINED
from envbuild.preflight.row_counts import measure_corpus
from envbuild.preflight.run import check_databases, conclude
from envbuild.records.corpus import DatabaseRecord, Schema
from envbuild.records.episode import EpisodeSettings
from envbuild.records.execution import Limits
from envbuild.records.preflight import Finding, Severity, Thresholds
from envbuild.schema.graph import SchemaGraph
from envbuild.schema.sampler import sample_schema
from envbuild.sql.connect import quote_name
from envbuild.sql.execution.session import Session
from envbuild.sql.files.inspect import (
    KeyState,
    check_foreign_keys,
    count_table_rows,
    find_undecodable,
    orphans_by_table,
)
from envbuild.sql.names import fold_name
from tests.cases.databases import (
    asked,
    payload_text,
    python,
    write_corpus,
    write_source,
)
from tests.cases.form import (
    FAILED,
    Capability,
    as_list,
    assert_same_bag,
    assert_same_rows,
    assert_status,
    contains,
    each,
    lacks,
    rows_of,
    same,
    same_number,
    typed,
)

ABOUT_THE_SIZE = ("few_rows", "no_rows", "corpus_signal", "no_signal")
"""Findings that any database of a few rows gets; they do not make a case's status an error."""


def use_tool(path: Path, tool: str, arguments: dict[str, Any], sample: Any = None) -> Any:
    """(What the agent's tool says, the schema that the view holds)."""
    database = open_database(path, sample)
    try:
        said = Toolbox(database, EpisodeSettings()).run(tool, arguments)
        return said, database.schema.schema
    finally:
        database.close()


class Materialize(Capability):
    """DDL and payload in, a SQLite file (or several) and an account of refusals out."""

    inputs = "ddl payload ddl_dialect db_ids db_id"

    def run(self) -> None:
        given = self.given
        self.built: Built | None = None
        self.error: CorpusError | None = None
        self.path = self.folder / "case.sqlite"
        if "db_ids" in given:
            ddl = given.get("ddl", "CREATE TABLE t(id INTEGER);")
            payload = given.get("payload", {})
            records = [{"db_id": i, "ddl": ddl, "payload": payload} for i in given["db_ids"]]
            source = read_source(write_source(self.folder, records), "payload")
            summary = build_corpus(source, self.folder / "out", name="cases", workers=1)
            self.corpus = CorpusFolder(Path(summary.root))
            self.names = sorted(self.folder.rglob("*.sqlite"))
        else:
            record = DatabaseRecord(
                db_id=str(given.get("db_id", "case")),
                ddl=given.get("ddl", ""),
                payload=payload_text(given["payload"]) if "payload" in given else "",
                dialect=given.get("ddl_dialect", ""),
            )
            try:
                self.built = build_database(record, self.path)
            except CorpusError as e:
                self.error = e
        self.check(self.case.expected)

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        assert self.error is None, f"there is no database: {self.error}"
        found: list[tuple[Any, ...]] = asked(self.path, lambda c: list(c.execute(sql)))
        return found

    def _objects(self, kind: str) -> list[Any]:
        found = self._query(
            f"SELECT name FROM sqlite_schema WHERE type = '{kind}' "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        )
        return [name for (name,) in found]

    def check_tables(self, expected: list[str]) -> None:
        same(self._objects("table"), sorted(expected))

    def check_views(self, expected: list[str]) -> None:
        same(self._objects("view"), sorted(expected))

    def check_triggers(self, expected: list[str]) -> None:
        same(self._objects("trigger"), sorted(expected))

    def check_indexes(self, expected: list[str]) -> None:
        """Those expected are there, the optional ones may be, no other is."""
        needed = set(self.case.expected.get("indexes", ()))
        named = needed | set(expected) | set(self.case.expected.get("optional_indexes", ()))
        assert needed <= set(self._objects("index")) <= named

    check_optional_indexes = check_indexes

    def _columns(self, table: str) -> list[Any]:
        literal = table.replace("'", "''")
        listed = f"SELECT name FROM pragma_table_xinfo('{literal}') WHERE hidden <> 1 ORDER BY cid"
        return [name for (name,) in self._query(listed)]

    def check_columns(self, expected: dict[str, list[str]]) -> None:
        same({table: self._columns(table) for table in expected}, expected)

    def check_rows(self, expected: dict[str, Any]) -> None:
        how = str(self.case.expected.get("compare", "")).lower()
        for table, rows in expected.items():
            found = self._query(f"SELECT * FROM {quote_name(table)}")
            if "json" in how:
                same(typed(_parsed(found)), typed(_parsed(rows_of(rows))))
            else:
                assert_same_bag(found, rows)

    def check_compare(self, expected: str) -> None:
        known = re.search(r"json|order|set|bag", expected, re.IGNORECASE)
        assert known, f"unknown way to compare: {expected}"

    def check_typeof(self, expected: Any) -> None:
        tables = expected if isinstance(expected, dict) else {self._objects("table")[0]: expected}
        for table, classes in tables.items():
            kinds = ", ".join(f"typeof({quote_name(column)})" for column in self._columns(table))
            found = self._query(f"SELECT {kinds} FROM {quote_name(table)}")
            same(found, [tuple(as_list(row)) for row in classes])

    def check_also_sql(self, expected: list[Any]) -> None:
        for sql, rows in expected:
            assert_same_rows(self._query(sql), rows)

    def check_describe_contains(self, expected: dict[str, Any]) -> None:
        for table, texts in expected.items():
            said, _ = use_tool(self.path, "describe_table", {"table_name": table})
            assert not said.failed, said.result
            assert all(text in said.result for text in as_list(texts)), said.result

    def _tables(self) -> dict[str, Any]:
        assert self.built is not None, f"there is no database: {self.error}"
        return {fold_name(row.table): row for row in self.built.tables}

    def check_loaded(self, expected: Any) -> None:
        tables = self._tables()
        assert self.built is not None
        stored = {name: row.rows_stored for name, row in tables.items()}
        if isinstance(expected, dict):
            same({table: stored.get(fold_name(table), 0) for table in expected}, expected)
        else:
            same(self.built.database.rows_stored, expected)
        assert all(
            row.rows_offered == row.rows_stored + row.rows_refused for row in tables.values()
        )

    def check_rejected(self, expected: Any) -> None:
        assert self.built is not None
        if not isinstance(expected, dict):
            same(self.built.database.rows_refused, expected)
            return
        refused = Counter(fold_name(r.table) for r in self.built.rejects if r.kind == "row")
        for table, count in expected.items():
            row = self._tables().get(fold_name(table))
            assert count == refused[fold_name(table)] == (row.rows_refused if row else count), table

    def check_diagnostics(self, expected: Any) -> None:
        """Each is a reason that was given; an empty list says that nothing was changed."""
        said = [str(self.error)]
        if self.built is not None:
            said = [f"{r.reason} {r.detail}" for r in self.built.rejects]
        assert expected or not said
        contains(said, expected)

    check_error = check_error_contains = check_diagnostics

    def check_status(self, expected: str) -> None:
        refused = self.built is not None and self.built.database.ddl_refused > 0
        if not (expected == "error" and refused):  # the database is there, and says so
            assert_status("error" if self.error else "ok", expected)

    def found_database_left_behind(self) -> bool:
        return any(path.is_file() for path in self.folder.iterdir())

    def check_journal_mode(self, expected: str) -> None:
        with closing(apsw.Connection(str(self.path))) as connection:
            same(connection.pragma("journal_mode"), expected.lower())

    def check_header_bytes_18_19(self, expected: Any) -> None:
        wanted = bytes.fromhex(expected) if isinstance(expected, str) else bytes(expected)
        same(self.path.read_bytes()[18:20], wanted)

    def check_sidecar_files(self, expected: Any) -> None:
        """Files left beside the database: their names or endings, their number, whether any."""
        self._query("SELECT count(*) FROM sqlite_schema")
        left = sorted(p.name for p in self.folder.iterdir() if p != self.path)
        if isinstance(expected, bool | int):
            same(type(expected)(len(left)), expected)
        else:
            name = self.path.name
            same(left, sorted(f"{name}{one}" if one.startswith("-") else one for one in expected))

    def check_n_files(self, expected: int) -> None:
        assert len(self.names) == len(self.corpus.databases()) == expected

    def found_distinct_casefold(self) -> bool:
        return len({path.name.casefold() for path in self.names}) == len(self.names)

    def found_inside_output_dir(self) -> bool:
        root = (self.folder / "out").resolve()
        return all(path.resolve().is_relative_to(root) for path in self.names)

    def check_forbidden_in_name(self, expected: Any) -> None:
        lacks([part for path in self.names for part in (path.stem, path.parent.name)], expected)

    def check_manifest_db_ids(self, expected: list[str]) -> None:
        db_ids = [row.db_id for row in self.corpus.databases()]
        same(sorted(db_ids), sorted(expected))
        assert all(self.corpus.database_path(db_id).is_file() for db_id in db_ids)


def _parsed(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    def parse(cell: Any) -> Any:
        try:
            return json.loads(cell) if str(cell)[:1] in ("[", "{") else cell
        except ValueError:
            return cell

    return [tuple(map(parse, row)) for row in rows]


class Preflight(Capability):
    """A corpus of one database through every check."""

    inputs = "ddl payload gold_sql queries timeout_s"

    def run(self) -> None:
        given = self.given
        self.queries = [given["gold_sql"]] if "gold_sql" in given else []
        self.queries += given.get("queries", [])
        payloads = {"case": given["payload"]} if "payload" in given else {}
        questions = [
            {"question_id": str(n), "db_id": "case", "gold_sql": sql}
            for n, sql in enumerate(self.queries)
        ]
        corpus = write_corpus(
            self.folder, {"case": given.get("ddl", "")}, questions, payloads=payloads
        )
        limits = Limits(seconds=float(given.get("timeout_s", Limits().seconds)))
        measured = measure_corpus(corpus, Thresholds())
        self.found = conclude(measured, check_databases(measured, limits=limits, workers=1))
        self.path = corpus.database_path("case") if corpus.databases() else Path()
        self.codes = Counter(finding.code for finding in self.found.findings)
        self.check(self.case.expected)

    def check_gold_status(self, expected: str) -> None:
        gold = self.found.report.gold
        found = [s for s in ("timeout", "denied", "truncated", "error", "ok") if getattr(gold, s)]
        assert found, "the gold query was not run"
        assert_status(found[0], expected)

    def found_gold_rows(self) -> int:
        with Session.open_file(self.path) as session:
            return len(session.run(self.queries[0]).rows)

    def found_empty_gold(self) -> bool:
        return self.codes["empty_gold"] > 0

    def found_trivial_gold(self) -> bool:
        return self.codes["trivial_gold"] > 0

    def check_nondeterministic(self, expected: Any) -> None:
        """The clock counts although these rows do not show it yet: they will on another day."""

        def tells(finding: Finding) -> bool:
            shown = finding.severity is not Severity.NOTE or finding.code == "clock_gold"
            return finding.code in UNDETERMINED and shown

        told = {finding.question_id for finding in self.found.findings if tells(finding)}
        each(same, [str(number) in told for number in range(len(self.queries))], expected)

    def _statuses(self) -> set[str]:
        """`error` for an error finding; those about too few rows leave `ok` possible too."""
        errors = {f.code for f in self.found.findings if f.severity is Severity.ERROR}
        if errors - set(ABOUT_THE_SIZE):
            return set(FAILED)
        return {"ok", *FAILED} if errors else {"ok"}

    def check_status(self, expected: str) -> None:
        assert expected in self._statuses()

    def check_status_not(self, expected: Any) -> None:
        assert self._statuses() - set(as_list(expected)), f"status {expected}: {self.codes}"

    def check_error_contains(self, expected: Any) -> None:
        contains([f"{f.code} {f.message} {f.example}" for f in self.found.findings], expected)

    def check_fk_mismatch(self, expected: list[list[str]]) -> None:
        keys = asked(self.path, check_foreign_keys)
        found = sorted([k.child, k.parent] for k in keys if k.state is KeyState.MISMATCH)
        same(found, sorted(expected))
        same(self.codes["fk_mismatch"], len(expected))

    def check_missing_parent_tables(self, expected: list[str]) -> None:
        keys = asked(self.path, check_foreign_keys)
        found = {k.parent for k in keys if k.state is KeyState.MISSING_PARENT}
        same(sorted(found), sorted(expected))
        told = [f.message for f in self.found.findings if f.code == "missing_parents"]
        assert all(any(name in text for text in told) for name in expected)

    def check_fk_violations_by_table(self, expected: dict[str, int]) -> None:
        wanted = {table: count for table, count in expected.items() if count}
        same(asked(self.path, orphans_by_table), wanted)

    def check_fk_violations(self, expected: int) -> None:
        same(sum(asked(self.path, orphans_by_table).values()), expected)
        assert self.codes["fk_orphans"] or self.codes["missing_parents"] or not expected

    def check_row_counts(self, expected: dict[str, int]) -> None:
        counts = asked(self.path, count_table_rows)
        same({table: counts[table] for table in expected}, expected)

    def check_tables(self, expected: Any) -> None:
        names = sorted(asked(self.path).table_names)
        same(self.found.report.rows.tables, len(names))
        assert expected in (len(names), names) or sorted(as_list(expected)) == names

    def check_median_rows_per_table(self, expected: float) -> None:
        same_number(self.found.report.rows.median, float(expected))

    def check_undecodable_cells(self, expected: int) -> None:
        same(sum(column.cells for column in asked(self.path, find_undecodable)), expected)
        told = [f.count for f in self.found.findings if f.code == "undecodable_text"]
        same(sum(told), expected)

    def check_undecodable_columns(self, expected: list[str]) -> None:
        found = [f"{one.table}.{one.column}" for one in asked(self.path, find_undecodable)]
        same(sorted(found), sorted(expected))

    def found_n_ddl_errors(self) -> int:
        refused = [f for f in self.found.findings if f.code == "ddl_refused"]
        return sum(f.severity is not Severity.NOTE for f in refused)


_SAMPLE = """
import json, sys
from pathlib import Path
from envbuild.schema.read import read_schema_of
from envbuild.schema.sampler import sample_schema

given = json.load(sys.stdin)
schema = read_schema_of(Path(given["path"]))
print(json.dumps([
    sample_schema(schema, set(given["gold"]), target=target, seed=given["seed"]).tables
    for target in given["targets"]
]))
"""


class Graph(Capability):
    """Edges, join paths, samples and the views of samples of a materialized schema."""

    inputs = (
        "ddl ddl_dialect gold_tables targets target seed hashseeds sample distractors extra full"
    )
    patterns: ClassVar = {r"target(\d+)_allowed": "match_allowed"}

    def run(self) -> None:
        given = self.given
        ddl, dialect = given.get("ddl", ""), given.get("ddl_dialect", "")
        self.path = self.folder / "case.sqlite"
        build_database(DatabaseRecord(db_id="case", ddl=ddl, dialect=dialect), self.path)
        self.schema: Schema = asked(self.path)
        self.seed = int(given.get("seed", 0))
        whole = len(self.schema.tables)
        self.targets = as_list(given.get("targets", given.get("target", whole)))
        self.check(self.case.expected)

    def _sample(self, target: int, seed: int | None = None) -> tuple[str, ...]:
        given = self.given
        found = sample_schema(
            self.schema,
            given.get("gold_tables", ()),
            target=target,
            seed=self.seed if seed is None else seed,
            distractors=given.get("distractors", "fk"),
            extra=given.get("extra"),
            full=bool(given.get("full", False)),
        )
        assert len(set(found.tables)) == len(found.tables)
        return found.tables

    def _viewed(self) -> tuple[list[str], Schema]:
        """The tables and the schema that an agent finds in a view of the sample."""
        sample = self.given.get("sample") or list(self._sample(self.targets[0]))
        said, schema = use_tool(self.path, "list_tables", {}, sample)
        return said.result.splitlines(), schema

    def check_edges(self, expected: list[Any]) -> None:
        same(_edges(self.schema), sorted(expected, key=repr))

    def found_n_edges(self) -> int:
        return len(self.schema.foreign_keys)

    def check_rendered(self, expected: list[str]) -> None:
        same(sorted(key.render() for key in self.schema.foreign_keys), sorted(expected))

    def check_missing_parents(self, expected: list[str]) -> None:
        same(sorted({m.parent for m in self.schema.missing_parents}), sorted(expected))

    def check_nodes(self, expected: list[str]) -> None:
        same(sorted(self.schema.table_names), sorted(expected))

    def check_join_paths(self, expected: list[Any]) -> None:
        """In the view where the case names a sample, else in the whole database."""
        schema = self._viewed()[1] if "sample" in self.given else self.schema
        for a, b, path in expected:
            found = SchemaGraph(schema).join_path(a, b)
            same(None if found is None else list(found), path)

    def check_join_path_first_edge(self, expected: dict[str, str]) -> None:
        """The first line of what the agent's `join_path` says."""
        for pair, edge in expected.items():
            a, b = (name.strip() for name in pair.split(","))
            names = {"table_a": a, "table_b": b}
            said, schema = use_tool(self.path, "join_path", names, self.given.get("sample"))
            assert not said.failed, said.result
            if edge is None:
                assert SchemaGraph(schema).join_path(a, b) is None
            else:
                same(said.result.splitlines()[0], edge)

    def found_sizes(self) -> list[int]:
        return [len(self._sample(target)) for target in self.targets]

    def check_size(self, expected: Any) -> None:
        each(same, self.found_sizes(), expected)

    def check_must_contain(self, expected: list[str]) -> None:
        assert all(set(expected) <= set(self._sample(target)) for target in self.targets)

    def match_allowed(self, match: re.Match[str], expected: list[list[str]]) -> None:
        """Whatever the seed, the sample is one of these."""
        allowed = [sorted(tables) for tables in expected]
        for seed in (self.seed, *range(20)):
            assert sorted(self._sample(int(match[1]), seed)) in allowed

    def found_identical_across_hashseeds(self) -> bool:
        """The samples under every hash seed; where they agree, they are this process's too."""
        question = {
            "path": str(self.path),
            "gold": self.given.get("gold_tables", []),
            "targets": self.targets,
            "seed": self.seed,
        }
        found = set()
        for hashseed in self.given.get("hashseeds", [0, 1]):
            text = json.dumps(question)
            done = python("-c", _SAMPLE, input=text, PYTHONHASHSEED=str(hashseed))
            assert done.returncode == 0, done.stderr
            found.add(done.stdout)
        here = json.loads(json.dumps(list(map(self._sample, self.targets))))
        assert here in map(json.loads, found)
        return len(found) == 1

    def check_some_difference_for_seeds(self, expected: Any) -> None:
        """Some two of these seeds (a list, or as many from 0 on) give different samples."""
        differ = expected is not False
        count = 20 if isinstance(expected, bool) else expected
        seeds = expected if isinstance(expected, list) else range(count)
        found = {self._sample(target, seed) for target in self.targets for seed in seeds}
        assert (len(found) > len(self.targets)) is differ, found

    def check_tables(self, expected: list[str]) -> None:
        names, schema = self._viewed()
        assert sorted(names) == sorted(expected) == sorted(schema.table_names)

    def check_edges_among_sample(self, expected: Any) -> None:
        """As edges, as `child.col -> parent.col`, or their number."""
        _, schema = self._viewed()
        if isinstance(expected, int):
            same(len(schema.foreign_keys), expected)
            return
        named = expected and isinstance(expected[0], str)
        found = [key.render() for key in schema.foreign_keys] if named else _edges(schema)
        same(sorted(found, key=repr), sorted(expected, key=repr))
        assert not schema.missing_parents

    def check_status(self, expected: str) -> None:
        assert_status("ok", expected)


def _edges(schema: Schema) -> list[list[Any]]:
    edges = [
        [key.child, list(key.child_columns), key.parent, list(key.parent_columns)]
        for key in schema.foreign_keys
    ]
    return sorted(edges, key=repr)
