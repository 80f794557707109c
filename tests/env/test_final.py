"""The final turn's SQL is read by one rule, whatever a model writes around it."""

import json

import pytest

from envbuild.env.final import final_sql, read_final
from envbuild.env.parse import parse_completion
from envbuild.records.episode import ChatFormat
from envbuild.testing.policies import call

SQL = "SELECT name FROM singer WHERE age > 20"
WITH = "WITH s AS (\n  SELECT * FROM singer\n)\n\nSELECT count(*) FROM s;"


def read(completion: str) -> str:
    return final_sql(parse_completion(completion))


@pytest.mark.parametrize(
    "said",
    [
        # a call, the environment's own and those that models were trained on
        call("submit_sql", sql=SQL),
        call("run_query", sql=SQL),
        f"I submit it now.\n```json\n{call('submit_sql', sql=SQL)}\n```\nThat answers it.",
        f'<tool_call>\n{{"name": "submit_sql", "arguments": {{"sql": "{SQL}"}}}}\n</tool_call>',
        json.dumps({"name": "submit_sql", "arguments": json.dumps({"sql": SQL})}),
        json.dumps({"name": "submit_sql", "parameters": {"sql": SQL}}),
        json.dumps({"function": {"name": "submit_sql", "arguments": {"sql": SQL}}}),
        json.dumps({"tool": "submit_sql", "args": json.dumps({"sql": SQL})}),
        json.dumps({"tool": "submit_sql", "sql": SQL}),
        json.dumps({"reasoning": "SELECT the names", "sql": SQL}),
        # the last call, and before any fence or announcement
        call("run_query", sql="SELECT 1") + "\n" + call("submit_sql", sql=SQL),
        call("submit_sql", sql=SQL) + '\n{"tool": "list_tables"}',
        f"```sql\nSELECT 1\n```\nAnswer: SELECT 2\n{call('submit_sql', sql=SQL)}",
        # a fence
        f"```sql\n{SQL}\n```",
        f"```\n{SQL}\n```",
        f"```SQLite\n{SQL}\n```",
        f"```{SQL}```",
        f"```sql {SQL} ```",
        f"```sql\n{SQL}",
        f"The tables join on id, so I select by age:\n\n```sql\n{SQL}\n```\n\nThis returns names.",
        f"```sql\nSELECT 1\n```\nThat lacks the filter. Corrected:\n```sql\n{SQL}\n```",
        f"```sql\n{SQL}\n```\nIt prints:\n```\nAnn\nBob\n```",
        f"```sql\n{SQL}\n```\n```python\nwith open(x) as f: pass\n```",
        f"### Final Answer\n```sql\n{SQL}\n```",
        f"Answer: see below, SELECT 1 is wrong.\n```sql\n{SQL}\n```",
        # an announcement
        f"Answer: {SQL}",
        f"**Answer:** {SQL}",
        f"SQL: {SQL}",
        f"Final SQL query: {SQL}",
        f"**Final Answer**: `{SQL}`",
        f"## Final answer:\n\n{SQL}",
        f"First I tried SELECT 1.\nFinal query:\n{SQL}",
        f"Answer: SELECT 1\nNo, that counts all.\nAnswer: {SQL}",
        f"SQL: the query is `{SQL}`.",
        # the statement itself
        SQL,
        f"\n  {SQL}\n\n",
        f"<think>SELECT 1 or SELECT 2?</think>\n\n{SQL}",
        f"SELECT 1 or SELECT 2?</think>{SQL}",
        f"Based on the schema, the query is: {SQL}",
        f"I will select by age.\n\n{SQL}",
        f"With these tables I can answer:\n{SQL}",
        f"The query `{SQL}` gives the names.",
        f"**{SQL}**",
        f"<answer>{SQL}</answer>",
        f"<sql>\n{SQL}\n</sql>",
    ],
)
def test_what_a_model_writes(said: str) -> None:
    assert read(said) == SQL


@pytest.mark.parametrize(
    ("said", "sql"),
    [
        (f"{SQL};\n\nThis returns the names.", f"{SQL};"),
        (f"My answer:\n{WITH}\nIt counts them.", WITH),
        (f"```sql\n-- by age\n{SQL};\n```", f"-- by age\n{SQL};"),
        (f"/* by age */ {SQL}", f"/* by age */ {SQL}"),
        ("VALUES (1)", "VALUES (1)"),
        ("with recursive n(i) as (select 1) select i from n", None),
        ('SELECT "first name" FROM t WHERE a = \'; {"b": 1}\'', None),
        # what cannot run is taken as written, never repaired or cut to what would run
        (call("submit_sql", sql="SELECT nope") + f"\n```sql\n{SQL}\n```", "SELECT nope"),
        ("SELECT a FROM FROM t UNION SELECT 1", None),
        ("SELECT 1; SELECT 2", None),
        ("DELETE FROM singer", None),
        # nothing: the last working query is taken then
        ("", ""),
        ("I do not know.", ""),
        ("I would select the rows but cannot.", ""),
        ("Answer: Paris", ""),
        ('{"tool": "list_tables"}', ""),
        ("```\nno rows\n```", ""),
        (f"<think>{SQL}", ""),
    ],
)
def test_what_is_taken_as_written(said: str, sql: str | None) -> None:
    assert read(said) == (said if sql is None else sql)


def test_what_stands_behind_a_stop_text_is_no_answer() -> None:
    chat = ChatFormat(assistant_opening="<think>\n")
    assert read_final(f"SELECT 1</think>{SQL}{chat.stop[0]}Answer: SELECT 2", chat=chat) == SQL
    assert read_final(SQL, chat=chat) == ""


def test_a_flood_of_beginnings_is_read() -> None:
    for unit in (
        "select ",
        "select 1;",
        "with a as (",
        "```sql\n",
        "`",
        '{"sql": "',
        "\n",
        "Answer:",
    ):
        assert isinstance(read(unit * (48_000 // len(unit))), str)
