"""The final turn's answer is what is run, whatever a model wraps it in and whatever it quotes."""

import json
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from envbuild.episode.final import final_sql
from envbuild.episode.parse import parse_completion
from envbuild.episode.toolbox import Toolbox
from envbuild.episode.views import open_database
from envbuild.records.episode import EpisodeSettings
from envbuild.records.execution import Outcome
from envbuild.sql.executor import Session

CALL = '{"tool": "submit_sql", "args": {"sql": "SELECT 9"}}'
QUOTING = [
    "SELECT json_extract('{\"name\": \"x\"}', '$.name') FROM t LIMIT 1",
    "SELECT a FROM t WHERE b <> '{\"args\": 1}'",
    "SELECT a FROM t WHERE b <> '<think>'",
    "SELECT a FROM t WHERE b <> '</think>' AND 1",
    "SELECT '<think></think>', '</think>' || \"a\" FROM t",
    f"SELECT '{CALL}' AS c, '<think>{CALL}</think>' FROM t",
    "SELECT a /* <think> */ + 1 FROM t",
    "SELECT 'SELECT 1' || '\n\n' || '</answer>' FROM t",
    "WITH x AS (SELECT '{\"tool\": 1}' AS j)\nSELECT j FROM x UNION SELECT '</think>' FROM t",
    "SELECT \"a\" FROM t WHERE b = 'p\nq\\r' OR b LIKE '%it''s 50% {x}%'",
    "SELECT a FROM t WHERE b IN ('(', '}', ']', ';', '**') AND a > (SELECT 1)",
    "SELECT a FROM t WHERE b = '```sql\nSELECT b FROM t\n```'",
    "SELECT a FROM t WHERE a > 1 /* ``` or ```` */ AND b = 2",
    "SELECT a -- no ``` fence\nFROM t WHERE b <> '\n~~~\nSELECT b FROM t\n~~~\n'",
    "SELECT '\ue07b{\"tool\": 1}\ue0fb' FROM t WHERE b <> '\ue000'",
    "SELECT a FROM t WHERE b <> '\u00e9\b\f\U0001f600'",
]
JSON_FORMS = [
    lambda sql: {"tool": "submit_sql", "args": {"sql": sql}},
    lambda sql: {"tool": "submit_sql", "args": json.dumps({"sql": sql})},
    lambda sql: {"tool": "submit_sql", "sql": sql},
    lambda sql: {"name": "submit_sql", "arguments": {"sql": sql}},
    lambda sql: {"name": "submit_sql", "arguments": json.dumps({"sql": sql})},
    lambda sql: {"name": "submit_sql", "parameters": {"sql": sql}},
    lambda sql: {"type": "function", "function": {"name": "submit_sql", "arguments": {"sql": sql}}},
    lambda sql: {"tool_calls": [{"function": {"arguments": json.dumps({"sql": sql})}}]},
    lambda sql: {"sql": sql},
    lambda sql: {"query": sql},
    lambda sql: {"answer": sql, "confidence": 0.9},
    lambda sql: {"thought": "select the rows that fit", "sql": sql},
    lambda sql: {"thought": "select the rows", "final_answer": sql},
    lambda sql: {"answer": f"```sql\n{sql}\n```"},
    lambda sql: {"rejected": "SELECT 5", "answer": sql},
    lambda sql: {"final_query": sql, "draft_query": "SELECT 5"},
    lambda sql: {"thought": "SELECT 5", "note": "Use `SELECT 5`", "query": sql},
    lambda sql: {"first": "SELECT 5", "second": sql},
    lambda sql: {"tool": "run_query", "args": {"sql": sql}},
]
AROUND = [
    "{}",
    "```json\n{}\n```",
    "<tool_call>\n{}\n</tool_call>",
    '<think>first SELECT 5, then {{"tool": 1}}</think>\n{}',
    "I know it's SELECT 5</think>{}",
    "Here is my answer: {}. It's done.",
    "[{}]",
    '{{"tool": "list_tables"}}\n{}',
]
PLAIN = [
    "{}",
    "{};",
    "```sql\n{}\n```",
    "```\n{}\n```\nThat's it.",
    "~~~sql\n{}\n~~~",
    "<answer>{}</answer>",
    "<think>SELECT 5</think>{}",
    "I'd say SELECT 5</think>\n{}",
    '{{"tool": "list_tables"}}\n{}',
    "Not `SELECT 5`. Answer: {}",
    "The final SQL query is as follows:\n{}\n\nNot `SELECT 5`",
    "### Final Answer\n{}\n\n### Draft\n```sql\nSELECT 5\n```",
    "```sql\nSELECT 5\n```\nbut the **final answer is:**\n{}\n\nIt's what was asked.",
    "Final SQL:\n```sql\n{}\n```\nA draft was:\n```sql\nSELECT 5\n```",
    "The answer:\n\n{}\n\nIt's what was asked.",
]


def read(completion: str, **options: bool) -> str:
    """The answer as it is found over a database with the table t(a, b)."""
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (a, b)")
    with Session(connection) as session:
        parsed = parse_completion(completion, **options)
        return final_sql(parsed, lambda sql: session.run(f"EXPLAIN {sql}"))


@pytest.mark.parametrize("said", PLAIN)
@pytest.mark.parametrize("sql", QUOTING)
def test_tags_and_calls_in_literals_are_text(said: str, sql: str) -> None:
    assert read(said.format(sql)).removesuffix(";").strip() == sql


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("form", range(len(JSON_FORMS)))
def test_an_answer_in_any_object_is_read(around: str, form: int) -> None:
    for sql in QUOTING:
        assert read(around.format(json.dumps(JSON_FORMS[form](sql)))) == sql


@pytest.mark.parametrize(
    ("completion", "sql"),
    [
        ("\\boxed{SELECT 7}", "SELECT 7"),
        ("$\\boxed{\\text{SELECT a FROM t WHERE b = '}'}}$", "SELECT a FROM t WHERE b = '}'"),
        ("The answer is (SELECT a FROM t WHERE a IN (1, 2)).", "SELECT a FROM t WHERE a IN (1, 2)"),
        ("(SELECT 7) UNION (SELECT 8)", ""),
        ("“SELECT 7”", "SELECT 7"),
        ("Instead of `SELECT 5`, use `SELECT 7`.", "SELECT 7"),
        ("The rows of `a` by `SELECT 5` or “SELECT 6”? By **SELECT 7**!", "SELECT 7"),
        ("The answer is `SELECT 7`. The wrong answer: `SELECT 5`", "SELECT 7"),
        ('{"draft": "SELECT 5", "answer": "SELECT 7", "other": "SELECT 6"', "SELECT 7"),
        ("$SELECT 7$", "SELECT 7"),
        ('submit_sql(sql="""SELECT "a" FROM t""")', 'SELECT "a" FROM t'),
        ("submit_sql(SELECT max(a) FROM t)", "SELECT max(a) FROM t"),
        ('"SELECT \\"a\\" FROM t WHERE b = \'x\\ny\'"', "SELECT \"a\" FROM t WHERE b = 'x\ny'"),
        ('{"sql": "SELECT \\"a\\" FROM t", "sql": 1}', 'SELECT "a" FROM t'),
        ('{"tool": "submit_sql", "args": {"sql": "SELECT \\"a\\" FROM t"}', 'SELECT "a" FROM t'),
        ("{'sql': 'SELECT a FROM t'}", "SELECT a FROM t"),
        (CALL + CALL.replace("9", "8"), "SELECT 8"),
        (CALL.replace("SELECT 9", "…") + "\nSELECT 7", "SELECT 7"),
        (CALL.replace("SELECT 9", "SELECT nope FROM t") + "\nso SELECT 7", "SELECT nope FROM t"),
        (CALL.replace("submit_sql", "run_query") + "\nSELECT 7", "SELECT 7"),
        (CALL.replace("SELECT 9", "DELETE FROM t"), "DELETE FROM t"),
        (CALL.replace("SELECT 9", "Nothing."), "Nothing."),
        (CALL.replace("SELECT 9", "SELECT 1; SELECT 2"), "SELECT 1; SELECT 2"),
        ('{"tool": "list_tables"}', ""),
        ('{"key": "the values select"}', ""),
        ("SELECT a FROM t WHERE b = '{\"key\": 1}' AND nope", None),
        ("SELECT nope FROM t WHERE b = '<think>'", None),
        ("SELECT nope FROM t WHERE b = '{\"name\": 1}'", None),
        ("-- <think>\nSELECT a FROM t", None),
        ("SELECT '```' || '\n~~~' FROM t", None),
        ("The user's rows: I select 'x', so `SELECT 1`", "SELECT 1"),
        ('SELECT a FROM t -- </think> {"tool": "x"}', None),
        ("SELECT 1 <think>or SELECT 2", "SELECT 1"),
        ("<think>SELECT '</think>' is 2", ""),
        ("Select it's 1</think>SELECT 'x'", "SELECT 'x'"),
    ],
)
def test_what_is_meant(completion: str, sql: str | None) -> None:
    assert read(completion) == (completion if sql is None else sql)


@pytest.mark.parametrize("sql", [sql for sql in QUOTING if "</think>" not in sql])
def test_an_object_that_is_cut_off_holds_its_text(sql: str) -> None:
    written = json.dumps({"tool": "submit_sql", "args": {"sql": sql}})
    assert read(written.removesuffix("}}")) == sql
    assert read(written.removesuffix('"}}')) == sql


@pytest.mark.parametrize("around", ["{}", "```sql\n{}\n```", "<answer>{}</answer>", "Answer: {}"])
@pytest.mark.parametrize(
    "comment", [" ", "/* not: */", "-- then\n", "\n/* a\n\nb */ -- c\n -- d\n"]
)
@pytest.mark.parametrize("joined", ["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "WHERE a IN ("])
def test_no_half_of_a_broken_statement_is_run(joined: str, comment: str, around: str) -> None:
    sql = f"SELECT a FRM t {joined} {comment} SELECT b FROM t{')' * joined.count('(')}"
    assert read(around.format(sql)) in (sql, "")


@pytest.mark.parametrize("before", ["", "Answer: ", "The query:\n"])
@pytest.mark.parametrize("sql", ["SELECT a\nFROM t", "SELECT a FROM t\nWHERE b = 'x\nThis is y'"])
@pytest.mark.parametrize(
    "prose",
    ["This query returns a.", "Explanation: by `SELECT 5`", "**Note:** a", "# Why", "I've read t"],
)
def test_a_line_of_prose_ends_a_statement(prose: str, sql: str, before: str) -> None:
    assert read(f"{before}{sql}\n{prose}") == sql
    assert read(f"{before}{sql}\nAND WHERE\n{prose}") != sql


@pytest.mark.parametrize(
    "sql", ["SELECT a\nFrom t\nWhere nope = 1", "SELECT a FROM t\nThe where x"]
)
def test_a_line_that_goes_on_is_no_prose(sql: str) -> None:
    assert read(sql) == sql


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_blank_line_ends_a_statement(end: str) -> None:
    for before in ("", "The query:\n\n"):
        said = f"{before}SELECT a\nFROM t\n\nThis returns a.".replace("\n", end)
        assert read(said) == f"SELECT a{end}FROM t"


def test_thinking_that_the_prompt_opened_ends_once() -> None:
    for sql in QUOTING:
        assert read(f"SELECT 5 or</think>\n{sql}", opened_thinking=True) == sql
    assert read("SELECT 5", opened_thinking=True) == ""


@pytest.mark.parametrize(
    "unit",
    [
        '{"sql": "SELECT 1"}',
        '{"sql": "SELECT nope"}',
        '{"x": ["select ", "select 1 union',
        "select '<think>' + ",
        'select \'{"tool": 1}',
        'select "<think>" {',
        '{"a": "{\\"a\\": \\"select',
        "```sql\nselect '</think>\n```\n",
        "\\boxed{(select (",
        "\\boxed{SELECT a ",
        "SELECT a FROM t WHERE b='{' ",
        "SELECT a FROM t WHERE b = '\n\n{' ",
        "\n\n`SELECT a FROM t WHERE b = '```' AND c` ",
        "Answer: SELECT a FROM\n",
        '"select \\"',
    ],
)
def test_a_flood_is_read_in_no_time(unit: str) -> None:
    started = time.process_time()
    read(unit * (48_000 // len(unit)))
    assert time.process_time() - started < 1.5


def test_joins_that_take_long_to_plan_are_planned_for_a_second(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE t (a PRIMARY KEY, b, c, d)")
        for columns in ("b", "c, d", "d, b, a"):
            connection.execute(f"CREATE INDEX 'i{columns}' ON t ({columns})")
    join = "SELECT '{' FROM t x0" + "".join(f" NATURAL JOIN t x{n}" for n in range(1, 60))
    with closing(open_database(path)) as database:
        prepare = Toolbox(database, EpisodeSettings()).prepare
        for sql, around, between in ((join, "`", "\n"), (join.replace("'{'", "a"), "", "\n\n")):
            text = between.join([f"{around}{sql}{around}"] * 10)
            started = time.monotonic()
            assert final_sql(parse_completion(text), prepare).startswith(sql)
            assert time.monotonic() - started < 3


def test_few_readings_are_prepared() -> None:
    prepared: list[str] = []
    with Session(apsw.Connection(":memory:")) as session:

        def prepare(sql: str) -> object:
            prepared.append(sql)
            result = session.run(f"EXPLAIN {sql}")
            assert result.outcome is not Outcome.OK
            return result

        flood = "".join(f'{{"sql": "SELECT x{n}"}} SELECT y{n} ' for n in range(500))
        final_sql(parse_completion(flood), prepare)  # type: ignore[arg-type]
    assert len(prepared) < 150
