"""Capability FK graph+sampler: edges, join paths, samples and the views of samples."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.episode.toolbox import Toolbox
from envbuild.episode.views import open_database
from envbuild.materialize.build import build_database
from envbuild.records.corpus import DatabaseRecord
from envbuild.records.episode import EpisodeSettings
from envbuild.records.schema import ForeignKey, Schema
from envbuild.schema.graph import join_path
from envbuild.schema.read import read_schema
from envbuild.schema.sampler import sample_schema
from envbuild.sql.connect import open_read_only
from tests.cases.databases import environment
from tests.cases.form import Case, Checks, as_list, assert_status, each, equals, in_any_order

_SAMPLE = """
import json, sys
from pathlib import Path
from envbuild.schema.read import read_schema
from envbuild.schema.sampler import sample_schema
from envbuild.sql.connect import open_read_only

given = json.load(sys.stdin)
schema = read_schema(open_read_only(Path(given["path"])))
print(json.dumps([
    sample_schema(schema, set(given["gold"]), target=target, seed=given["seed"]).tables
    for target in given["targets"]
]))
"""


@dataclass(kw_only=True)
class Outcome:
    """The database and what is asked of it."""

    case: Case
    path: Path
    schema: Schema

    def sample(self, target: int, seed: int | None = None) -> tuple[str, ...]:
        """The tables of one sample."""
        given = self.case.input
        found = sample_schema(
            self.schema,
            given.get("gold_tables", ()),
            target=target,
            seed=int(given.get("seed", 0)) if seed is None else seed,
            distractors=given.get("distractors", "fk"),
            extra=given.get("extra"),
            full=bool(given.get("full", False)),
        )
        assert len(set(found.tables)) == len(found.tables)
        return found.tables

    @property
    def samples(self) -> list[tuple[str, ...]]:
        """A sample for every target."""
        return list(map(self.sample, self.targets))

    @property
    def targets(self) -> list[int]:
        """Every target the case names; the whole database where it names none."""
        given = self.case.input
        return as_list(given.get("targets", given.get("target", len(self.schema.tables))))


def run(case: Case, folder: Path) -> None:
    """Materializes the schema (whatever its dialect), reads it back, and checks."""
    record = DatabaseRecord(
        db_id="case",
        ddl=case.input.get("ddl", ""),
        dialect=case.input.get("ddl_dialect", ""),
    )
    path = folder / "case.sqlite"
    build_database(record, path)
    connection = open_read_only(path)
    schema = read_schema(connection)
    connection.close()
    CHECKS.check(Outcome(case=case, path=path, schema=schema), case.expected)


def _edge(key: ForeignKey) -> list[Any]:
    return [key.child, list(key.child_columns), key.parent, list(key.parent_columns)]


def _edges(schema: Schema) -> list[list[Any]]:
    return sorted(map(_edge, schema.foreign_keys), key=repr)


def _check_join_paths(outcome: Outcome, expected: list[Any]) -> None:
    """In the view where the case names a sample, else in the whole database."""
    schema = _viewed(outcome)[1] if "sample" in outcome.case.input else outcome.schema
    for a, b, path in expected:
        found = join_path(schema, a, b)
        assert (None if found is None else list(found)) == path, (a, b)


def _check_first_edges(outcome: Outcome, expected: dict[str, str]) -> None:
    """The first line of what the agent's `join_path` says."""
    database = open_database(outcome.path, outcome.case.input.get("sample"))
    try:
        for pair, edge in expected.items():
            a, b = (name.strip() for name in pair.split(","))
            said = Toolbox(database, EpisodeSettings()).run(
                "join_path", {"table_a": a, "table_b": b}
            )
            assert not said.failed, said.result
            if edge is None:
                assert join_path(database.schema.schema, a, b) is None
            else:
                assert said.result.splitlines()[0] == edge
    finally:
        database.close()


def _check_allowed(outcome: Outcome, expected: list[list[str]], match: re.Match[str]) -> None:
    """Whatever the seed, the sample is one of these."""
    allowed = [sorted(tables) for tables in expected]
    for seed in (int(outcome.case.input.get("seed", 0)), *range(20)):
        assert sorted(outcome.sample(int(match[1]), seed)) in allowed


def _is_identical(outcome: Outcome) -> bool:
    """The samples under every hash seed; where they agree, they are this process's too."""
    given = outcome.case.input
    question = json.dumps(
        {
            "path": str(outcome.path),
            "gold": given.get("gold_tables", []),
            "targets": outcome.targets,
            "seed": int(given.get("seed", 0)),
        }
    )
    found = {_sampled_under(str(seed), question) for seed in given.get("hashseeds", [0, 1])}
    here = json.loads(json.dumps([outcome.sample(target) for target in outcome.targets]))
    assert here in map(json.loads, found)
    return len(found) == 1


def _sampled_under(hashseed: str, question: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _SAMPLE],
        input=question,
        env=environment(PYTHONHASHSEED=hashseed),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return done.stdout


def _check_seed_difference(outcome: Outcome, expected: Any) -> None:
    """Some two of these seeds (a list, or as many from 0 on) give different samples."""
    if isinstance(expected, bool):
        seeds, differ = list(range(20)), expected
    else:
        seeds = list(range(expected)) if isinstance(expected, int) else list(expected)
        differ = True
    found = {outcome.sample(target, seed) for target in outcome.targets for seed in seeds}
    per_target = len(outcome.targets)
    assert (len(found) > per_target) is differ, found


def _viewed(outcome: Outcome) -> tuple[list[str], Schema]:
    """The tables and the schema that an agent finds in a view of the sample."""
    sample = outcome.case.input.get("sample") or list(outcome.sample(outcome.targets[0]))
    database = open_database(outcome.path, sample)
    try:
        said = Toolbox(database, EpisodeSettings()).run("list_tables", {})
        return said.result.splitlines(), database.schema.schema
    finally:
        database.close()


def _check_tables(outcome: Outcome, expected: list[str]) -> None:
    names, schema = _viewed(outcome)
    assert sorted(names) == sorted(expected) == sorted(schema.table_names)


def _check_edges_among(outcome: Outcome, expected: Any) -> None:
    """As edges, as `child.col -> parent.col`, or their number."""
    _, schema = _viewed(outcome)
    if isinstance(expected, int):
        assert len(schema.foreign_keys) == expected
        return
    named = expected and isinstance(expected[0], str)
    found = [key.render() for key in schema.foreign_keys] if named else _edges(schema)
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert not schema.missing_parents


CHECKS = Checks(
    inputs=(
        "ddl ddl_dialect gold_tables targets target seed hashseeds sample distractors extra full"
    ),
    by_key={
        "edges": lambda o, expected: equals(_edges)(o.schema, sorted(expected, key=repr)),
        "n_edges": equals(lambda o: len(o.schema.foreign_keys)),
        "rendered": in_any_order(lambda o: [key.render() for key in o.schema.foreign_keys]),
        "missing_parents": in_any_order(lambda o: {m.parent for m in o.schema.missing_parents}),
        "nodes": in_any_order(lambda o: o.schema.table_names),
        "join_paths": _check_join_paths,
        "join_path_first_edge": _check_first_edges,
        "sizes": equals(lambda o: [len(sample) for sample in o.samples]),
        "size": each(equals(len), lambda o: o.samples),
        "must_contain": lambda o, expected: equals(
            lambda o: [set(expected) - set(sample) for sample in o.samples]
        )(o, [set() for _ in o.targets]),
        "identical_across_hashseeds": equals(_is_identical),
        "some_difference_for_seeds": _check_seed_difference,
        "tables": _check_tables,
        "edges_among_sample": _check_edges_among,
        "status": lambda o, expected: assert_status("ok", expected),
    },
    by_pattern={r"target(\d+)_allowed": _check_allowed},
)
