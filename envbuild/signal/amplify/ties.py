"""Golds whose result rests on the order of equal rows under a LIMIT."""

from collections.abc import Callable

from envbuild.records.demand import Site
from envbuild.records.execution import QueryResult, Value
from envbuild.signal.amplify.scene import Scene, Values
from envbuild.sql.connect import Connection, iter_rows, quote_name
from envbuild.sql.undetermined.tie_breaks import (
    break_ties,
    columns_named,
    limit_sites,
    probe_columns,
)
from envbuild.sql.verdicts import equal_bag

MOST_TIED = 40
"""Groups looked at when a tie is broken; more singles than that are left tied."""
_PLAIN = ("=", "!=", "<", "<=", ">", ">=")


def rests_on_tie(sql: str, run: Callable[[str], QueryResult]) -> bool:
    """True where breaking ties upwards and downwards gives two different results (SIGNAL 4)."""
    # most golds have no LIMIT, and reading tokens costs as much as running one
    sites = limit_sites(sql) if "limit" in sql.lower() else ()
    if not sites:
        return False
    columns = [(site, columns_named(run(probe_columns(sql, site)).error)) for site in sites]
    up, down = (run(break_ties(sql, columns, direction=way)) for way in ("ASC", "DESC"))
    return up.ok and down.ok and not equal_bag(up.rows, down.rows)


def tied_groups(scene: Scene, connection: Connection) -> list[Values]:
    """The groups that share the extreme count under a scene's `ORDER BY count(*) LIMIT`.

    All but the one that should win for `asc`, the winner alone for `desc`; empty without a tie.
    """
    found = group_counts(scene, connection)
    tied = [values for count, values in found if count == found[0][0]]
    if len(tied) < 2:
        return []
    return tied[:1] if scene.frame.counted == "desc" else tied[1:]


def group_counts(scene: Scene, connection: Connection) -> list[tuple[int, Values]]:
    """Rows and key values of the groups a scene counts, in its order; the first few."""
    frame, over = scene.frame, scene.frame.counted_over
    keys = [site for site in frame.group if site[0] in over]
    if not frame.counted or not keys:
        return []
    listed = ", ".join(_named(scene, site) for site in keys)
    sources = ", ".join(
        f"{quote_name(scene.tables[number].table.name)} AS t{number}" for number in over
    )
    tests = [
        f"{_named(scene, left)} = {_named(scene, right)}"
        for left, right in frame.same
        if left[0] in over and right[0] in over
    ]
    bound: list[Value] = []
    for clause in frame.clauses:
        if len(clause) == 1 and len(clause[0]) == 1:
            condition = clause[0][0]
            known = condition.site[0] in over and condition.values and condition.expression == "v"
            if condition.op in _PLAIN and known:
                tests.append(f"{_named(scene, condition.site)} {condition.op} ?")
                bound.append(condition.values[0])
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    order = f" GROUP BY {listed} ORDER BY count(*) {frame.counted}, {listed} LIMIT {MOST_TIED}"
    sql = f"SELECT count(*), {listed} FROM {sources}{where}{order}"
    roots = [scene.class_of(site) for site in keys]
    return [
        (row[0], dict(zip(roots, row[1:], strict=True)))
        for row in iter_rows(connection, sql, tuple(bound))
    ]


def _named(scene: Scene, site: Site) -> str:
    table = scene.tables[site[0]]
    return f"t{site[0]}.{quote_name(site[1])}" if site[1].lower() in table.at else "NULL"
