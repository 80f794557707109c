"""The eight tools, described once (prompt text, JSON schema, validation), and run."""

import difflib
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from envbuild.env.render import cap_text, render_cell, render_rows
from envbuild.env.views import EpisodeDatabase
from envbuild.records.episode import EpisodeSettings, ToolCall
from envbuild.records.execution import Outcome, QueryResult
from envbuild.sql.connect import quote_name
from envbuild.sql.names import fold_name


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
_A = msgspec.structs.replace(_TABLE, name="table_a")
_B = msgspec.structs.replace(_TABLE, name="table_b")
_ANY_TABLE = msgspec.structs.replace(_TABLE, required=False)
_COLUMN = Argument(name="column_name", type="string", text="a column of that table")
_LIMIT = Argument(
    name="limit", type="integer", text="how many at most, 1 to {most_rows}", required=False
)
TOOLS: tuple[Tool, ...] = (
    Tool(name="list_tables", word="tables", typed="every table", text="Every table name."),
    Tool(
        name="describe_table",
        arguments=(_TABLE,),
        text="A table's CREATE TABLE statement.",
        word="describe",
        typed="its CREATE TABLE statement",
        opens_table=True,
    ),
    Tool(
        name="foreign_keys",
        arguments=(_ANY_TABLE,),
        text="Foreign keys as child.column -> parent.column, of one table or of all.",
        word="keys",
        typed="foreign keys",
    ),
    Tool(
        name="join_path",
        arguments=(_A, _B),
        text="The shortest chain of foreign-key joins between two tables.",
        word="path",
        typed="the chain of joins between two tables",
    ),
    Tool(
        name="sample_rows",
        arguments=(_TABLE, _LIMIT),
        text="A few rows of a table.",
        word="sample",
        typed="a few rows",
        opens_table=True,
    ),
    Tool(
        name="distinct_values",
        arguments=(_TABLE, _COLUMN, _LIMIT),
        text="Distinct values of a column.",
        word="distinct",
        typed="distinct values",
        opens_table=True,
    ),
    Tool(
        name="run_query",
        arguments=(Argument(name="sql", type="string", text="a SELECT statement"),),
        text="Runs one read-only SQL query and shows its first rows.",
        word="sql",
        typed="run a query",
    ),
    Tool(
        name="submit_sql",
        arguments=(Argument(name="sql", type="string", text="the final SELECT statement"),),
        text="Records your final SQL query and ends the episode.",
        word="submit",
        typed="answer, and end the episode",
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


class Toolbox:
    """The exploring tools over one database; submit_sql is the protocol's.

    Whatever a policy asks ends in a `ToolCall` with text for it to read; nothing is raised for it.
    """

    def __init__(self, database: EpisodeDatabase, settings: EpisodeSettings) -> None:
        self.database = database
        self.settings = settings

    def run(self, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
        """What a call with valid arguments came to. Raises KeyError for another tool's name."""
        runner = getattr(self, f"_{_BY_NAME[tool].name}")
        try:
            told: str | ToolCall = runner(**arguments)
        except _RefusedError as e:
            told = _error(str(e))
        done = told if isinstance(told, ToolCall) else ToolCall(tool=tool, result=told)
        result = cap_text(done.result, self.settings.observation_characters)
        return msgspec.structs.replace(done, tool=tool, result=result)

    def runs(self, sql: str) -> bool:
        """Whether a query gives all its rows, within the limits of any answer, without an error.

        The first rows would not tell: a later one may be what fails.
        """
        return self.database.session.run(sql).outcome in _RAN

    def _list_tables(self) -> str:
        return "\n".join(self.database.schema.tables) or "(the database has no tables)"

    def _describe_table(self, table_name: str) -> str:
        name = self._table(table_name)
        for known in self.database.schema.schema.tables:
            if known.name == name:
                return known.sql
        quoted = name.replace("'", "''")  # a view, or a virtual table
        found = self._query(f"SELECT sql FROM sqlite_schema WHERE name = '{quoted}'", 1)
        return str(found.rows[0][0]) if found.rows else ""

    def _foreign_keys(self, table_name: str | None = None) -> str:
        keys = self.database.schema.schema.foreign_keys
        if table_name is not None:
            name = self._table(table_name)
            keys = tuple(key for key in keys if name in (key.child, key.parent))
        return "\n".join(key.render() for key in keys) or "(no foreign keys)"

    def _join_path(self, table_a: str, table_b: str) -> str:
        a, b = self._table(table_a), self._table(table_b)
        if a == b:
            return f"(both are {a}: no join needed)"
        from envbuild.schema.graph import SchemaGraph  # networkx, which no other tool needs

        path = SchemaGraph(self.database.schema.schema).join_path(a, b)
        if path is None:
            return f"(no chain of foreign keys joins {a} and {b})"
        keys = self.database.schema.schema.foreign_keys
        steps = [
            next(key for key in keys if {key.child, key.parent} == set(step))
            for step in itertools.pairwise(path)
        ]
        return "\n".join(key.render() for key in steps)

    def _sample_rows(self, table_name: str, limit: int | None = None) -> ToolCall:
        name = self._table(table_name)
        rows = self.settings.shown_rows if limit is None else int(limit)
        return self._shown(self._query(f"SELECT * FROM {quote_name(name)}", rows))

    def _distinct_values(
        self, table_name: str, column_name: str, limit: int | None = None
    ) -> ToolCall:
        name = self._table(table_name)
        column = self._column(name, column_name)
        rows = self.settings.shown_rows if limit is None else int(limit)
        sql = f"SELECT DISTINCT {quote_name(column)} FROM {quote_name(name)}"
        return self._shown(self._query(sql, rows), header=False)

    def _run_query(self, sql: str) -> ToolCall:
        result = self._query(sql, self.settings.shown_rows)
        return msgspec.structs.replace(self._shown(result), sql=sql, outcome=result.outcome.value)

    def _query(self, sql: str, rows: int) -> QueryResult:
        """At most `rows` rows; `truncated` says that there are more."""
        session = self.database.session
        return session.run(sql, limits=msgspec.structs.replace(session.limits, rows=rows))

    def _shown(self, result: QueryResult, *, header: bool = True) -> ToolCall:
        """The rows, under a `header` of their columns' names."""
        if result.outcome not in _RAN:
            return _error(result.error)
        cells, count = self.settings.cell_characters, len(result.rows)
        lines = [render_rows(result.rows, cell_characters=cells) or "(no rows)"]
        if header:
            names = (render_cell(name, characters=cells) for name in result.columns)
            lines.insert(0, f"columns: {' | '.join(names)}")
        if result.outcome is Outcome.TRUNCATED:
            lines.append(f"(the first {count} row{'s' * (count != 1)}; there are more)")
        if result.lossy:
            lines.append("(some text is not valid UTF-8: \ufffd stands for what is not)")
        return ToolCall(tool="", result="\n".join(lines), rows=count)

    def _table(self, name: str) -> str:
        schema = self.database.schema
        if (found := schema.find(name)) is not None:
            return found
        near = nearest(name, schema.tables, kind="the tables")
        raise _RefusedError(f"no such table: {name[:200]}{near}")

    def _column(self, table: str, name: str) -> str:
        names = self._query(f"SELECT * FROM {quote_name(table)} LIMIT 0", 1).columns
        for column in names:
            if fold_name(column) == fold_name(name):
                return column
        near = nearest(name, names, kind="the columns")
        raise _RefusedError(f"no such column: {name[:200]} in {table}{near}")


class _RefusedError(Exception):
    """A call that cannot be served; its text is for the policy."""


_RAN = (Outcome.OK, Outcome.TRUNCATED)


def _error(text: str) -> ToolCall:
    return ToolCall(tool="", result=f"Error: {text}", failed=True)
