"""One episode's database: a session on its view, and what the tools know about its schema."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from envbuild.records.corpus import Schema
from envbuild.sql.executor import Session
from envbuild.sql.names import declared_spelling, fold_name

if TYPE_CHECKING:
    from envbuild.schema.graph import SchemaGraph


class ViewSchema:
    """What a view holds; read once and shared by every episode on the same view."""

    def __init__(
        self, schema: Schema, *, shown: Sequence[str] = (), virtual: Sequence[str] = ()
    ) -> None:
        self.schema = schema
        spelling = declared_spelling((*schema.table_names, *virtual, *schema.views))
        in_order = [spelling[name] for name in map(fold_name, shown) if name in spelling]
        self.tables: tuple[str, ...] = tuple(dict.fromkeys((*in_order, *spelling.values())))
        """Every table in shown order, then views."""
        self.spelling = spelling
        """Folded name -> declared name."""

    @cached_property
    def graph(self) -> "SchemaGraph":
        """The foreign-key graph."""
        from envbuild.schema.graph import SchemaGraph  # networkx, for join_path alone

        return SchemaGraph(self.schema)

    def find(self, name: str) -> str | None:
        """The declared spelling of a table or view, matched as SQLite does; None where none is."""
        return self.spelling.get(fold_name(name))


class EpisodeDatabase:
    """A session on a view and its schema; closing it closes the session."""

    def __init__(self, session: Session, schema: Callable[[], ViewSchema]) -> None:
        self.session = session
        self._read_schema = schema
        self._schema: ViewSchema | None = None

    @property
    def schema(self) -> ViewSchema:
        """The view's schema, asked for at first use."""
        if self._schema is None:
            self._schema = self._read_schema()
        return self._schema

    def close(self) -> None:
        """Releases the session; a second call does nothing."""
        self.session.close()
