"""Running a checked tool call on an episode's database.

Whatever a policy asks ends in a `ToolCall` with text for it to read; nothing here raises for it.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from envbuild.episode.database import EpisodeDatabase
from envbuild.episode.render import cap_text, render_cell, render_rows
from envbuild.episode.tools import nearest
from envbuild.records.corpus import ForeignKey
from envbuild.records.episode import EpisodeSettings, ToolCall
from envbuild.records.execution import Outcome, QueryResult
from envbuild.sql.connect import quote_name
from envbuild.sql.names import fold_name


class Toolbox:
    """The exploring tools over one database; submit_sql is the protocol's."""

    def __init__(self, database: EpisodeDatabase, settings: EpisodeSettings) -> None:
        self.database = database
        self.settings = settings

    def run(self, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
        """What a call with valid arguments came to. Raises KeyError for another tool's name."""
        try:
            done = _TOOLS[tool](self, **arguments)
        except _RefusedError as e:
            done = ToolCall(tool=tool, result=f"Error: {e}", failed=True)
        result = cap_text(done.result, self.settings.observation_characters)
        return msgspec.structs.replace(done, tool=tool, result=result)

    def runs(self, sql: str) -> bool:
        """Whether a query gives all its rows, within the limits of any answer, without an error.

        The first rows would not tell: a later one may be what fails.
        """
        return self.database.session.run(sql).outcome in _RAN

    def _query(self, sql: str, rows: int) -> QueryResult:
        """At most `rows` rows; `truncated` says that there are more."""
        session = self.database.session
        limits = msgspec.structs.replace(session.limits, rows=rows)
        return session.run(sql, limits=limits)

    def _list_tables(self) -> ToolCall:
        names = self.database.schema.tables
        return ToolCall(tool="", result="\n".join(names) or "(the database has no tables)")

    def _describe_table(self, table_name: str) -> ToolCall:
        name = self._table(table_name)
        return ToolCall(tool="", result=self._ddl(name))

    def _foreign_keys(self, table_name: str | None = None) -> ToolCall:
        keys = self.database.schema.schema.foreign_keys
        if table_name is not None:
            name = self._table(table_name)
            keys = tuple(key for key in keys if name in (key.child, key.parent))
        return ToolCall(tool="", result=_lines(keys) or "(no foreign keys)")

    def _join_path(self, table_a: str, table_b: str) -> ToolCall:
        a, b = self._table(table_a), self._table(table_b)
        if a == b:
            return ToolCall(tool="", result=f"(both are {a}: no join needed)")
        path = self.database.schema.graph.join_path(a, b)
        if path is None:
            return ToolCall(tool="", result=f"(no chain of foreign keys joins {a} and {b})")
        steps = itertools.pairwise(path)
        return ToolCall(tool="", result=_lines(self._key_between(*step) for step in steps))

    def _sample_rows(self, table_name: str, limit: int | None = None) -> ToolCall:
        name = self._table(table_name)
        return self._select(f"SELECT * FROM {quote_name(name)}", limit)

    def _distinct_values(
        self, table_name: str, column_name: str, limit: int | None = None
    ) -> ToolCall:
        name = self._table(table_name)
        column = self._column(name, column_name)
        sql = f"SELECT DISTINCT {quote_name(column)} FROM {quote_name(name)}"
        return self._select(sql, limit, header=False)

    def _run_query(self, sql: str) -> ToolCall:
        result = self._query(sql, self.settings.shown_rows)
        return msgspec.structs.replace(self._shown(result), sql=sql, outcome=result.outcome.value)

    def _select(self, sql: str, limit: int | None, *, header: bool = True) -> ToolCall:
        rows = self.settings.shown_rows if limit is None else int(limit)
        return self._shown(self._query(sql, rows), header=header)

    def _shown(self, result: QueryResult, *, header: bool = True) -> ToolCall:
        """The rows, under a `header` of their columns' names."""
        if result.outcome not in _RAN:
            return ToolCall(tool="", result=f"Error: {result.error}", failed=True)
        cells = self.settings.cell_characters
        lines = []
        if header:
            names = (render_cell(name, characters=cells) for name in result.columns)
            lines.append(f"columns: {' | '.join(names)}")
        lines.append(render_rows(result.rows, cell_characters=cells) or "(no rows)")
        count = len(result.rows)
        if result.outcome is Outcome.TRUNCATED:
            lines.append(f"(the first {count} row{'s' * (count != 1)}; there are more)")
        if result.lossy:
            lines.append("(some text is not valid UTF-8: \ufffd stands for what is not)")
        return ToolCall(tool="", result="\n".join(lines), rows=count)

    def _table(self, name: str) -> str:
        schema = self.database.schema
        found = schema.find(name)
        if found is None:
            raise _RefusedError(
                f"no such table: {name[:200]}{nearest(name, schema.tables, kind='the tables')}"
            )
        return found

    def _column(self, table: str, name: str) -> str:
        names = self._columns(table)
        for column in names:
            if fold_name(column) == fold_name(name):
                return column
        near = nearest(name, names, kind="the columns")
        raise _RefusedError(f"no such column: {name[:200]} in {table}{near}")

    def _columns(self, table: str) -> tuple[str, ...]:
        for known in self.database.schema.schema.tables:
            if known.name == table:
                return tuple(column.name for column in known.columns)
        return self._query(f"SELECT * FROM {quote_name(table)} LIMIT 0", 1).columns

    def _ddl(self, table: str) -> str:
        for known in self.database.schema.schema.tables:
            if known.name == table:
                return known.sql
        quoted = table.replace("'", "''")
        found = self._query(f"SELECT sql FROM sqlite_schema WHERE name = '{quoted}'", 1)
        return str(found.rows[0][0]) if found.rows else ""

    def _key_between(self, a: str, b: str) -> ForeignKey:
        keys = self.database.schema.schema.foreign_keys
        return next(key for key in keys if {key.child, key.parent} == {a, b})


class _RefusedError(Exception):
    """A call that cannot be served; its text is for the policy."""


_RAN = (Outcome.OK, Outcome.TRUNCATED)
_TOOLS: dict[str, Callable[..., ToolCall]] = {
    "list_tables": Toolbox._list_tables,
    "describe_table": Toolbox._describe_table,
    "foreign_keys": Toolbox._foreign_keys,
    "join_path": Toolbox._join_path,
    "sample_rows": Toolbox._sample_rows,
    "distinct_values": Toolbox._distinct_values,
    "run_query": Toolbox._run_query,
}


def _lines(keys: Any) -> str:
    return "\n".join(key.render() for key in keys)
