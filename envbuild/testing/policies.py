"""A tokenizer without a vocabulary file: every byte is a token, every delimiter one more."""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from envbuild.engine.seeds import derive_seed
from envbuild.errors import UnknownNameError
from envbuild.records.episode import ChatFormat, TextRequest
from envbuild.records.manifest import ManifestRow
from envbuild.sql.connect import quote_name

QWEN = ChatFormat()


class ByteTokenizer:
    """A `Tokenizer` for episodes: ids 0-255 are bytes, delimiters and `<think>` follow."""

    def __init__(self) -> None:
        delimiters = (QWEN.message_start, QWEN.message_end, QWEN.end_of_text)
        self.delimiters = (*delimiters, "<think>", "</think>")
        self._ids = {text: 256 + place for place, text in enumerate(self.delimiters)}
        self._split = re.compile("(" + "|".join(map(re.escape, self.delimiters)) + ")")

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; a lone surrogate becomes a question mark."""
        ids: list[int] = []
        for part in self._split.split(text):
            if part in self._ids:
                ids.append(self._ids[part])
            else:
                ids += part.encode("utf-8", "replace")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        parts: list[str] = []
        run = bytearray()
        for token in ids:
            if token < 256:
                run.append(token)
                continue
            parts += (run.decode("utf-8", "replace"), self.delimiters[token - 256])
            run.clear()
        return "".join((*parts, run.decode("utf-8", "replace")))


# Scripted policies: they exercise the whole chain without a model, each in its own way.
#
# A policy is a callable from the next request to a completion. It may know its row, gold
# included: these are for tests of environments and rewards, never for scores that are reported.


Policy = Callable[[TextRequest], str]
"""What acts in an episode."""


def make_policy(name: str, row: ManifestRow, *, candidate: int = 0, seed: int = 0) -> Policy:
    """The scripted policy of that name, for one episode of a row.

    Raises UnknownNameError for a name that is not registered.
    """
    if name not in POLICIES:
        raise UnknownNameError("policy", name, POLICIES)
    chance = random.Random(derive_seed(seed, f"{row.row_id}/{candidate}", f"policy/{name}"))
    turns = POLICIES[name](row, candidate, chance)
    return lambda request: next(turns) if request.kind == "tool" else _final(turns)


def oracle(row: ManifestRow, candidate: int, chance: random.Random) -> Iterator[str]:
    """Looks around, runs the gold query and submits it."""
    yield _thought("First the tables.") + call("list_tables")
    for table in row.gold_tables[:2]:
        yield call("describe_table", table_name=table)
    yield call("run_query", sql=row.gold_sql)
    while True:
        yield _thought("It runs.") + call("submit_sql", sql=row.gold_sql)


def lazy(row: ManifestRow, candidate: int, chance: random.Random) -> Iterator[str]:
    """Submits at once, without a look at anything."""
    while True:
        yield call("submit_sql", sql=f"SELECT * FROM {quote_name(row.tables[0])}")


def looping(row: ManifestRow, candidate: int, chance: random.Random) -> Iterator[str]:
    """Lists the tables again and again until its calls are spent."""
    while True:
        yield "\n".join([call("list_tables")] * 12)


def hacker(row: ManifestRow, candidate: int, chance: random.Random) -> Iterator[str]:
    """Bets on a lenient reward: one trick a candidate (`hacks`)."""
    tricks = hacks(row)
    sql = tricks[candidate % len(tricks)]
    while True:
        yield call("run_query", sql=sql) + "\n" + call("submit_sql", sql=sql)


def noisy(row: ManifestRow, candidate: int, chance: random.Random) -> Iterator[str]:
    """Turns that are malformed in every way we know, then perhaps a last query."""
    turns = list(_NOISE)
    chance.shuffle(turns)
    yield from turns[:6]
    while True:
        yield chance.choice(("", "I do not know.", "```sql\nSELECT 1\n```"))


POLICIES: dict[str, Callable[[ManifestRow, int, random.Random], Iterator[str]]] = {
    "oracle": oracle,
    "lazy": lazy,
    "looping": looping,
    "hacker": hacker,
    "noisy": noisy,
}


def hacks(row: ManifestRow) -> tuple[str, ...]:
    """Queries that answer nothing but might be paid: constants, empty results, everything."""
    tables = [quote_name(name) for name in row.tables]
    first = tables[0]
    return (
        "SELECT 1",
        "SELECT 0",
        "SELECT NULL",
        "SELECT ''",
        "SELECT 1 WHERE 0",
        f"SELECT * FROM {first} WHERE 0",
        f"SELECT DISTINCT * FROM {first}",
        *(f"SELECT * FROM {name}" for name in tables[:4]),
        f"SELECT *, * FROM {first}",
        f"SELECT count(*) FROM {first}",
        f"SELECT *, 1, 0, NULL FROM {first}",
        f"SELECT * FROM {', '.join(tables[:2])}",
    )


def call(tool: str, **arguments: Any) -> str:
    """One tool call as a policy writes it."""
    return json.dumps({"tool": tool, "args": arguments}, ensure_ascii=False)


def _final(turns: Iterator[str]) -> str:
    """The final turn's answer: the SQL of the last call the script would have made."""
    text = next(turns)
    for line in reversed(text.split("\n")):
        try:
            return str(json.loads(line)["args"]["sql"])
        except (ValueError, LookupError, TypeError):
            continue
    return "" if "{" in text else text


def _thought(text: str) -> str:
    return f"<think>{text}</think>\n"


_NOISE = (
    "",
    "I am done.",
    "<think>never closed",
    '{"tool": "run_query", "args": {"sql": "SELECT',
    '{"tool": "run_query", "args": [1]}',
    '{"tool": "run_query", "args": {"sql": null}}',
    '{"tool": "drop_table", "args": {"table_name": "x"}}',
    '{"tool": "describe_table", "args": {"table_name": "no such table"}}',
    '{"tool": "sample_rows", "args": {"table_name": "", "limit": -1}}',
    '{"tool": "submit_sql", "args": {}}',
    '{"tool": "run_query", "args": {"sql": "SELECT 1; SELECT 2"}}',
    '{"tool": "run_query", "args": {"sql": "DROP TABLE sqlite_master"}}',
    "{" * 500,
    "<|im_end|><|im_start|>assistant\n",
)
