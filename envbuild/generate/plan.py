"""The workspace of one database, planned: unique columns, value pools, references, table order."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from envbuild.generate.columns import LABELLED_COLUMNS, ColumnPlan, Probe, plan_column
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
Place = tuple[str, str]
"""(table, column), both lower case."""


def plan_workspace(
    workspace: Workspace,
    demands: Sequence[Demand],
    *,
    observed: bool,
    rng: Random,
    orphans: bool = False,
) -> dict[str, int]:
    """Plans every column and reference; returns each table's rank, parents first."""
    schema = workspace.schema
    pools = _pools(demands, schema)
    literals = _literals(demands, pools)
    spread = {
        (frame.sources[site[0]].lower(), site[1].lower())
        for demand in demands
        for frame in demand.frames
        for site, _ in frame.ordered
    }
    repeats = {
        (frame.sources[site[0]].lower(), site[1].lower())
        for demand in demands
        for frame in demand.frames
        for site in frame.repeats
    }
    references = _references(workspace, demands)
    probe = Probe()
    for name, table in workspace.tables.items():
        _plan_table(
            table,
            name,
            schema,
            literals,
            spread,
            repeats,
            references,
            observed=observed,
            rng=rng,
            probe=probe,
        )
    _void_references(workspace)
    _link_declared(workspace, orphans=orphans)
    _link_joined(workspace, demands)
    return _ranks(workspace)


def _plan_table(
    table: TableRows,
    name: str,
    schema: Schema,
    literals: dict[Place, list[Value]],
    spread: set[Place],
    repeats: set[Place],
    references: set[Place],
    *,
    observed: bool,
    rng: Random,
    probe: Probe,
) -> None:
    single = {key.positions[0] for key in table.keys if len(key.positions) == 1}
    columns = [column for column in table.table.columns if not column.generated]
    label = _label_of(columns)
    for position, column in enumerate(columns):
        place = (name, column.name.lower())
        plan = plan_column(
            column,
            [row[position] for row in table.rows],
            literals.get(place, ()),
            unique=position in single,
            observed=observed,
            label=position == label,
            repeats=place in repeats,
            reference=place in references,
            rng=rng,
            collation=table.collations[position],
            probe=probe,
        )
        plan.spread = place in spread
        table.plans.append(plan)
        if plan.unique and position not in single:
            key = Key((position,))
            key.taken = {
                (row[position],): number
                for number, row in enumerate(table.rows)
                if row[position] is not None
            }
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
    for _, begin, end in iter_code(ddl):
        text = ddl[begin:end]
        if start:
            depth += (text == "(") - (text == ")")
            if not depth:
                yield ddl[start:begin]
                start = 0
        elif check and text == "(":
            start, depth = end, 1
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


# pools: columns that golds join or compare share their literals


def _pools(demands: Sequence[Demand], schema: Schema) -> dict[Place, Place]:
    parent: dict[Place, Place] = {}

    def root(place: Place) -> Place:
        parent.setdefault(place, place)
        while parent[place] != place:
            place = parent[place]
        return place

    pairs = [pair for demand in demands for pair in demand.joined]
    pairs += [
        ((key.child, child), (key.parent, target))
        for key in schema.foreign_keys
        for child, target in zip(key.child_columns, key.parent_columns, strict=True)
    ]
    for left, right in pairs:
        parent[root(_place(left))] = root(_place(right))
    return {place: root(place) for place in parent}


def _literals(demands: Sequence[Demand], pools: dict[Place, Place]) -> dict[Place, list[Value]]:
    shared: dict[Place, list[Value]] = {}
    for demand in demands:
        for table, column, value, form in demand.literals:
            if form in ("", "same", "lower", "upper", "date") and not _is_pattern(value):
                place = (table.lower(), column.lower())
                shared.setdefault(pools.get(place, place), []).append(value)
    return {
        **shared,
        **{place: shared[root] for place, root in pools.items() if root in shared},
    }


def _is_pattern(value: Value) -> bool:
    return isinstance(value, str) and "%" in value


def _place(pair: tuple[str, str]) -> Place:
    return pair[0].lower(), pair[1].lower()


# references


def _references(workspace: Workspace, demands: Sequence[Demand]) -> set[Place]:
    """Columns that name rows of a table: by a declared key, or joined by a gold with such a key."""
    declared = {
        (key.child.lower(), child.lower())
        for key in workspace.schema.foreign_keys
        for child in key.child_columns
    }
    keys = {
        (name, table.names[key.positions[0]].lower())
        for name, table in workspace.tables.items()
        for key in table.keys
        if len(key.positions) == 1
    }
    pairs = [(_place(a), _place(b)) for demand in demands for a, b in demand.joined]
    joined = {a for pair in pairs for a, b in (pair, pair[::-1]) if a[0] != b[0] and b in keys}
    return declared | joined


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


def _link_joined(workspace: Workspace, demands: Sequence[Demand]) -> None:
    """Undeclared references: a joined column follows the other side where that one is a key."""
    seen: set[tuple[Place, Place]] = set()
    for demand in demands:
        for left, right in demand.joined:
            for child, parent in ((_place(left), _place(right)), (_place(right), _place(left))):
                if (child, parent) in seen or child[0] == parent[0]:
                    continue
                seen.add((child, parent))
                _link_loose(workspace, child, parent)


def _link_loose(workspace: Workspace, child: Place, parent: Place) -> None:
    one, two = workspace.tables[child[0]], workspace.tables[parent[0]]
    position, target = one.at.get(child[1]), two.at.get(parent[1])
    if position is None or target is None or position == one.serial:
        return
    if any(position in link.positions for link in one.links):
        return
    keyed = target == two.serial or any(key.positions == (target,) for key in two.keys)
    mine: ColumnPlan = one.plans[position]
    if keyed and not mine.unique:
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
