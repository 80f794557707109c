"""Every tool sees the view and nothing else; whatever is asked gets text, never an exception."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envbuild.env.render import cap_text, render_cell
from envbuild.env.tools import TOOLS, Toolbox, check_call, render_tools, tool_schemas
from envbuild.env.views import open_database
from envbuild.records.episode import EpisodeSettings, ToolCall
from tests.env.shop import VISIBLE, query, start


def use(path: Path, tool: str, **arguments: Any) -> ToolCall:
    settings = EpisodeSettings()
    assert not check_call(tool, arguments, most_rows=settings.most_rows)
    return Toolbox(open_database(path, VISIBLE), settings).run(tool, arguments)


KEYS = "sale.customer_id -> customer.id\nsale.sku -> product.sku"


@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("list_tables", {}, "\n".join(VISIBLE)),
        ("foreign_keys", {}, KEYS),
        ("foreign_keys", {"table_name": "product"}, KEYS.split("\n")[1]),
        ("foreign_keys", {"table_name": "lonely"}, "(no foreign keys)"),
        ("join_path", {"table_a": "customer", "table_b": "Product"}, KEYS),
        (
            "join_path",
            {"table_a": "sale", "table_b": "lonely"},
            "(no chain of foreign keys joins sale and lonely)",
        ),
        ("join_path", {"table_a": "sale", "table_b": "SALE"}, "(both are sale: no join needed)"),
        (
            "sample_rows",
            {"table_name": "customer", "limit": 2},
            "columns: id | name | city\n1 | c1 | None\n2 | c2 | None\n"
            "(the first 2 rows; there are more)",
        ),
        ("sample_rows", {"table_name": "lonely"}, "columns: n\n1\nNone\n3"),
        ("distinct_values", {"table_name": "customer", "column_name": "CITY"}, "None\nBern"),
        (
            "run_query",
            {"sql": "SELECT id FROM customer"},
            "columns: id\n1\n2\n3\n4\n5\n(the first 5 rows; there are more)",
        ),
        ("run_query", {"sql": "SELECT id FROM customer LIMIT 5"}, "columns: id\n1\n2\n3\n4\n5"),
        ("run_query", {"sql": "SELECT 1 WHERE 0"}, "columns: 1\n(no rows)"),
    ],
)
def test_what_a_tool_shows(shop: Path, tool: str, arguments: dict[str, Any], result: str) -> None:
    assert use(shop, tool, **arguments).result == result


def test_describe_table_shows_the_ddl_without_hidden_tables(shop: Path) -> None:
    shown = use(shop, "describe_table", table_name="SALE").result
    assert shown.startswith("CREATE TABLE sale (\n  id INTEGER PRIMARY KEY,")
    assert "REFERENCES customer(id)" in shown and "secret_id INT\n)" in shown


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("list_table", {}, "no tool 'list_table'; the tools are list_tables"),
        ("list_tables", {"x": 1}, "takes no argument 'x'"),
        ("describe_table", {}, "needs the argument 'table_name'"),
        ("describe_table", {"table_name": 5}, "must be of type string"),
        ("describe_table", {"table_name": ""}, "is empty"),
        ("describe_table", {"table_name": "secret"}, "no such table: secret; the tables are"),
        ("describe_table", {"table_name": "customers"}, "did you mean customer?"),
        ("describe_table", {"table_name": "sale; DROP TABLE sale"}, "no such table"),
        ("sample_rows", {"table_name": "sale", "limit": -1}, "must be from 1 to 50"),
        ("sample_rows", {"table_name": "sale", "limit": 10**30}, "must be from 1 to 50"),
        ("sample_rows", {"table_name": "sale", "limit": True}, "must be of type integer"),
        ("sample_rows", {"table_name": "sale", "limit": "5"}, "must be of type integer"),
        (
            "distinct_values",
            {"table_name": "customer", "column_name": "naem"},
            "no such column: naem in customer; did you mean name?",
        ),
        ("run_query", {"sql": "SELECT nope FROM sale"}, "no such column: nope"),
        ("run_query", {"sql": "DELETE FROM sale"}, "Error:"),
        ("run_query", {"sql": "SELECT '\ud800'"}, "Error:"),
    ],
)
def test_a_wrong_call_gets_an_error_and_the_episode_goes_on(
    shop: Path, tool: str, arguments: dict[str, Any], said: str
) -> None:
    episode = start(shop)
    observation = episode.feed(json.dumps({"tool": tool, "args": arguments}))
    assert said in observation and "[5 tool turns left" in observation
    assert episode.turns[0].calls[0].failed
    assert msgspec.json.encode(episode.turns), "whatever was written can be stored"
    assert "Error" not in episode.feed(query("SELECT count(*) FROM sale"))


def test_prompt_schema_and_validation_come_from_one_description() -> None:
    schemas = {s["function"]["name"]: s["function"] for s in tool_schemas(most_rows=50)}
    assert list(schemas) == [tool.name for tool in TOOLS]
    for tool in TOOLS:
        assert f"- {tool.signature}: {tool.text}" in render_tools()
        parameters = schemas[tool.name]["parameters"]
        filled = {
            name: {"string": "x", "integer": 3}[described["type"]]
            for name, described in parameters["properties"].items()
        }
        assert not check_call(tool.name, filled, most_rows=50)
        for name in parameters["required"]:
            less = {key: value for key, value in filled.items() if key != name}
            assert check_call(tool.name, less, most_rows=50)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, "None"),
        ("None", "'None'"),
        ("null", "'null'"),
        ("", "''"),
        (" x", "' x'"),
        ("it's", "it's"),
        ("'it'", "'''it'''"),
        ("a | b", "'a | b'"),
        ("a\nb\\", "'a\\nb\\\\'"),
        ("a\\b", "a\\b"),
        ("\x00\x1b", "'\\x00\\x1b'"),
        ("X'00'", "'X''00'''"),
        (b"\x00\xff", "X'00FF'"),
        (b"", "X''"),
        (float("inf"), "9e999"),
        (float("-inf"), "-9e999"),
        ("9e999", "'9e999'"),
        (1.0, "1.0"),
        (2**63 - 1, "9223372036854775807"),
        ("ä" * 300, "ä" * 200 + "… (300 characters)"),
        (b"a" * 300, "X'" + "61" * 100 + "'… (300 bytes)"),
    ],
)
def test_cells(cell: Any, shown: str) -> None:
    assert render_cell(cell, characters=200) == shown


@pytest.mark.parametrize(
    "words",
    [
        "(no rows)",
        "(the first 5 rows; there are more)",
        "(some text is not valid UTF-8: x)",
        "(cut: 14 of 30 characters shown)",
        "columns: id",
        "Error: no such table: t",
        "Tool result:",
        "[4 tool turns left before you must answer]",
        "Exploration is over. Answer now",
        "x… (300 characters)",
    ],
)
def test_a_cell_that_reads_as_our_own_words_is_quoted(shop: Path, words: str) -> None:
    first = use(shop, "run_query", sql=f"SELECT '{words}' AS a, 1 AS b").result
    assert first == f"columns: a | b\n'{words}' | 1"
    inside = use(shop, "run_query", sql=f"SELECT 1 AS a, '{words}' AS b").result
    assert inside.startswith("columns: a | b\n1 | ") and words in inside


@pytest.mark.parametrize(
    "text", ["(555) 123", "(no)", "columns", "Errors: 3", "[4]", "a (2 bytes)"]
)
def test_ordinary_text_stands_without_quotes(shop: Path, text: str) -> None:
    assert use(shop, "run_query", sql=f"SELECT '{text}' AS a").result == f"columns: a\n{text}"


def test_a_long_observation_is_cut_and_says_so(shop: Path) -> None:
    assert cap_text("ab\n" * 10, 15) == "ab\n" * 5 + "(cut: 14 of 30 characters shown)"
    assert cap_text("short", 15) == "short"
    wide = use(shop, "run_query", sql="SELECT " + ", ".join(["hex(zeroblob(90))"] * 200))
    assert len(wide.result) < 8200 and "characters shown)" in wide.result


def test_many_long_results_share_one_observation(shop: Path) -> None:
    long = query("SELECT " + ", ".join(["hex(zeroblob(90))"] * 30))
    episode = start(shop, settings=EpisodeSettings(tool_turn_tokens=4096))
    told = episode.feed(long * 20)
    assert len(told) < 10_000 and told.count("characters shown)") == 20
    assert all(call.result in told for call in episode.turns[0].calls)
    assert "characters shown)" not in episode.feed(long)
