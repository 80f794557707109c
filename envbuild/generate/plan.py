"""The workspace of one database, planned: column plans, keys seen, references, table order."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from networkx.utils import UnionFind

from envbuild.generate.columns import ColumnPlan, Probe, kind_of, stored, value_range
from envbuild.generate.tables import MAX_ROWS_READ, Key, Link, TableRows, Workspace
from envbuild.materialize.values import affinity_of
from envbuild.query.demand import read_check
from envbuild.records.corpus import Column, ForeignKey, Schema
from envbuild.records.execution import Value
from envbuild.records.signal import Condition, Demand
from envbuild.sql.connect import iter_rows, quote_name
from envbuild.sql.tokens import iter_code

LARGEST_ORPHAN = 2**53
"""Orphans up to this value are stepped over by new keys; a larger one is no count."""
UNIQUE_FROM = 10
"""Rows without a repeat from which any column counts as unique by observation."""
LABELLED_COLUMNS = 3
"""Most columns of a dictionary table: a key, its label, and perhaps one more."""
NAME_LIKE = re.compile(r"(name|title|code|e_?mail|phone)", re.IGNORECASE)
"""Columns that people keep unique without declaring it (SIGNAL 7)."""
NAME_PART = re.compile(
    r"(first|last|middle|given|family|fore|sur)[ _]?name|^[fl]_?name$", re.IGNORECASE
)
"""Parts of a person's name: they repeat."""
Place = tuple[str, str]
"""(table, column), both lower case."""


def plan_workspace(
    workspace: Workspace,
    demands: Sequence[Demand],
    *,
    observed: bool,
    rng: Random,
    orphans: bool = False,
) -> None:
    """Plans every column and reference, and ranks the tables, parents first.

    `observed` also keeps what the rows show without the DDL saying so: no NULL, no repeat; that
    every row of few points at a reference of its own shows nothing of the kind.
    """
    asked = _read_asked(workspace, demands)
    probe = Probe()
    for table in workspace.tables.values():
        _plan_table(table, asked, workspace.schema, observed=observed, rng=rng, probe=probe)
    _void_references(workspace)
    _link_declared(workspace, orphans=orphans)
    for left, right in dict.fromkeys(pair for demand in demands for pair in demand.joined):
        _link_joined(workspace, _place(left), _place(right))
        _link_joined(workspace, _place(right), _place(left))
    workspace.ranks = _ranks(workspace)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What all golds together say of columns."""

    literals: dict[Place, list[Value]]
    """What each is compared with; columns that golds or keys join share theirs."""
    spread: set[Place]
    """Columns that decide what a LIMIT keeps."""
    repeats: set[Place]
    """Columns counted with DISTINCT."""
    references: set[Place]
    """Columns that name rows of a table: by a declared key, or joined with such a key."""


def _read_asked(workspace: Workspace, demands: Sequence[Demand]) -> _Asked:
    frames = [frame for demand in demands for frame in demand.frames]
    keys = [
        ((key.child.lower(), child.lower()), (key.parent.lower(), parent.lower()))
        for key in workspace.schema.foreign_keys
        for child, parent in zip(key.child_columns, key.parent_columns, strict=True)
    ]
    joined = [(_place(a), _place(b)) for demand in demands for a, b in demand.joined]
    pools = UnionFind()
    for pair in (*joined, *keys):
        pools.union(*pair)
    shared: dict[Place, list[Value]] = {}
    for demand in demands:
        for table, column, value, form in demand.literals:
            pattern = isinstance(value, str) and "%" in value
            if form in ("", "same", "lower", "upper", "date") and not pattern:
                shared.setdefault(pools[table.lower(), column.lower()], []).append(value)
    unique = {
        (name, table.names[key.positions[0]].lower())
        for name, table in workspace.tables.items()
        for key in table.keys
        if len(key.positions) == 1
    }
    followed = {a for p in joined for a, b in (p, p[::-1]) if a[0] != b[0] and b in unique}
    return _Asked(
        literals={place: shared[pools[place]] for place in pools if pools[place] in shared},
        spread={_place((f.sources[at], name)) for f in frames for (at, name), _ in f.ordered},
        repeats={_place((f.sources[at], name)) for f in frames for at, name in f.repeats},
        references=followed | {child for child, _ in keys},
    )


def _place(pair: tuple[str, str]) -> Place:
    return pair[0].lower(), pair[1].lower()


def _plan_table(
    table: TableRows, asked: _Asked, schema: Schema, *, observed: bool, rng: Random, probe: Probe
) -> None:
    single = {key.positions[0] for key in table.keys if len(key.positions) == 1}
    columns = [column for column in table.table.columns if not column.generated]
    label = _label_of(columns)
    for position, column in enumerate(columns):
        place = _place((table.table.name, column.name))
        affinity = affinity_of(column.type)
        values = [row[position] for row in table.rows]
        known: list[Value] = [v for v in values if v is not None]
        wanted = [stored(v, affinity) for v in asked.literals.get(place, ()) if v is not None]
        kind = kind_of(column.name, column.type, known, wanted)
        low, high = value_range(kind, column.name, known, wanted)
        nulls = (len(values) - len(known)) / len(values) if values else 0.0
        if not observed:
            nulls = max(nulls, 0.08)
        plan = ColumnPlan(
            affinity=affinity,
            kind=kind,
            existing=known,
            low=low,
            high=high,
            not_null=column.not_null,
            nulls=0.0 if column.not_null or column.primary_key else min(nulls, 0.25),
            unique=position in single,
            spread=place in asked.spread,
            pattern=next((v for v in wanted if isinstance(v, str) and "%" not in v), ""),
            collation=table.collations[position],
            probe=probe,
        )
        names_a_row = position == label or (
            NAME_LIKE.search(column.name) and not NAME_PART.search(column.name)
        )
        if observed and not plan.unique and place not in asked.references:
            rows = 2 if names_a_row and place not in asked.repeats else UNIQUE_FROM
            plan.unique = len(set(known)) == len(known) >= rows
        for value in dict.fromkeys(wanted):
            near = [plan.beside(value, rng), plan.beside(value, rng)]
            # where a value comes only once, it is left to the scenario that asks for it
            plan.literals += near if plan.unique else [value, value, *near]
        table.plans.append(plan)
        if plan.unique and position not in single:
            key = Key((position,))
            key.taken.update({(v,): n for n, v in enumerate(values) if v is not None})
            table.keys.append(key)
    for expression in iter_checks(table.table.sql):
        for clause in read_check(expression, table.table.name, schema):
            if len(clause) == 1 and len(clause[0]) == 1:
                _restrict(table, clause[0][0])


def _label_of(columns: Sequence[Column]) -> int | None:
    """The position of a dictionary table's label: the one text column beside a key of its own."""
    if len(columns) > LABELLED_COLUMNS or sum(c.primary_key > 0 for c in columns) != 1:
        return None
    texts = [
        position
        for position, column in enumerate(columns)
        if not column.primary_key and affinity_of(column.type) == "text"
    ]
    return texts[0] if len(texts) == 1 else None


def iter_checks(ddl: str) -> Iterator[str]:
    """The expressions of a CREATE TABLE's CHECK constraints."""
    start, depth, check = 0, 0, False
    for _, text, begin in iter_code(ddl):
        if start:
            depth += (text == "(") - (text == ")")
            if not depth:
                yield ddl[start:begin]
                start = 0
        elif check and text == "(":
            start, depth = begin + 1, 1
        check = text.upper() == "CHECK"


def _restrict(table: TableRows, condition: Condition) -> None:
    position = table.at.get(condition.site[1].lower())
    if position is None or condition.expression != "v":
        return
    plan, values = table.plans[position], condition.values
    if condition.op in ("in", "="):
        plan.allowed = values
    numbers = [v for v in values if isinstance(v, int | float)]
    if condition.op == "between" and len(numbers) == 2:
        plan.low, plan.high = float(numbers[0]), float(numbers[1])
    elif condition.op in (">", ">=") and numbers:
        plan.low = numbers[0] + (condition.op == ">")
        plan.high = max(plan.high, plan.low + 10)
    elif condition.op in ("<", "<=") and numbers:
        plan.high = numbers[0] - (condition.op == "<")
        plan.low = min(plan.low, plan.high)


def _void_references(workspace: Workspace) -> None:
    """Marks references to tables that SQLite does not find: any value would be an orphan."""
    sql = """SELECT m.name, k.id, k."from"
        FROM sqlite_schema AS m, pragma_foreign_key_list(m.name) AS k
        WHERE m.type = 'table' AND NOT EXISTS (
            SELECT 1 FROM sqlite_schema AS p
            WHERE p.name = k."table" COLLATE NOCASE AND p.type = 'table')
        ORDER BY m.name, k.id, k.seq"""
    keys: dict[tuple[str, int], list[str]] = {}
    for name, number, column in iter_rows(workspace.connection, sql):
        keys.setdefault((name, number), []).append(column)
    for (name, _), columns in keys.items():
        if (table := workspace.tables.get(name.lower())) is None:
            continue
        nullable = [
            position
            for position in _positions(table, columns)
            if not table.plans[position].not_null and position not in table.keyed
        ]
        table.void.update(nullable[:1])
        table.closed = table.closed or not nullable


def _link_declared(workspace: Workspace, *, orphans: bool) -> None:
    for key in workspace.schema.foreign_keys:
        child = workspace.tables[key.child.lower()]
        parent = workspace.tables[key.parent.lower()]
        positions = _positions(child, key.child_columns)
        targets = _positions(parent, key.parent_columns)
        if positions and targets and not child.void.intersection(positions):
            found = _orphans(workspace, key)
            for value in (row[0] for row in found if targets == (parent.counter,)):
                # a new parent's key must not be what an old orphan points at
                if isinstance(value, int) and parent.next_serial <= value < LARGEST_ORPHAN:
                    parent.next_serial = value + 1
            child.links.append(Link(positions, parent, targets, orphans=found if orphans else ()))
    for table in workspace.tables.values():
        # an overlapping key with more columns leaves less choice: follow it first
        table.links.sort(key=lambda link: (-len(link.positions), link.positions))


def _orphans(workspace: Workspace, key: ForeignKey) -> list[tuple[Value, ...]]:
    """The values of a reference that no row of its parent has, repeats kept."""
    child = [quote_name(name) for name in key.child_columns]
    parent = [quote_name(name) for name in key.parent_columns]
    # `+` takes the child's affinity away: a key is compared with the parent's
    sql = (
        f"SELECT {', '.join(child)} FROM {quote_name(key.child)}"
        f" WHERE {' AND '.join(f'{name} IS NOT NULL' for name in child)}"
        f" AND ({', '.join(f'+{name}' for name in child)}) NOT IN"
        f" (SELECT {', '.join(parent)} FROM {quote_name(key.parent)}"
        f" WHERE {' AND '.join(f'{name} IS NOT NULL' for name in parent)})"
        f" LIMIT {MAX_ROWS_READ}"
    )
    try:
        return list(iter_rows(workspace.connection, sql))
    except UnicodeDecodeError:
        return []


def _positions(table: TableRows, columns: Iterable[str]) -> tuple[int, ...]:
    found = [table.at.get(column.lower()) for column in columns]
    return tuple(p for p in found if p is not None) if None not in found else ()


def _link_joined(workspace: Workspace, child: Place, parent: Place) -> None:
    """An undeclared reference: a joined column follows the other side where that one is a key."""
    one, two = workspace.tables[child[0]], workspace.tables[parent[0]]
    position, target = one.at.get(child[1]), two.at.get(parent[1])
    if one is two or position is None or target is None or position == one.serial:
        return
    linked = any(position in link.positions for link in one.links)
    keyed = target == two.serial or any(key.positions == (target,) for key in two.keys)
    if keyed and not linked and not one.plans[position].unique:
        one.links.append(Link((position,), two, (target,), declared=False))


def _ranks(workspace: Workspace) -> dict[str, int]:
    """Parents before children; within a cycle by declared order."""
    waiting = {
        name: {link.parent.table.name.lower() for link in table.links if link.parent is not table}
        for name, table in workspace.tables.items()
    }
    ranks: dict[str, int] = {}
    while waiting:
        ready = [name for name, parents in waiting.items() if not parents & waiting.keys()]
        chosen = ready or [min(waiting, key=lambda n: len(waiting[n] & waiting.keys()))]
        for name in chosen:
            ranks[name] = len(ranks)
            del waiting[name]
    return ranks
