"""Which rows break declared foreign keys, by key; keys SQLite cannot check are named, not skipped.

`PRAGMA foreign_key_check` stops at a key whose parent columns are not unique ("foreign key
mismatch"), and then says nothing about the table's other keys. Here each key is checked by itself.
"""

from collections import defaultdict
from enum import StrEnum

import apsw
import msgspec

from envbuild.sql.connect import iter_rows, quote_name
from envbuild.sql.names import fold_name


class KeyState(StrEnum):
    """What became of checking one key."""

    CHECKED = "checked"
    MISSING_PARENT = "missing_parent"
    """The parent table does not exist, so every key value dangles."""
    MISMATCH = "mismatch"
    """The parent columns do not exist, are not unique, or cannot be compared here (a collation is
    missing); SQLite cannot check such a key."""


class KeyCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One declared foreign key and the rows that break it."""

    child: str
    child_columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    """As declared; empty where the key means the parent's primary key."""
    state: KeyState
    orphans: int = 0
    """Rows with a complete key value that no parent row has; 0 for a mismatch."""
    example: str = ""
    """One such key value."""

    def render(self) -> str:
        """`child.col -> parent.col`."""
        return f"{_side(self.child, self.child_columns)} -> " + (
            _side(self.parent, self.parent_columns) if self.parent_columns else self.parent
        )


def check_foreign_keys(connection: apsw.Connection) -> list[KeyCheck]:
    """Every declared key of the database, in (child, key) order. Reads rows, writes nothing."""
    tables = {
        fold_name(name): kind
        for name, kind in iter_rows(
            connection, "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view')"
        )
    }
    return [
        _check(connection, child, parent, pairs, tables)
        for child, parent, pairs in _declared_keys(connection)
    ]


def orphans_by_table(connection: apsw.Connection) -> dict[str, int]:
    """Child table -> its rows that break a key, counted once a key; tables without any left out.

    One pragma where SQLite can check every key, else key by key. Reads rows, writes nothing.
    """
    orphans: dict[str, int] = defaultdict(int)
    try:
        for child, *_ in iter_rows(connection, "PRAGMA main.foreign_key_check"):
            orphans[child] += 1
    except apsw.SQLError:  # a key that does not match its parent stops the pragma
        orphans.clear()
        for check in check_foreign_keys(connection):
            if check.orphans:
                orphans[check.child] += check.orphans
    return dict(orphans)


_Pairs = list[tuple[str, str | None]]


def _declared_keys(connection: apsw.Connection) -> list[tuple[str, str, _Pairs]]:
    rows = iter_rows(
        connection,
        r"""SELECT m.name, k.id, k."table", k."from", k."to"
        FROM sqlite_schema AS m, pragma_foreign_key_list(m.name, 'main') AS k
        WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\'
        ORDER BY m.name, k.id DESC, k.seq""",
    )
    keys: dict[tuple[str, int, str], _Pairs] = defaultdict(list)
    for child, key, parent, source, target in rows:
        keys[child, key, parent].append((source, target))
    return [(child, parent, pairs) for (child, _, parent), pairs in keys.items()]


def _check(
    connection: apsw.Connection, child: str, parent: str, pairs: _Pairs, tables: dict[str, str]
) -> KeyCheck:
    sources = tuple(source for source, _ in pairs)
    targets = tuple(target for _, target in pairs if target is not None)
    check = KeyCheck(
        child=child,
        child_columns=sources,
        parent=parent,
        parent_columns=targets,
        state=KeyState.CHECKED,
    )
    try:
        return _look(connection, check, tables)
    except apsw.SQLError:  # a module, a collation or a function that is not here
        return msgspec.structs.replace(check, state=KeyState.MISMATCH)


def _look(connection: apsw.Connection, check: KeyCheck, tables: dict[str, str]) -> KeyCheck:
    parent, sources = check.parent, check.child_columns
    present = " AND ".join(f"c.{quote_name(name)} IS NOT NULL" for name in sources)
    if fold_name(parent) not in tables:
        return _counted(connection, check, KeyState.MISSING_PARENT, present)
    resolved = _unique_target(connection, parent, check.parent_columns, len(sources))
    if tables[fold_name(parent)] == "view" or not resolved:
        return msgspec.structs.replace(check, state=KeyState.MISMATCH)
    # The `+` takes the child's own affinity away: the parent's decides, as it does for a key, and
    # the parent's index can be used.
    equal = " AND ".join(
        f"p.{quote_name(target)} = +c.{quote_name(source)}"
        for source, target in zip(sources, resolved, strict=True)
    )
    orphan = f"{present} AND NOT EXISTS (SELECT 1 FROM main.{quote_name(parent)} p WHERE {equal})"
    return _counted(connection, check, KeyState.CHECKED, orphan)


def _counted(
    connection: apsw.Connection, check: KeyCheck, state: KeyState, condition: str
) -> KeyCheck:
    shown = " || ', ' || ".join(f"quote(c.{quote_name(name)})" for name in check.child_columns)
    # The first in storage order; a bare column under min() would be dearer and no better.
    source = f"FROM main.{quote_name(check.child)} c WHERE {condition}"
    ((orphans,),) = iter_rows(connection, f"SELECT count(*) {source}")
    example = ""
    if orphans:
        ((found,),) = iter_rows(connection, f"SELECT CAST({shown} AS BLOB) {source} LIMIT 1")
        example = found.decode("utf-8", "replace")[:200]
    return msgspec.structs.replace(check, state=state, orphans=orphans, example=example)


def _unique_target(
    connection: apsw.Connection, parent: str, targets: tuple[str, ...], width: int
) -> tuple[str, ...]:
    """The parent columns a key resolves to, in key order; empty where SQLite calls a mismatch."""
    columns = list(
        iter_rows(connection, "SELECT name, pk FROM pragma_table_xinfo(?, 'main')", (parent,))
    )
    primary = [name for pk, name in sorted((pk, name) for name, pk in columns if pk)]
    if not targets:
        return tuple(primary) if len(primary) == width else ()
    spelled = {fold_name(name): name for name, _ in columns}
    wanted = [spelled.get(fold_name(target)) for target in targets]
    found = tuple(name for name in wanted if name is not None)
    if len(found) != width:
        return ()
    unique, keyed = _unique_indexes(connection, parent)
    row_id = len(primary) == 1 and not keyed  # an INTEGER PRIMARY KEY, which has no index
    return found if sorted(found) in unique or (row_id and list(found) == primary) else ()


def _unique_indexes(connection: apsw.Connection, table: str) -> tuple[list[list[str]], bool]:
    """The sorted columns of every index that a key may refer to, and whether one is the primary's.

    One whose column has another collation than the table declares is of no use to a key.
    """
    rows = iter_rows(
        connection,
        """SELECT l.name, l.origin, x.name, x.coll FROM pragma_index_list(?, 'main') AS l,
        pragma_index_xinfo(l.name) AS x WHERE l."unique" AND NOT l.partial AND x.key""",
        (table,),
    )
    indexes: dict[str, list[str]] = defaultdict(list)
    keyed, useless = False, set()
    for index, origin, column, collation in rows:
        keyed = keyed or origin == "pk"
        indexes[index].append(column or "")
        declared = connection.column_metadata("main", table, column)[1] if column else ""
        if collation.lower() != declared.lower():
            useless.add(index)
    return [sorted(columns) for name, columns in indexes.items() if name not in useless], keyed


def _side(table: str, columns: tuple[str, ...]) -> str:
    if len(columns) == 1:
        return f"{table}.{columns[0]}"
    return f"{table}.({', '.join(columns)})"
