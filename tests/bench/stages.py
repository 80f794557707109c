"""The stages that prepare data: masks, gold tables, row counts, signal, manifests, commands."""

import itertools
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import mean, median

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from envbuild.corpora.synthetic import iter_shape, write_sqale
from envbuild.engine.fanout import run_shards
from envbuild.io.parquet import columns_of, write_batches
from envbuild.manifest.build import GROUP_OF_ROWS, regroup
from envbuild.manifest.read import ROW_SCHEMA
from envbuild.schema.read import read_schema
from envbuild.signal.evidence import open_variants
from envbuild.signal.mutants import draw_mutants
from envbuild.signal.score import MIN_VARIANTS, score_question
from envbuild.signal.tree import compiler_for
from envbuild.sql.connect import open_read_only
from envbuild.sql.execution.session import Session
from envbuild.sql.files.inspect import count_rows
from envbuild.sql.gold_tables import GoldTableReader
from envbuild.sql.mask import mask_sql
from tests.bench import Measured, line_of, take_turns
from tests.bench.inputs import build_shape, fill_tables, gold_queries, table_name
from tests.small_manifest import manifest_row

MASKED, MASKED_BY_PEER = 20_000, 1_000
GOLD_SHAPES = (("SQaLe-shaped", 10, 75, 60), ("SynSQL-shaped", 100, 8, 4))
"""(name, databases, tables a database, queries a database), as published."""
COUNTED_SHAPES = (("SynSQL-shaped", 600, 8, 2), ("SQaLe-shaped", 40, 75, 68))
"""(name, databases, tables a database, rows a table), as published."""
PART_ROWS, PARTS = 4096, 32
"""Rows of one part, as a manifest is built."""
GOLDS = 12
RECORDS = 30_000
"""Some 110 MB; the published file has 2,544,390 records and 9 GB."""
DATABASES, DISTINCT, WORKERS = 200, 25, 2
"""Of the whole command: databases, how many differ by more than their id, processes."""


def mask(rounds: int) -> Sequence[Measured]:
    """Masking gold SQL, beside sqlglot's parse + replace + generate."""
    texts = gold_queries(MASKED, tables=75)
    some = texts[:5000]
    ways = {
        "sqlglot": (lambda: list(map(mask_by_parsing, texts[:MASKED_BY_PEER])), MASKED_BY_PEER),
        "literals": (lambda: list(map(mask_sql, texts)), MASKED),
        "skeleton": (lambda: [mask_sql(sql, mode="skeleton") for sql in some], len(some)),
    }
    taken = take_turns(ways, rounds)
    size = f"SQL of {mean(map(len, texts)):.0f} characters"
    return [
        line_of(f"mask {name}: {size}", taken, name, "sqlglot", unit="query")
        for name in ("literals", "skeleton")
    ]


def mask_by_parsing(sql: str) -> str:
    """Parse, replace literals, generate: the usual way to mask; the text comes out respelled."""
    tree = sqlglot.parse_one(sql, dialect="sqlite")
    for literal in list(tree.find_all(exp.Literal)):
        literal.replace(exp.Placeholder())
    return tree.sql(dialect="sqlite")


def gold_tables(rounds: int) -> Sequence[Measured]:
    """SQLite's authorizer, each database opened once, beside sqlglot's scopes."""
    lines = []
    for name, databases, tables, queries in GOLD_SHAPES:
        with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
            work = [
                (
                    build_shape(Path(folder, f"{n}.sqlite"), tables=tables, seed=n),
                    gold_queries(queries, tables=tables, seed=n),
                )
                for n in range(databases)
            ]

            def by_authorizer(work: list[tuple[Path, list[str]]] = work) -> None:
                for path, golds in work:
                    with (
                        closing(open_read_only(path)) as connection,
                        GoldTableReader(connection) as reader,
                    ):
                        for sql in golds:
                            reader.read(sql)

            def by_scope(work: list[tuple[Path, list[str]]] = work) -> None:
                for _, golds in work:
                    for sql in golds:
                        tables_by_scope(sql)

            count = databases * queries
            ways = {"sqlglot": (by_scope, count), "authorizer": (by_authorizer, count)}
            taken = take_turns(ways, rounds)
        what = f"gold tables, {name}: {databases} databases, {count} queries"
        lines.append(line_of(what, taken, "authorizer", "sqlglot", unit="query"))
    return lines


def tables_by_scope(sql: str) -> set[str]:
    """The tables among every scope's sources; views are not followed."""
    tree = sqlglot.parse_one(sql, dialect="sqlite")
    return {
        source.name
        for scope in traverse_scope(tree)
        for source in scope.sources.values()
        if isinstance(source, exp.Table)
    }


def preflight(rounds: int) -> Sequence[Measured]:
    """Rows per table: scalar COUNT subqueries on immutable connections beside a COUNT loop."""
    lines = []
    for name, databases, tables, rows in COUNTED_SHAPES:
        with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
            paths = [Path(folder, f"{n}.sqlite") for n in range(databases)]
            build_shape(paths[0], tables=tables)
            fill_tables(paths[0], [rows] * tables)
            for path in paths[1:]:  # counting never looks at another file's pages
                shutil.copyfile(paths[0], path)
            assert count_rows(paths[0]) == _count_one_by_one(paths[0])
            counted = databases * tables
            ways = {
                "count loop": (lambda p=paths: list(map(_count_one_by_one, p)), counted),
                "count_rows": (lambda p=paths: list(map(count_rows, p)), counted),
            }
            taken = take_turns(ways, rounds)
        what = f"rows per table, {name}: {databases} databases, {counted} tables"
        lines.append(line_of(what, taken, "count_rows", "count loop", unit="table"))
    return lines


def _count_one_by_one(path: Path) -> dict[str, int]:
    """What a straightforward script does."""
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: connection.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0]
            for (name,) in names
        }


def signal(rounds: int) -> Sequence[Measured]:
    """Golds as long as SynSQL's: drawing their mutants, and running them on one database."""
    golds = gold_queries(GOLDS, tables=8)
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        path = build_shape(Path(folder, "shape.sqlite"), tables=8)
        fill_tables(path, [40] * 8)
        with Session.open_file(path) as session:
            schema = read_schema(session.connection)
            compiles = compiler_for(schema)
            score = partial(score_question, session=session, schema=schema, compiles=compiles)

            def score_with_variants() -> None:
                for gold in golds:
                    variants = open_variants(path, [gold], db_id="d", count=MIN_VARIANTS, seed=0)
                    score(gold, variants=variants)
                    for variant in variants:
                        variant.close()

            drawn = [len(draw_mutants(gold, schema, compiles=compiles).mutants) for gold in golds]
            ways = {
                f"drawing {mean(drawn):.0f} mutants": (
                    lambda: [draw_mutants(gold, schema, compiles=compiles) for gold in golds],
                    GOLDS,
                ),
                "score on one database": (lambda: list(map(score, golds)), GOLDS),
                f"score with {MIN_VARIANTS} variants": (score_with_variants, GOLDS),
            }
            taken = take_turns(ways, rounds)
    return [
        {"what": what, "ms_a_gold": round(median(times) / 1e3, 2)} for what, times in taken.items()
    ]


def manifest(rounds: int) -> Sequence[Measured]:
    """Writing a manifest: column batches streamed to Parquet, beside pyarrow from dictionaries."""
    rows = [
        manifest_row(
            f"bench/database_{number // 60}/{number:06}",
            question=f"Which customers of order {number} spent more than their region's mean?",
            gold_sql=sql,
            masked_length=len(sql),
            gold_tables=tuple(table_name(number + step) for step in range(3)),
            tables=tuple(table_name((number + step) % 75) for step in range(4 + number % 61)),
            literals=("'high'", "'low'", str(number)),
            database_sha256=f"{number // 60:064x}",
            gold_digest=f"{number:064x}",
        )
        for number, sql in enumerate(gold_queries(PART_ROWS, tables=75))
    ]
    batch = columns_of(rows, ROW_SCHEMA)
    dictionaries = batch.to_pylist()
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        ours, theirs = Path(folder, "ours.parquet"), Path(folder, "peer.parquet")

        def stream() -> None:
            parts = itertools.repeat(batch, PARTS)
            write_batches(ours, regroup(parts, rows=GROUP_OF_ROWS), ROW_SCHEMA)

        def write_dictionaries() -> None:
            table = pa.Table.from_pylist(dictionaries, schema=ROW_SCHEMA)
            pq.write_table(table, theirs, compression="zstd")

        ways = {
            "row dictionaries": (write_dictionaries, PART_ROWS),
            "streamed": (stream, PART_ROWS * PARTS),
        }
        taken = take_turns(ways, rounds)
    what = f"write a manifest: {PART_ROWS * PARTS:,} rows of {len(ROW_SCHEMA)} columns"
    return [line_of(what, taken, "streamed", "row dictionaries", unit="row")]


def _usage(command: Sequence[str | Path]) -> dict[str, float]:
    """CPU seconds of a program and its children, wall seconds, MiB of its largest process."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{command[0]} ended with {child.returncode}")
    wall = time.perf_counter() - began
    cpu = usage.ru_utime + usage.ru_stime
    return {"cpu_s": cpu, "wall_s": wall, "peak_mib": usage.ru_maxrss / 1024}


def _beside(
    what: str, commands: Mapping[str, Sequence[str | Path]], rounds: int, out: Path | None = None
) -> Measured:
    """Medians of two programs that take turns, and of the rounds' ratios; `out` is emptied."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            if out:
                shutil.rmtree(out, ignore_errors=True)
            runs[name].append(_usage(command))
    line: dict[str, object] = {"what": what}
    for name, found in runs.items():
        line |= {f"{name}_{key}": round(median(r[key] for r in found), 2) for key in found[0]}
    pairs = list(zip(*runs.values(), strict=True))
    for key in ("cpu_s", "wall_s"):
        line[f"less_{key[:-2]}"] = round(median(peer[key] / own[key] for own, peer in pairs), 2)
    return line


_READ_OURS = """
import sys
from pathlib import Path
from envbuild.corpora.benchmarks import SourceRecord
from envbuild.io.json_stream import iter_json
count = sum(1 for _ in iter_json(Path(sys.argv[1]), SourceRecord))
"""
_READ_WHOLE = """
import json, sys
with open(sys.argv[1], encoding="utf-8") as stream:
    count = len(json.load(stream))
"""


def read_json(rounds: int) -> Sequence[Measured]:
    """Reading SynSQL's data.json: our chunks beside `json.load`, and the memory each needs.

    A second file of twice the size shows whether the memory depends on it. Whole processes are
    measured, the start of Python included.
    """
    lines = []
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        for records in (RECORDS, 2 * RECORDS):
            path = Path(folder, f"{records}.json")
            _write_records(path, records)
            commands = {
                name: [sys.executable, "-c", program, path]
                for name, program in (("envbuild", _READ_OURS), ("json_load", _READ_WHOLE))
            }
            what = f"read data.json of {path.stat().st_size / 1e6:.0f} MB"
            lines.append(_beside(what, commands, rounds))
    return lines


def _write_records(path: Path, records: int) -> None:
    generator = random.Random(0)
    words = [f"word{n}" for n in range(500)]

    def text(count: int) -> str:
        return " ".join(generator.choices(words, k=count))

    with path.open("w", encoding="utf-8") as stream:
        for number in range(records):
            record = {
                "db_id": f"database_{number % 16000}",
                "sql_complexity": "Complex",
                "question_style": "Formal",
                "question": text(25),
                "external_knowledge": text(8),
                "cot": text(380),
                "sql": f"SELECT {text(40)} FROM t WHERE a = '}}, {{'",
            }
            stream.write((",\n  " if number else "[\n  ") + json.dumps(record, indent=2))
        stream.write("\n]\n")


def materialize(rounds: int) -> Sequence[Measured]:
    """`envbuild materialize` beside `sqale-extract` on SQaLe-shaped row payloads.

    The peer (SQaLe 0.2.0 from PyPI) runs where it is on PATH, or where $ENVBUILD_BENCH_SQALE says.
    """
    peer = os.environ.get("ENVBUILD_BENCH_SQALE") or shutil.which("sqale-extract")
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-") as folder:
        source, out = Path(folder, "source"), Path(folder, "out")
        # in another process: what this one held would count as its children's peak
        list(run_shards(_write_source, [str(source)], workers=2))
        schemas = source / "sqale2_schemas"
        own = [sys.executable, "-m", "envbuild", "materialize", schemas, "--quiet"]
        own += ["--workers", str(WORKERS), "--out", out]
        what = f"materialize {DATABASES} SQaLe-shaped databases, {WORKERS} workers"
        if peer:
            theirs = {"sqale_extract": [peer, "--input", schemas, "--output", out]}
        else:
            what += "; sqale-extract is not installed, so beside itself"
            theirs = {"again": own}
        return [_beside(what, {"envbuild": own, **theirs}, rounds, out)]


def _write_source(folder: str) -> None:
    databases = (
        msgspec.structs.replace(database, db_id=f"{database.db_id}_{copy}")
        for database, _ in iter_shape("sqale", databases=DISTINCT, seed=1)
        for copy in range(DATABASES // DISTINCT)
    )
    write_sqale(((database, ()) for database in databases), Path(folder))
