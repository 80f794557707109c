"""Cases about a corpus: its databases, their schema and samples, preflight."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from envbuild.env.tools import Toolbox
from envbuild.env.views import open_database
from envbuild.errors import CorpusError
from envbuild.materialize.build import Built, build_database
from envbuild.preflight.checks import UNDETERMINED
from envbuild.preflight.row_counts import measure_corpus
from envbuild.preflight.run import check_databases, conclude
from envbuild.records.corpus import DatabaseRecord, Schema
from envbuild.records.episode import EpisodeSettings
from envbuild.records.preflight import Finding, Severity, Thresholds
from envbuild.schema.graph import SchemaGraph
from envbuild.schema.sampler import sample_schema
from envbuild.sql.connect import quote_name
from envbuild.sql.files.inspect import (
    KeyState,
    check_foreign_keys,
    count_table_rows,
    find_undecodable,
    orphans_by_table,
)
from envbuild.sql.names import fold_name
from tests.cases.databases import (
    Run,
    asked,
    build_source,
    limits_of,
    payload_text,
    python,
    query,
    write_corpus,
    write_source,
)
from tests.cases.form import (
    FAILED,
    Checks,
    as_list,
    contains,
    deep,
    each,
    holds,
    lacks,
    same,
    same_bag,
    same_number,
    same_rows,
    same_status,
    says,
    value_of,
)

ABOUT_THE_SIZE = {"few_rows", "no_rows", "corpus_signal", "no_signal"}
"""Findings that any database of a few rows gets; they do not make a case's status an error."""


def use_tool(path: Path, tool: str, arguments: dict[str, Any], sample: Any = None) -> Any:
    """(What the agent's tool says, the schema that the view holds)."""
    database = open_database(path, sample)
    try:
        said = Toolbox(database, EpisodeSettings()).run(tool, arguments)
        return said, database.schema.schema
    finally:
        database.close()


def materialize(run: Run) -> Checks:
    """DDL and payload in, a SQLite file (or several) and an account of refusals out."""
    given, path = run.given, run.folder / "case.sqlite"
    record = DatabaseRecord(
        db_id=str(given.get("db_id", "case")),
        ddl=given.get("ddl", ""),
        payload=payload_text(given["payload"]) if "payload" in given else "",
        dialect=given.get("ddl_dialect", ""),
    )
    built: Built | None = None
    failure = ""
    if "db_ids" not in given:
        try:
            built = build_database(record, path)
        except CorpusError as e:
            failure = str(e)

    def ask(sql: str) -> list[tuple[Any, ...]]:
        assert not failure, f"there is no database: {failure}"
        return query(path, sql)

    def objects(kind: str) -> list[Any]:
        listed = f"SELECT name FROM sqlite_schema WHERE type = '{kind}' ORDER BY name"
        return [name for (name,) in ask(listed) if not name.startswith("sqlite_")]

    def columns(table: str) -> list[Any]:
        name = table.replace("'", "''")
        listed = f"SELECT name FROM pragma_table_xinfo('{name}') WHERE hidden <> 1 ORDER BY cid"
        return [name for (name,) in ask(listed)]

    def indexes(_: Any) -> None:
        """Those expected are there, the optional ones may be, no other is."""
        needed = set(run.expected.get("indexes", ()))
        optional = set(run.expected.get("optional_indexes", ()))
        assert needed <= set(objects("index")) <= needed | optional

    def rows(expected: dict[str, Any]) -> None:
        for table, wanted in expected.items():
            found = ask(f"SELECT * FROM {quote_name(table)}")
            if "json" in str(run.expected.get("compare", "")).lower():
                same(deep(_parsed(found)), deep(_parsed(value_of(wanted))))
            else:
                same_bag(found, wanted)

    def storage_classes(expected: dict[str, list[Any]]) -> None:
        for table, classes in expected.items():
            kinds = ", ".join(f"typeof({quote_name(column)})" for column in columns(table))
            found = ask(f"SELECT {kinds} FROM {quote_name(table)}")
            same(found, [tuple(as_list(row)) for row in classes])

    def describes(expected: dict[str, Any]) -> None:
        for table, texts in expected.items():
            said, _ = use_tool(path, "describe_table", {"table_name": table})
            assert not said.failed, said.result
            contains(said.result, texts)

    def tables() -> dict[str, Any]:
        assert built is not None, f"there is no database: {failure}"
        return {fold_name(row.table): row for row in built.tables}

    def loaded(expected: Any) -> None:
        accounts = tables()
        for account in accounts.values():
            same(account.rows_offered, account.rows_stored + account.rows_refused)
        stored = Counter({name: account.rows_stored for name, account in accounts.items()})
        if isinstance(expected, dict):
            same({table: stored[fold_name(table)] for table in expected}, expected)
        else:
            same((stored.total(), built.database.rows_stored), (expected, expected))

    def rejected(expected: Any) -> None:
        accounts = tables()
        assert built is not None
        refused = Counter(fold_name(r.table) for r in built.rejects if r.kind == "row")
        if not isinstance(expected, dict):
            same(built.database.rows_refused, expected)
            return
        for table, count in expected.items():
            account = accounts.get(fold_name(table))
            assert account is None or account.rows_refused == count, table
            same((table, refused[fold_name(table)]), (table, count))

    def diagnostics(expected: Any) -> None:
        """Each is a reason that was given; an empty list says that nothing was changed."""
        said = [f"{r.reason} {r.detail}" for r in built.rejects] if built else [failure]
        assert expected or not said
        says(said, expected)

    def status(expected: str) -> None:
        refused = built is not None and built.database.ddl_refused > 0
        if not (expected == "error" and refused):  # the database is there, and says so
            same_status("error" if failure else "ok", expected)

    def sidecar_files(expected: Any) -> None:
        """Files left beside the database: their names or endings, their number, whether any."""
        ask("SELECT count(*) FROM sqlite_schema")
        left = [file.name for file in run.folder.iterdir() if file != path]
        if isinstance(expected, bool | int):
            same(type(expected)(len(left)), expected)
        else:
            same_bag(left, [path.name + n if n.startswith("-") else n for n in expected])

    def header(expected: Any) -> None:
        wanted = bytes.fromhex(expected) if isinstance(expected, str) else bytes(expected)
        same(path.read_bytes()[18:20], wanted)

    return {
        "tables": lambda x: same(objects("table"), sorted(x)),
        "views": lambda x: same(objects("view"), sorted(x)),
        "triggers": lambda x: same(objects("trigger"), sorted(x)),
        "indexes|optional_indexes": indexes,
        "columns": lambda x: same({table: columns(table) for table in x}, x),
        "rows": rows,
        "compare": lambda x: holds(re.search("json|order|set|bag", x.lower()), f"compare: {x}"),
        "typeof": storage_classes,
        "also_sql": lambda x: [same_rows(ask(sql), wanted) for sql, wanted in x],
        "describe_contains": describes,
        "loaded": loaded,
        "rejected": rejected,
        "diagnostics|error|error_contains": diagnostics,
        "status": status,
        "database_left_behind": lambda x: same(any(f.is_file() for f in run.folder.iterdir()), x),
        "journal_mode": lambda x: same(ask("PRAGMA journal_mode"), [(x.lower(),)]),
        "header_bytes_18_19": header,
        "sidecar_files": sidecar_files,
        **(_several_databases(run) if "db_ids" in given else {}),
    }


def _parsed(rows: Any) -> list[list[Any]]:
    """The rows with their JSON cells as values."""

    def parse(cell: Any) -> Any:
        try:
            return json.loads(cell) if str(cell)[:1] in ("[", "{") else cell
        except ValueError:
            return cell

    return [[parse(cell) for cell in row] for row in rows]


def _several_databases(run: Run) -> Checks:
    """A corpus of one database for each db_id."""
    ddl = run.given.get("ddl", "CREATE TABLE t(id INTEGER);")
    payload = run.given.get("payload", {})
    records = [{"db_id": i, "ddl": ddl, "payload": payload} for i in run.given["db_ids"]]
    out = run.folder / "out"
    corpus = build_source(write_source(run.folder, records), out)
    files = sorted(run.folder.rglob("*.sqlite"))
    db_ids = [row.db_id for row in corpus.databases()]
    assert all(corpus.database_path(db_id).is_file() for db_id in db_ids)
    root, names = out.resolve(), [n for f in files for n in (f.stem, f.parent.name)]
    inside = all(file.resolve().is_relative_to(root) for file in files)
    return {
        "n_files": lambda x: same([len(files), len(db_ids)], [x, x]),
        "distinct_casefold": lambda x: same(
            len({f.name.casefold() for f in files}) == len(files), x
        ),
        "inside_output_dir": lambda x: same(inside, x),
        "forbidden_in_name": lambda x: lacks(names, x),
        "manifest_db_ids": lambda x: same_bag(db_ids, x),
    }


def preflight(run: Run) -> Checks:
    """A corpus of one database through every check."""
    given = run.given
    queries = run.listed("gold_sql", "queries")
    questions = [
        {"question_id": str(n), "db_id": "case", "gold_sql": sql} for n, sql in enumerate(queries)
    ]
    databases = {"case": given.get("ddl", "")}
    corpus = write_corpus(run.folder, databases, questions, given.get("payload", ""))
    measured = measure_corpus(corpus, Thresholds())
    result = conclude(measured, check_databases(measured, limits=limits_of(given), workers=1))
    path = corpus.database_path("case") if corpus.databases() else Path()
    report, findings = result.report, result.findings
    codes = Counter(finding.code for finding in findings)

    def gold_status(expected: str) -> None:
        outcomes = ("timeout", "denied", "truncated", "error", "ok")
        found = [outcome for outcome in outcomes if getattr(report.gold, outcome)]
        assert found, "the gold query was not run"
        same_status(found[0], expected)

    def nondeterministic(expected: Any) -> None:
        """The clock counts although these rows do not show it yet: they will on another day."""

        def tells(finding: Finding) -> bool:
            shown = finding.severity is not Severity.NOTE or finding.code == "clock_gold"
            return finding.code in UNDETERMINED and shown

        told = {finding.question_id for finding in findings if tells(finding)}
        each(same, [question["question_id"] in told for question in questions], expected)

    def keys(state: KeyState) -> list[list[str]]:
        return [[k.child, k.parent] for k in asked(path, check_foreign_keys) if k.state is state]

    def fk_mismatch(expected: list[list[str]]) -> None:
        same_bag(keys(KeyState.MISMATCH), expected)
        same(codes["fk_mismatch"], len(expected))

    def missing_parents(expected: list[str]) -> None:
        same_bag({parent for _, parent in keys(KeyState.MISSING_PARENT)}, expected)
        told = [f.message for f in findings if f.code == "missing_parents"]
        contains(told, expected)

    def fk_violations(expected: int) -> None:
        same(sum(asked(path, orphans_by_table).values()), expected)
        assert codes["fk_orphans"] or codes["missing_parents"] or not expected

    def tables(expected: Any) -> None:
        names = sorted(asked(path).table_names)
        same(report.rows.tables, len(names))
        same(*((len(names), expected) if isinstance(expected, int) else (names, sorted(expected))))

    def undecodable_cells(expected: int) -> None:
        same(sum(column.cells for column in asked(path, find_undecodable)), expected)
        same(sum(f.count for f in findings if f.code == "undecodable_text"), expected)

    errors = {f.code for f in findings if f.severity is Severity.ERROR}
    statuses = {*(FAILED if errors else ()), *(() if errors - ABOUT_THE_SIZE else ("ok",))}
    refused = [f for f in findings if f.code == "ddl_refused" and f.severity is not Severity.NOTE]
    texts = [f"{f.code} {f.message} {f.example}" for f in findings]
    return {
        "gold_status": gold_status,
        "gold_rows": lambda x: same(len(query(path, queries[0])), x),
        "empty_gold": lambda x: same(codes["empty_gold"] > 0, x),
        "trivial_gold": lambda x: same(codes["trivial_gold"] > 0, x),
        "nondeterministic": nondeterministic,
        "status": lambda x: holds(x in statuses, codes),
        "status_not": lambda x: holds(statuses - set(as_list(x)), codes),
        "error_contains": lambda x: says(texts, x),
        "fk_mismatch": fk_mismatch,
        "missing_parent_tables": missing_parents,
        "fk_violations_by_table": lambda x: same(
            asked(path, orphans_by_table), {table: count for table, count in x.items() if count}
        ),
        "fk_violations": fk_violations,
        "row_counts": lambda x: same({t: asked(path, count_table_rows)[t] for t in x}, x),
        "tables": tables,
        "median_rows_per_table": lambda x: same_number(report.rows.median, float(x)),
        "undecodable_cells": undecodable_cells,
        "undecodable_columns": lambda x: same_bag(
            [f"{one.table}.{one.column}" for one in asked(path, find_undecodable)], x
        ),
        "n_ddl_errors": lambda x: same(len(refused), x),
    }


_SAMPLE = """
import json, sys
from pathlib import Path
from envbuild.schema.read import read_schema_of
from envbuild.schema.sampler import sample_schema

path, gold, targets, seed = json.load(sys.stdin)
schema = read_schema_of(Path(path))
print(json.dumps([
    sample_schema(schema, set(gold), target=target, seed=seed).tables for target in targets
]))
"""


def graph(run: Run) -> Checks:
    """Edges, join paths, samples and the views of samples of a materialized schema."""
    given, path = run.given, run.folder / "case.sqlite"
    ddl, dialect = given.get("ddl", ""), given.get("ddl_dialect", "")
    build_database(DatabaseRecord(db_id="case", ddl=ddl, dialect=dialect), path)
    schema: Schema = asked(path)
    case_seed = int(given.get("seed", 0))
    golds = given.get("gold_tables", [])
    targets = as_list(given.get("targets", given.get("target", len(schema.tables))))

    def sample(target: int, seed: int = case_seed) -> tuple[str, ...]:
        found = sample_schema(
            schema,
            golds,
            target=target,
            seed=seed,
            distractors=given.get("distractors", "fk"),
            extra=given.get("extra"),
            full=bool(given.get("full", False)),
        )
        assert len(set(found.tables)) == len(found.tables)
        return found.tables

    def viewed() -> tuple[list[str], Schema]:
        """The tables and the schema that an agent finds in a view of the sample."""
        said, shown = use_tool(path, "list_tables", {}, given.get("sample") or sample(targets[0]))
        return said.result.splitlines(), shown

    def join_paths(expected: list[Any]) -> None:
        """In the view where the case names a sample, else in the whole database."""
        graph = SchemaGraph(viewed()[1] if "sample" in given else schema)
        for a, b, wanted in expected:
            found = graph.join_path(a, b)
            same(None if found is None else list(found), wanted)

    def first_edge(expected: dict[str, str | None]) -> None:
        """The first line of what the agent's `join_path` says."""
        for pair, edge in expected.items():
            a, b = (name.strip() for name in pair.split(","))
            names = {"table_a": a, "table_b": b}
            said, shown = use_tool(path, "join_path", names, given.get("sample"))
            assert not said.failed, said.result
            joined = SchemaGraph(shown).join_path(a, b) is not None
            same(said.result.splitlines()[0] if joined else None, edge)

    def allowed(expected: list[list[str]], target: str) -> None:
        """Whatever the seed, the sample is one of these."""
        for seed in (case_seed, *range(20)):
            assert sorted(sample(int(target), seed)) in list(map(sorted, expected))

    def hash_seeds(expected: bool) -> None:
        """The samples under every hash seed; where they agree, they are this process's too."""
        question = json.dumps([str(path), golds, targets, case_seed])
        found = {
            python("-c", _SAMPLE, input=question, PYTHONHASHSEED=str(hash_seed))
            for hash_seed in given.get("hashseeds", [0, 1])
        }
        assert [list(sample(target)) for target in targets] in map(json.loads, found)
        same(len(found) == 1, expected)

    def differs(expected: Any) -> None:
        """Some two of these seeds (a list, or as many from 0 on) give different samples."""
        count = 20 if isinstance(expected, bool) else expected
        seeds = expected if isinstance(expected, list) else range(count)
        found = {sample(target, seed) for target in targets for seed in seeds}
        same(len(found) > len(targets), expected is not False)

    def shown_tables(expected: list[str]) -> None:
        names, shown = viewed()
        same([sorted(names), sorted(shown.table_names)], [sorted(expected)] * 2)

    def shown_edges(expected: Any) -> None:
        """As edges, as `child.col -> parent.col`, or their number."""
        _, shown = viewed()
        assert not shown.missing_parents
        if isinstance(expected, int):
            same(len(shown.foreign_keys), expected)
        else:
            rendered = bool(expected) and isinstance(expected[0], str)
            same_bag(_rendered(shown) if rendered else _edges(shown), expected)

    return {
        "edges": lambda x: same_bag(_edges(schema), x),
        "n_edges": lambda x: same(len(schema.foreign_keys), x),
        "rendered": lambda x: same_bag(_rendered(schema), x),
        "missing_parents": lambda x: same_bag({m.parent for m in schema.missing_parents}, x),
        "nodes": lambda x: same_bag(schema.table_names, x),
        "join_paths": join_paths,
        "join_path_first_edge": first_edge,
        "sizes?": lambda x: each(same, [len(sample(target)) for target in targets], x),
        "must_contain": lambda x: [holds(set(x) <= set(sample(target))) for target in targets],
        r"target(\d+)_allowed": allowed,
        "identical_across_hashseeds": hash_seeds,
        "some_difference_for_seeds": differs,
        "tables": shown_tables,
        "edges_among_sample": shown_edges,
        "status": lambda x: same_status("ok", x),
    }


def _edges(schema: Schema) -> list[list[Any]]:
    return [
        [key.child, list(key.child_columns), key.parent, list(key.parent_columns)]
        for key in schema.foreign_keys
    ]


def _rendered(schema: Schema) -> list[str]:
    return [key.render() for key in schema.foreign_keys]
