"""Calls are read where their meaning is plain; the rest are unreadable calls, never crashes."""

import json

import pytest

from envbuild.env.parse import MAX_UNREADABLE, parse_completion


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


def test_few_unreadable_calls_of_a_flood_are_read() -> None:
    parsed = parse_completion('{"tool": ' * 20_000 + "{" * 20_000)
    assert len(parsed.calls) == MAX_UNREADABLE


@pytest.mark.parametrize("unit", ["{", '{"a":', '{ "a": [', "}{", '{"a": 1', "{'a': {"])
def test_a_call_behind_a_flood_of_braces_is_found(unit: str) -> None:
    parsed = parse_completion(unit * 100_000 + LIST)
    assert [found.tool for found in parsed.calls] == ["list_tables"]
