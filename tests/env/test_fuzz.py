"""Whatever a policy writes, an episode goes on, ends, and can be stored; both forms agree."""

import json
from pathlib import Path

import apsw
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbuild.env.episode import TextEpisode, TokenEpisode
from envbuild.env.tools import TOOL_NAMES
from envbuild.env.views import ViewCache
from envbuild.records.episode import EpisodeSettings, Task
from envbuild.testing.policies import ByteTokenizer

TOKENIZER = ByteTokenizer()
PIECES = (
    '{"tool": "',
    '", "args": {"sql": "',
    '"}}',
    "<think>",
    "</think>",
    "```sql\n",
    "SELECT ",
    "count(*) FROM t",
    "'; ",
    "{",
    "}",
    '"',
    "\\",
    "<|im_end|>",
    "<|im_start|>",
    "<|endoftext|>",
    "\n",
    "\ud800",
    "\x00",
    "ü",
    "limit",
    "null",
    *TOOL_NAMES,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
NAMES = st.sampled_from(("sql", "table_name", "column_name", "limit", "table_a", "table_b", "x"))
OPERANDS = VALUES | st.sampled_from(("t", "T", "a", "SELECT a FROM t", "SELECT", 1, -1, 10**40))
CALLS = st.builds(
    lambda tool, args: json.dumps({"tool": tool, "args": args}),
    st.sampled_from(TOOL_NAMES) | st.text(max_size=8),
    st.dictionaries(NAMES, OPERANDS, max_size=3) | VALUES,
)
COMPLETIONS = st.lists(st.sampled_from(PIECES) | CALLS | st.text(max_size=8), max_size=8).map(
    "".join
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "t.sqlite"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x'), (NULL, x'00')")
    connection.close()
    return path


@given(st.lists(COMPLETIONS, min_size=7, max_size=7), st.integers(200, 3000))
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_completions_make_a_whole_episode(
    database: Path, completions: list[str], budget: int
) -> None:
    rules = EpisodeSettings(episode_tokens=budget)
    cache = ViewCache()
    task = Task(question="?", row_id="r")
    text = TextEpisode(task, cache.open(database), settings=rules, tokenizer=TOKENIZER)
    ids = TokenEpisode(task, cache.open(database), settings=rules, tokenizer=TOKENIZER)
    for completion in completions:
        request = ids.next_request()
        assert (request is None) == (text.next_request() is None)
        if request is None:
            break
        sampled = TOKENIZER.encode(completion)
        assert ids.feed(sampled) == text.feed(TOKENIZER.decode(sampled))
    if not ids.over:  # seven turns always suffice
        raise AssertionError("the episode did not end")
    record = ids.record()
    assert record.turns == text.record().turns
    assert len(record.response_ids) <= budget
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record
    text.close()
    ids.close()
