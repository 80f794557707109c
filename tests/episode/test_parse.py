"""Calls are read where their meaning is plain; the rest are unreadable calls, never crashes."""

import json
import time

import apsw
import pytest

from envbuild.episode.final import final_sql
from envbuild.episode.parse import MOST_UNREADABLE, parse_completion
from envbuild.sql.executor import Session


def calls(completion: str, **options: bool) -> list[tuple[str, dict[str, object]]]:
    parsed = parse_completion(completion, **options)
    return [(c.tool, c.arguments) for c in parsed.calls if not c.problem]


def problems(completion: str) -> list[str]:
    return [c.problem for c in parse_completion(completion).calls if c.problem]


LIST = '{"tool": "list_tables"}'


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        (LIST, [("list_tables", {})]),
        (f"Let me look.\n```json\n{LIST}\n```\nThere.", [("list_tables", {})]),
        (f"<think>no {LIST} yet</think>\n{LIST}{LIST}", [("list_tables", {})] * 2),
        (f"I think {LIST}</think>{LIST}", [("list_tables", {})]),
        (f"{LIST}<think>{LIST}</think>{LIST}", [("list_tables", {})] * 2),
        ('{"tool": "run_query", "args": "{\\"sql\\": \\"S\\"}"}', [("run_query", {"sql": "S"})]),
        ('{"tool": "list_tables", "args": null}', [("list_tables", {})]),
        ('{"tool": "run_query", "args": {"sql": "S\n1"}}', [("run_query", {"sql": "S\n1"})]),
        (
            '{"tool": "run_query", "args": {"sql": "SELECT \'}</think>{\\"tool\\": 1}\'"}}',
            [("run_query", {"sql": "SELECT '}</think>{\"tool\": 1}'"})],
        ),
        (f"The set {{1, 2}} and {{}} and {json.dumps({'a': 1})} {LIST}", [("list_tables", {})]),
        (f"[{LIST}, {LIST}]", [("list_tables", {})] * 2),
        ("I am done.", []),
        ("", []),
        (f"<think>{LIST}", []),
    ],
)
def test_calls(completion: str, expected: list[tuple[str, dict[str, object]]]) -> None:
    assert calls(completion) == expected
    assert not problems(completion)


@pytest.mark.parametrize(
    ("completion", "problem"),
    [
        ('{"tool": "run_query", "args": {"sql": "SEL', "cut off"),
        ('{"tool": "run_query", "args": {"sql": "SELECT 1"}', "cut off"),
        ('{"tool": "run_query", "args": [1]}', "args must be a JSON object"),
        ('{"tool": "run_query", "args": 5}', "args must be a JSON object"),
        ('{"tool": "run_query", "args": "SELECT 1"}', "args must be a JSON object"),
        ('{"tool": 5}', '"tool" is missing'),
        ('{"args": {}}', '"tool" is missing'),
        ('{"name": "list_tables", "arguments": {}}', '"tool" is missing'),
        ('{"tool": "list_tables", "tool": "submit_sql"}', "stands twice"),
        ('{"tool": "list_tables", "id": 1}', "no key 'id'"),
        ('{"tool": "sample_rows", "args": {"limit": NaN}}', "a number that is none"),
        ("{'tool': 'list_tables'}", "cannot be read"),
        ('{"tool": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_unreadable_calls(completion: str, problem: str) -> None:
    assert not calls(completion)
    (found,) = problems(completion)
    assert problem in found
    around = parse_completion(f"{LIST}\n{completion}")
    assert around.calls[0].tool == "list_tables"


def test_a_call_behind_an_unreadable_one_is_found() -> None:
    assert calls('{"tool": "run_query", "args": {"sql": "SELECT 1"}\n' + LIST) == [
        ("list_tables", {})
    ]


def test_the_prompt_may_have_opened_the_thinking() -> None:
    assert calls(f"{LIST}</think>{LIST}", opened_thinking=True) == [("list_tables", {})]
    assert not calls(LIST, opened_thinking=True)
    assert parse_completion(LIST, opened_thinking=True).unfinished_thinking


def test_a_flood_of_braces_costs_no_time() -> None:
    started = time.process_time()
    parsed = parse_completion('{"tool": ' * 20_000 + "{" * 20_000)
    assert len(parsed.calls) == MOST_UNREADABLE
    parse_completion('{"a": ' * 5_000)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("completion", "sql"),
    [
        ("SELECT 1", "SELECT 1"),
        ("<think>SELECT 2</think>\nSELECT 1;", "SELECT 1;"),
        ("Here it is:\n```sql\nSELECT 1\n```\nDone.", "SELECT 1"),
        ("SQL: SELECT 1", "SELECT 1"),
        (
            "My answer:\nwith a as (select 1)\nselect * from a; That is all.",
            "with a as (select 1)\nselect * from a;",
        ),
        ("SELECT 1; SELECT 2", "SELECT 1; SELECT 2"),
        ("SELECT ';'; done", "SELECT ';';"),
        ('{"tool": "submit_sql", "args": {"sql": "SELECT 1"}}', "SELECT 1"),
        (LIST, ""),
        ("I do not know.", ""),
        ("", ""),
        ("<think>SELECT 1", ""),
    ],
)
def test_final_sql(completion: str, sql: str) -> None:
    assert read(completion) == sql


def read(completion: str) -> str:
    """The answer as it is found over a database with the table t(a, b)."""
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (a, b)")
    with Session(connection) as session:
        return final_sql(parse_completion(completion), lambda sql: session.run(f"EXPLAIN {sql}"))


PLAIN = [
    "Answer: {}",
    "**Final SQL:** {}",
    "**{}**",
    "`{}`",
    'Answer: "{}"',
    "<answer>{}</answer>",
    "<sql>\n{}\n</sql>",
    "The final query is {}; it is right.",
    "With these tables, I can answer:\n{}",
    "With two columns (as I saw) you select more.\n\n{}\n\nThis selects what was asked.",
    "I select here; {}",
    "Values differ. Update: {}",
    "```sql\n{}\n```\nIt prints:\n```\n1\n```",
    "```\n{}\n```\n```python\nwith open(x) as f: pass\n```",
    "```python\nprint(1)\n```\n{}",
    "```{}```",
    "```SQLite\n{}",
]


@pytest.mark.parametrize("said", PLAIN)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "WITH x AS (SELECT a FROM t)\nSELECT a FROM x UNION SELECT 'with;' FROM t",
        "with recursive n(i) as (values (1) union all select i + 1 from n) select i from n limit 3",
        "VALUES (1, 2)",
        "SELECT b </* select */ 3 FROM t",
    ],
)
def test_a_plain_answer_is_found_whatever_stands_around_it(said: str, sql: str) -> None:
    assert read(said.format(sql)).rstrip(";") == sql


@pytest.mark.parametrize(
    ("completion", "sql"),
    [
        ("/* select what? */ SELECT 1", "/* select what? */ SELECT 1"),
        ("-- with comment as one\nSELECT 1", "-- with comment as one\nSELECT 1"),
        ("```\n-- first\nSELECT 1\n```\n```\n2\n```", "-- first\nSELECT 1"),
        ("```sql\nSELECT 1\n```\nor better\n```sql\nSELECT 2\n```", "SELECT 2"),
        ("```sql\nSELECT 1\n```\nor\n```sql\nSELECT FROM\n```", "SELECT 1"),
        ("Answer: SELECT nope FROM t", "SELECT nope FROM t"),
        ("SELECT nope FROM t UNION SELECT 1", "SELECT nope FROM t UNION SELECT 1"),
        ("SELECT a FROM FROM t UNION SELECT 1", "SELECT a FROM FROM t UNION SELECT 1"),
        ("SELECT a FROM t WHERE b IN (SELECT 1", "SELECT a FROM t WHERE b IN (SELECT 1"),
        ("DELETE FROM t", "DELETE FROM t"),
        ("I select a from tables.", ""),
        ("I would select the rows but cannot.", ""),
        ("With regret, as values go, nothing.", ""),
        ("```\nno rows\n```", ""),
        ("```sql\n-- nothing\n```", ""),
    ],
)
def test_the_likeliest_reading_is_the_answer(completion: str, sql: str) -> None:
    assert read(completion) == sql


@pytest.mark.parametrize(
    "unit",
    ["select ", "select 1;", "with a as (", "```sql\n", "'", "/*", "(select 1\n\n)", "with "],
)
def test_a_final_turn_of_starts_is_read_in_no_time(unit: str) -> None:
    started = time.monotonic()
    read(unit * (12_000 // len(unit)))
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("unit", ["{", '{"a":', '{ "a": [', "}{", '{"a": 1', "{'a': {"])
def test_a_turn_of_braces_is_read_in_no_time(unit: str) -> None:
    call = '{"tool": "list_tables", "args": {}}'
    started = time.monotonic()
    parsed = parse_completion(unit * 100_000 + call)
    assert time.monotonic() - started < 5
    assert [found.tool for found in parsed.calls] == ["list_tables"]
