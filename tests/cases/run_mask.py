"""Capability mask+bucket: one query's mask, and lengths in buckets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.buckets.edges import PUBLISHED_EDGES, bucket_of
from envbuild.schema.read import read_schema
from envbuild.sql.connect import open_read_only
from envbuild.sql.executor import Session
from envbuild.sql.text.mask import Masked, mask_sql
from tests.cases.databases import write_database
from tests.cases.form import Case, Check, Checks, as_list, assert_status, contains, equals, lacks


@dataclass(kw_only=True)
class Outcome:
    """One query masked, or lengths to be cut."""

    case: Case
    identifiers: frozenset[str] | None
    status: str = "ok"
    masked: Masked | None = None

    def mask(self, sql: str) -> str:
        """Another query's masked text, under the same conditions."""
        mode = self.case.input.get("mask", "literals")
        return mask_sql(sql, identifiers=self.identifiers, mode=mode).text

    @property
    def text(self) -> str:
        """The case's own masked text."""
        if self.masked is not None:
            return self.masked.text
        return str(self.case.input["masked_text"])

    @property
    def edges(self) -> list[int]:
        """Those of the case, else the published ones."""
        return list(self.case.input.get("edges", PUBLISHED_EDGES))


def run(case: Case, folder: Path) -> None:
    """Masks the query, where there is one, and checks."""
    identifiers, status = _identifiers(case, folder)
    outcome = Outcome(case=case, identifiers=identifiers, status=status)
    if "sql" in case.input:
        mode = case.input.get("mask", "literals")
        outcome.masked = mask_sql(case.input["sql"], identifiers=identifiers, mode=mode)
    CHECKS.check(outcome, case.expected)


def _identifiers(case: Case, folder: Path) -> tuple[frozenset[str] | None, str]:
    """The database's names, and what running the query there came to."""
    names = case.input.get("identifiers")
    known = None if names is None else frozenset(_names(names))
    if "ddl" not in case.input:
        return known, "ok"
    path = write_database(folder / "case.sqlite", case.input["ddl"])
    with Session.open_file(path) as session:
        status = session.run(case.input["sql"]).outcome.value if "sql" in case.input else "ok"
    if known is None:
        connection = open_read_only(path)
        schema = read_schema(connection)
        connection.close()
        tables = {table.name for table in schema.tables}
        known = frozenset(
            {c.name for t in schema.tables for c in t.columns} | tables | set(schema.views)
        )
    return known, status


def _names(names: Any) -> list[str]:
    """A list of names, or tables with their columns."""
    if isinstance(names, dict):
        return [*names, *(name for columns in names.values() for name in columns)]
    return list(names)


def _check_masks(*, same: bool) -> Check:
    def check(outcome: Outcome, expected: Any) -> None:
        for sql in as_list(expected):
            assert (outcome.mask(sql) == outcome.text) is same, sql

    return check


def _check_length(outcome: Outcome, expected: int) -> None:
    assert len(outcome.text) == expected
    assert outcome.masked is None or outcome.masked.length == expected


def _check_buckets(outcome: Outcome, expected: list[Any]) -> None:
    """`[[length, name], …]`, or the names of `masked_lengths` in their order."""
    lengths = outcome.case.input.get("masked_lengths", [])
    pairs = (
        expected
        if expected and isinstance(expected[0], list)
        else [list(pair) for pair in zip(lengths, expected, strict=True)]
    )
    found = [[length, bucket_of(length, outcome.edges)] for length, _ in pairs]
    assert found == pairs
    assert not lengths or sorted(lengths) == sorted(length for length, _ in pairs)


CHECKS = Checks(
    inputs="sql ddl identifiers masked_lengths edges masked_text mask",
    by_key={
        "literals": equals(lambda o: list(o.masked.literals)),
        "must_keep": contains(lambda o: o.text, exactly=True),
        "must_not_contain": lacks(lambda o: o.text),
        "same_mask_as": _check_masks(same=True),
        "different_mask_from": _check_masks(same=False),
        "masked": equals(lambda o: o.text),
        "masked_length": _check_length,
        "bucket": equals(lambda o: bucket_of(len(o.text), o.edges)),
        "buckets": _check_buckets,
        "status": lambda o, expected: assert_status(o.status, expected),
    },
)
