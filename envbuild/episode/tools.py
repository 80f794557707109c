"""The eight tools, described once: prompt text, JSON schema and validation all come from here."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a tool."""

    name: str
    type: str
    """`string` or `integer`, as JSON Schema names them."""
    text: str
    required: bool = True


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as the policy sees it."""

    name: str
    text: str
    arguments: tuple[Argument, ...] = ()

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
    Tool(name="list_tables", text="Every table name."),
    Tool(name="describe_table", text="A table's CREATE TABLE statement.", arguments=(_TABLE,)),
    Tool(
        name="foreign_keys",
        text="Foreign keys as child.column -> parent.column, of one table or of all.",
        arguments=(msgspec.structs.replace(_TABLE, required=False),),
    ),
    Tool(
        name="join_path",
        text="The shortest chain of foreign-key joins between two tables.",
        arguments=(
            msgspec.structs.replace(_TABLE, name="table_a"),
            msgspec.structs.replace(_TABLE, name="table_b"),
        ),
    ),
    Tool(name="sample_rows", text="A few rows of a table.", arguments=(_TABLE, _LIMIT)),
    Tool(
        name="distinct_values",
        text="Distinct values of a column.",
        arguments=(
            _TABLE,
            Argument(name="column_name", type="string", text="a column of that table"),
            _LIMIT,
        ),
    ),
    Tool(
        name="run_query",
        text="Runs one read-only SQL query and shows its first rows.",
        arguments=(Argument(name="sql", type="string", text="a SELECT statement"),),
    ),
    Tool(
        name="submit_sql",
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
