"""One table's payload rows into the table: fast where they are plain, exact where they are not."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from envbuild.io.packed import RefusedCellError, UndecodableText
from envbuild.materialize.payload import PayloadTable
from envbuild.materialize.values import (
    PLAIN_TYPES,
    affinity_of,
    bindable,
    changed_cells,
    fixed_defaults,
)
from envbuild.records.corpus import Reject, Table
from envbuild.records.execution import Row
from envbuild.sql.connect import Connection
from envbuild.sql.files.create import LARGEST_ID, ids_left, insert_rows, insert_sql
from envbuild.sql.names import fold_name

_Positioned = tuple[int, Any]
"""A row with its position within the payload's list."""


class TableLoad:
    """Loads one table's rows; afterwards `offered`, `refused` and `rejects` say what happened."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.offered = 0
        self.refused = 0
        self.undecodable = 0
        """Text cells stored that are not UTF-8."""
        self.rejects: list[Reject] = []
        self._loaded = [c for c in table.columns if not c.generated]
        self._loadable = {c.name for c in self._loaded}
        self._affinities = {
            c.name: "blob" if table.strict and c.type.upper() == "ANY" else affinity_of(c.type)
            for c in self._loaded
        }
        self._fixed = fixed_defaults(self._loaded)
        self._by_name = {fold_name(column.name): column for column in table.columns}
        keyed = [column for column in table.columns if column.primary_key]
        is_id = len(keyed) == 1 and keyed[0].type.upper() == "INTEGER"
        self._id_column = keyed[0].name if is_id else None
        """The column that is the row id itself."""
        self._columns_noted: dict[tuple[str, str], tuple[int, str, int]] = {}
        """(reason, column) -> place of its one note in `rejects`, the first cell, how many."""

    def load(self, connection: Connection, given: PayloadTable) -> None:
        """Inserts what the table takes. Raises OSError for a full disk."""
        if given.rows is None:
            return
        if not isinstance(given.rows, list):
            self.offered += 1
            self._refuse(0, "rows_not_list", f"the rows are a {type(given.rows).__name__}")
            return
        rows = given.rows
        self.offered += len(rows)
        if rows and not given.loose and not given.packed and self._load_plainly(connection, rows):
            return
        kinds = groupby(enumerate(rows), key=lambda positioned: type(positioned[1]))
        for kind, positioned in kinds:
            if kind is dict:
                self._load_objects(connection, list(positioned), given.packed)
            elif kind is list:
                self._load_objects(connection, list(self._objects_of(positioned)), given.packed)
            else:
                for position, row in positioned:
                    self._refuse(position, "row_not_object", f"a row is a {type(row).__name__}")

    def _load_plainly(self, connection: Connection, rows: list[Any]) -> bool:
        """The common case in one sweep: objects of the same keys, the first one's cells plain.

        A later cell that is not plain cannot be bound, and is mended then.
        """
        first = rows[0]
        if type(first) is not dict or not first or set(map(type, rows)) != {dict}:
            return False
        if not PLAIN_TYPES.issuperset(map(type, first.values())):
            return False
        if set(map(len, rows)) != {len(first)} or not self._loadable.issuperset(first):
            return False
        try:
            values = list(map(_pick(list(first)), rows))
        except KeyError:
            return False
        self._insert(connection, list(first), values, range(len(rows)))
        return True

    def _load_objects(
        self, connection: Connection, rows: Sequence[_Positioned], packed: bool
    ) -> None:
        """Keys may differ from row to row: their union is loaded, what a row lacks is NULL.

        But a column that is NOT NULL and has a DEFAULT is left to it in the rows without a value.
        """
        columns = self._columns_of(rows)
        names = list(dict.fromkeys(columns.values()))
        defaulted = {
            c.name for c in self._loaded if c.not_null and c.default is not None and c.name in names
        }
        prepared = []
        for position, row in rows:
            try:
                cells = {
                    columns[key]: self._cell(value, position, packed)
                    for key, value in row.items()
                    if key in columns
                }
            except RefusedCellError as e:
                self._refuse(position, str(e), "")
                continue
            kept = [name for name in names if name in cells or name not in defaulted]
            prepared.append((position, kept, tuple(cells.get(name) for name in kept)))
        # neighbouring rows of the same columns go in together: the order of rows is kept
        for (shape, as_text), group in groupby(prepared, key=_shape):
            run = list(group)
            values = [tuple(map(_bytes, cells)) for _, _, cells in run]
            self._insert(connection, shape, values, [position for position, *_ in run], as_text)

    def _columns_of(self, rows: Sequence[_Positioned]) -> dict[str, str]:
        """Key -> column; unknown keys and second spellings of a column lose their cells."""
        keys: dict[str, int] = {}
        for position, row in rows:
            for key in row:
                keys.setdefault(key, position)
        columns: dict[str, str] = {}
        taken: set[str] = set()
        exact = {column.name for column in self.table.columns}
        for key in sorted(keys, key=lambda k: k not in exact):
            column = self._by_name.get(fold_name(key))
            if column is None:
                self._note("cell", keys[key], "unknown_column", f"the table has no column {key!r}")
            elif column.name in taken:
                self._note(
                    "cell", keys[key], "duplicate_column", f"{key!r} is {column.name!r} again"
                )
            else:
                taken.add(column.name)
                if not column.generated:
                    columns[key] = column.name
        return {key: columns[key] for key in keys if key in columns}

    def _objects_of(self, rows: Iterable[_Positioned]) -> Iterator[_Positioned]:
        """Lists as objects, by declared order; with or without the generated columns."""
        everything = [column.name for column in self.table.columns]
        loaded = [column.name for column in self._loaded]
        for position, row in rows:
            if len(row) not in (len(everything), len(loaded)):
                detail = f"{len(row)} values for {len(loaded)} columns"
                self._refuse(position, "ragged_row", detail)
            else:
                names = everything if len(row) == len(everything) else loaded
                yield position, dict(zip(names, row, strict=True))

    def _insert(
        self,
        connection: Connection,
        names: Sequence[str],
        values: Sequence[Row],
        positions: Sequence[int],
        as_text: Sequence[bool] = (),
    ) -> None:
        if left := [name for name in self._fixed if name not in names]:
            names, as_text = [*names, *left], [*as_text, *(False for _ in left)] if as_text else ()
            cells = tuple(self._fixed[name] for name in left)
            values = [(*row, *cells) for row in values]
            for name, cell in zip(left, cells, strict=True):
                said = f"{name}: {cell!r} for a default that changes"
                self._note_column("fixed_default", name, positions[0], said, len(values))
        if self._may_run_out_of_ids(connection, names, values):
            for row, position in zip(values, positions, strict=True):
                given: dict[str | None, Any] = dict(zip(names, row, strict=True))
                if given.get(self._id_column) is None and not self._ids_left(connection):
                    self._refuse(position, "no_id_left", "the largest id is taken")
                else:
                    self._insert_all(connection, names, [row], [position], as_text)
        else:
            self._insert_all(connection, names, values, positions, as_text)

    def _insert_all(
        self,
        connection: Connection,
        names: Sequence[str],
        values: Sequence[Row],
        positions: Sequence[int],
        as_text: Sequence[bool],
    ) -> None:
        sql = insert_sql(self.table.name, names, as_text=as_text)

        def mend(row: Row) -> Row:
            return tuple(self._cell(value, -1, False) for value in row)

        self.undecodable += sum(as_text) * len(values)
        for refusal in insert_rows(connection, sql, values, mend=mend):
            self.undecodable -= sum(as_text)
            self._refuse(positions[refusal.position], refusal.reason, refusal.detail)
        for place, name in enumerate(names):
            affinity = self._affinities[name]
            if affinity == "text" or affinity == "blob":
                continue
            column = list(map(itemgetter(place), values))
            if changed := changed_cells(column, affinity):
                said = f"{name} ({affinity}): {changed.given!r} is {changed.stored!r}"
                position = positions[changed.position]
                self._note_column("changed_by_affinity", name, position, said, changed.cells)

    def _ids_left(self, connection: Connection) -> int:
        return ids_left(connection, self.table.name, [c.name for c in self.table.columns])

    def _may_run_out_of_ids(
        self, connection: Connection, names: Sequence[str], values: Sequence[Row]
    ) -> bool:
        """Whether some row without an id may come after the largest id."""
        if self.table.without_rowid:
            return False
        given: list[Any] = [None]
        if self._id_column in names:
            given = list(map(itemgetter(names.index(self._id_column)), values))
        return None in given and (
            self._ids_left(connection) < len(values) or any(map(_is_huge, given))
        )

    def _note_column(self, reason: str, name: str, position: int, detail: str, cells: int) -> None:
        """One note a column and reason: its first cell, and how many there are."""
        if (reason, name) not in self._columns_noted:
            self._columns_noted[reason, name] = len(self.rejects), detail, 0
            self._note("cell", position, reason, "")
        place, first, before = self._columns_noted[reason, name]
        self._columns_noted[reason, name] = place, first, before + cells
        shown = f"{first}; {before + cells} cells"
        self.rejects[place] = msgspec.structs.replace(self.rejects[place], detail=shown)

    def _cell(self, value: Any, position: int, packed: bool) -> Any:
        return bindable(
            value, packed=packed, report=lambda reason: self._note("cell", position, reason, "")
        )

    def _refuse(self, position: int, reason: str, detail: str) -> None:
        self.refused += 1
        self._note("row", position, reason, detail)

    def _note(self, kind: str, position: int, reason: str, detail: str) -> None:
        self.rejects.append(
            Reject(kind=kind, table=self.table.name, index=position, reason=reason, detail=detail)
        )


def unknown_table(given: PayloadTable) -> Iterator[Reject]:
    """The rows of a table that the database does not have: each one is refused."""
    rows = given.rows if isinstance(given.rows, list) else [given.rows]
    for position in range(len(rows) if given.rows is not None else 0):
        yield Reject(
            kind="row",
            table=given.name,
            index=position,
            reason="unknown_table",
            detail="the DDL makes no table of this name",
        )


def _pick(keys: list[str]) -> Callable[[dict[str, Any]], Row]:
    """From an object to its cells in the order of `keys`; KeyError where one is absent."""
    if len(keys) == 1:
        return lambda row: (row[keys[0]],)
    return itemgetter(*keys)


def _is_huge(value: Any) -> bool:
    """Whether ids that count on from this one, of whatever type, may reach the largest."""
    try:
        return float(value) >= LARGEST_ID // 2
    except OverflowError:
        return True
    except (TypeError, ValueError):
        return False


def _shape(prepared: tuple[int, list[str], Row]) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    _, names, cells = prepared
    undecodable = tuple(isinstance(cell, UndecodableText) for cell in cells)
    return tuple(names), undecodable if any(undecodable) else ()


def _bytes(cell: Any) -> Any:
    return cell.raw if isinstance(cell, UndecodableText) else cell
