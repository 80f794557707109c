"""What a person types in `envbuild play`, as the completion an agent would have written."""

import json
import shlex

WORDS = {
    "tables": ("list_tables", ()),
    "describe": ("describe_table", ("table_name",)),
    "keys": ("foreign_keys", ("table_name",)),
    "path": ("join_path", ("table_a", "table_b")),
    "sample": ("sample_rows", ("table_name", "limit")),
    "distinct": ("distinct_values", ("table_name", "column_name", "limit")),
    "sql": ("run_query", ("sql",)),
    "submit": ("submit_sql", ("sql",)),
}
"""Shorthand word -> the tool it calls, and what its operands are, in order."""

HELP = """\
tables                       every table
describe TABLE               its CREATE TABLE statement
keys [TABLE]                 foreign keys
path TABLE TABLE             the chain of joins between two tables
sample TABLE [N]             a few rows
distinct TABLE COLUMN [N]    distinct values
sql QUERY                    run a query
submit QUERY                 answer, and end the episode
prompt                       what an agent is told at the start
help, quit                   this list; leave
A JSON call, or several, is taken as it is. Names with blanks go in quotes."""


def completion_of(line: str) -> str:
    """The completion a typed line stands for; a line of another form is returned as it is."""
    word, _, rest = line.strip().partition(" ")
    if word.lower() not in WORDS:
        return line
    tool, names = WORDS[word.lower()]
    operands = [rest.strip()] if names == ("sql",) else _operands(rest)
    arguments: dict[str, object] = dict(zip(names, filter(None, operands), strict=False))
    for extra, operand in enumerate(operands[len(names) :], 1):
        arguments[f"extra_{extra}"] = operand
    limit = arguments.get("limit")
    if isinstance(limit, str) and limit.lstrip("-").isdigit():
        arguments["limit"] = int(limit)
    return json.dumps({"tool": tool, "args": arguments}, ensure_ascii=False)


def is_unknown(line: str) -> bool:
    """Whether a line is neither one of the words nor anything that an agent would have written."""
    word = line.strip().partition(" ")[0].lower()
    return word not in WORDS and "{" not in line and "<" not in line


def _operands(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that never ends
        return text.split()
