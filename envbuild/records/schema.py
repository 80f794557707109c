"""A database's schema as SQLite itself reports it."""

import msgspec


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column."""

    name: str
    type: str
    """Declared type as written; may be empty."""
    not_null: bool = False
    primary_key: int = 0
    """1-based position in the primary key; 0 outside it."""
    generated: bool = False
    """Computed by SQLite, so never loaded."""
    default: str | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One ordinary table."""

    name: str
    """Declared spelling."""
    columns: tuple[Column, ...]
    sql: str
    """Its CREATE TABLE statement as written."""
    without_rowid: bool = False
    strict: bool = False

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the primary key's columns, in key order."""
        keyed = sorted((c.primary_key, c.name) for c in self.columns if c.primary_key)
        return tuple(name for _, name in keyed)


class ForeignKey(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One declared foreign key whose parent exists: an edge, composite keys as one."""

    child: str
    child_columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    """Resolved to the parent's primary key where the DDL names none."""

    def render(self) -> str:
        """`child.col -> parent.col`; composite columns in parentheses."""
        return f"{_side(self.child, self.child_columns)} -> " + _side(
            self.parent, self.parent_columns
        )


class MissingParent(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A declared foreign key that points at no table or at columns that cannot be resolved."""

    child: str
    child_columns: tuple[str, ...]
    parent: str


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """Tables in declared order, the edges among them, and what does not resolve."""

    tables: tuple[Table, ...]
    foreign_keys: tuple[ForeignKey, ...]
    """Sorted."""
    missing_parents: tuple[MissingParent, ...] = ()
    views: tuple[str, ...] = ()
    view_sql: tuple[str, ...] = ()
    """The CREATE VIEW statements, in the order of `views`; empty where they were not read."""

    @property
    def table_names(self) -> tuple[str, ...]:
        """Table names in declared order and spelling."""
        return tuple(table.name for table in self.tables)


class SampledSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The tables one question is asked over (CONTRACT 5)."""

    tables: tuple[str, ...]
    """In shown order."""
    gold_tables: tuple[str, ...]
    distractors: tuple[str, ...]
    """Sorted; tables less gold_tables."""
    target_size: int
    seed: int


def _side(table: str, columns: tuple[str, ...]) -> str:
    if len(columns) == 1:
        return f"{table}.{columns[0]}"
    return f"{table}.({', '.join(columns)})"
