"""The eight tools: described once, checked and run on an episode's database."""

import difflib
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from envbuild.env.render import cap_text, render_cell, render_rows
from envbuild.env.views import EpisodeDatabase
from envbuild.records.corpus import ForeignKey
from envbuild.records.episode import EpisodeSettings, ToolCall
from envbuild.records.execution import Outcome, QueryResult
from envbuild.sql.connect import quote_name
from envbuild.sql.names import fold_name

# The eight tools, described once: prompt text, JSON schema and validation all come from here.


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a tool."""

    name: str
    type: str
    """`string` or `integer`, as JSON Schema names them."""
    text: str
    required: bool = True


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool: what the policy sees, what a person types, and what an evaluation counts."""

    name: str
    """`Toolbox._NAME` runs it."""
    text: str
    arguments: tuple[Argument, ...] = ()
    word: str
    """What a person types for it in `envbuild play`, the arguments behind it in order."""
    typed: str
    """What `play`'s help says of it."""
    opens_table: bool = False
    """A successful call has looked into the table it names."""

    @property
    def signature(self) -> str:
        """`name(argument, optional?)`."""
        names = (a.name if a.required else f"{a.name}?" for a in self.arguments)
        return f"{self.name}({', '.join(names)})"


_TABLE = Argument(name="table_name", type="string", text="a table of the database")
_LIMIT = Argument(
    name="limit", type="integer", text="how many at most, 1 to {most_rows}", required=False
)
TOOLS: tuple[Tool, ...] = (
    Tool(name="list_tables", word="tables", typed="every table", text="Every table name."),
    Tool(
        name="describe_table",
        word="describe",
        typed="its CREATE TABLE statement",
        opens_table=True,
        text="A table's CREATE TABLE statement.",
        arguments=(_TABLE,),
    ),
    Tool(
        name="foreign_keys",
        word="keys",
        typed="foreign keys",
        text="Foreign keys as child.column -> parent.column, of one table or of all.",
        arguments=(msgspec.structs.replace(_TABLE, required=False),),
    ),
    Tool(
        name="join_path",
        word="path",
        typed="the chain of joins between two tables",
        text="The shortest chain of foreign-key joins between two tables.",
        arguments=(
            msgspec.structs.replace(_TABLE, name="table_a"),
            msgspec.structs.replace(_TABLE, name="table_b"),
        ),
    ),
    Tool(
        name="sample_rows",
        word="sample",
        typed="a few rows",
        opens_table=True,
        text="A few rows of a table.",
        arguments=(_TABLE, _LIMIT),
    ),
    Tool(
        name="distinct_values",
        word="distinct",
        typed="distinct values",
        opens_table=True,
        text="Distinct values of a column.",
        arguments=(
            _TABLE,
            Argument(name="column_name", type="string", text="a column of that table"),
            _LIMIT,
        ),
    ),
    Tool(
        name="run_query",
        word="sql",
        typed="run a query",
        text="Runs one read-only SQL query and shows its first rows.",
        arguments=(Argument(name="sql", type="string", text="a SELECT statement"),),
    ),
    Tool(
        name="submit_sql",
        word="submit",
        typed="answer, and end the episode",
        text="Records your final SQL query and ends the episode.",
        arguments=(Argument(name="sql", type="string", text="the final SELECT statement"),),
    ),
)
TOOL_NAMES = tuple(tool.name for tool in TOOLS)
_BY_NAME = {tool.name: tool for tool in TOOLS}
_TYPES: dict[str, type] = {"string": str, "integer": int}


def render_tools() -> str:
    """The tools as the prompt lists them, one a line."""
    return "\n".join(f"- {tool.signature}: {tool.text}" for tool in TOOLS)


def tool_schemas(*, most_rows: int) -> list[dict[str, Any]]:
    """The tools as JSON Schema functions, in the form that chat APIs take."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.text,
                "parameters": {
                    "type": "object",
                    "properties": {a.name: _property(a, most_rows) for a in tool.arguments},
                    "required": [a.name for a in tool.arguments if a.required],
                    "additionalProperties": False,
                },
            },
        }
        for tool in TOOLS
    ]


def check_call(tool: str, arguments: Mapping[str, Any], *, most_rows: int) -> str:
    """What is wrong with a call, as a sentence for the policy; empty where nothing is."""
    if tool not in _BY_NAME:
        return f"there is no tool {tool!r}; the tools are {', '.join(TOOL_NAMES)}"
    known = {argument.name: argument for argument in _BY_NAME[tool].arguments}
    signature = _BY_NAME[tool].signature
    if extra := [name for name in arguments if name not in known]:
        return f"{signature} takes no argument {', '.join(map(repr, extra[:5]))}"
    for name, argument in known.items():
        if name not in arguments:
            if argument.required:
                return f"{signature} needs the argument {name!r}"
            continue
        if problem := _check_value(argument, arguments[name], most_rows):
            return problem
    return ""


def nearest(name: str, names: Iterable[str], *, kind: str) -> str:
    """The names that `name` may have meant, as the end of a sentence."""
    folded = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower()[:100], folded, n=3, cutoff=0.5)
    if close:
        return "; did you mean " + " or ".join(folded[match] for match in close) + "?"
    few = sorted(folded.values())[:5]
    return f"; {kind} are {', '.join(few)}{', …' if len(folded) > 5 else ''}" if few else ""


def _property(argument: Argument, most_rows: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "type": argument.type,
        "description": argument.text.replace("{most_rows}", str(most_rows)),
    }
    if argument.name == "limit":
        described |= {"minimum": 1, "maximum": most_rows}
    return described


def _check_value(argument: Argument, value: Any, most_rows: int) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, _TYPES[argument.type]):
        return f"{argument.name} must be of type {argument.type}"
    if isinstance(value, str) and not value.strip():
        return f"{argument.name} is empty"
    if isinstance(value, int) and not 1 <= value <= most_rows:
        return f"{argument.name} must be from 1 to {most_rows}"
    return ""


# Running a checked tool call on an episode's database.
#
# Whatever a policy asks ends in a `ToolCall` with text for it to read; nothing here raises for
# it.


class Toolbox:
    """The exploring tools over one database; submit_sql is the protocol's."""

    def __init__(self, database: EpisodeDatabase, settings: EpisodeSettings) -> None:
        self.database = database
        self.settings = settings

    def run(self, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
        """What a call with valid arguments came to. Raises KeyError for another tool's name."""
        try:
            done: ToolCall = getattr(self, f"_{_BY_NAME[tool].name}")(**arguments)
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


def _lines(keys: Any) -> str:
    return "\n".join(key.render() for key in keys)
