"""The final turn's SQL, out of whatever the policy wrote around it.

An answer may stand in a call, in an object, in a code fence, behind `Answer:`, inside `**` or
`<answer>`: each place where a statement starts is a reading, and the first that SQLite can prepare
is meant. A text that reads as SQL but names what is not there is an answer too, if a wrong one;
prose is none. Tags, calls and fences inside a statement's literals are its text. A second's
preparing is spent on a completion; then the best so far is taken.
"""

from collections.abc import Iterator
from itertools import chain

import msgspec

from envbuild.episode.chat import cut_at_stop, opens_thinking
from envbuild.episode.parse import Parsed, parse_completion
from envbuild.episode.readings import Reading, iter_readings, starts_statement
from envbuild.episode.render import storable
from envbuild.episode.shield import Shielded, shielded
from envbuild.episode.tries import Prepare, Tries, prepares
from envbuild.episode.wrapped import unwrapped
from envbuild.records.episode import ChatFormat
from envbuild.records.execution import Outcome


class Answer(msgspec.Struct, frozen=True):
    """What one text came to."""

    sql: str = ""
    prepares: bool = False
    parses: bool = False
    """At least it reads as SQL."""


def final_sql(parsed: Parsed, prepare: Prepare) -> str:
    """The SQL of a final answer; empty where there is none.

    What is submitted in an object goes before all, if it reads as SQL. Else the first reading that
    prepares; else the first announced one that parses; else what stands in a fence or at a line's
    start as it is.
    """
    tries = Tries(prepare)
    shield = shielded(parsed.written, tries)
    text = (parse_completion(shield.text) if shield.block else parsed).answer.strip()
    search = _Search(tries)
    inside = unwrapped(text)
    best = Answer()
    for submitted in inside.submitted:
        alone = not inside.others and not next(iter_readings(inside.outside), None)
        found = search.inside(shield.shown(submitted), alone=alone)
        if found.prepares or found.parses or (alone and found.sql):
            return found.sql
        best = best if best.sql else found if found.sql else Answer(shield.shown(submitted.strip()))
    alone = not inside.submitted and not inside.others
    for number, said in enumerate((inside.outside, *inside.others)):
        if number == 0:
            found = search.answer(iter_readings(said), shield, alone=alone)
        else:
            found = search.inside(shield.shown(said), alone=alone)
        if found.prepares:
            return found.sql
        if (found.parses and not best.parses) or not best.sql:
            best = found
    return best.sql


def read_final(completion: str, *, chat: ChatFormat, prepare: Prepare) -> str:
    """The SQL of a completion that is a final turn as a whole; empty where there is none."""
    said, _ = cut_at_stop(chat, storable(completion))
    parsed = parse_completion(said, opened_thinking=opens_thinking(chat))
    return storable(final_sql(parsed, prepare))


class _Search:
    """Looks for what prepares."""

    def __init__(self, tries: Tries) -> None:
        self._tries = tries

    def inside(self, text: str, *, alone: bool) -> Answer:
        """What a text from inside an object comes to: it is the statement, or holds it."""
        if starts_statement(text):
            whole = Reading(text.strip(), 0, len(text), certain=True)
            return self.answer(iter((whole,)), Shielded(text), alone=alone)
        shield = shielded(text.strip(), self._tries)
        return self.answer(iter_readings(shield.text), shield, alone=alone)

    def answer(self, readings: Iterator[Reading], shield: Shielded, *, alone: bool) -> Answer:
        """The reading that is meant. `alone`: no other text could be."""
        first, second = next(readings, None), next(readings, None)
        if alone and first and first.certain and second is None:
            # It is run in any case: preparing it first would tell nothing.
            return Answer(shield.shown(first.sql), prepares=True)
        parses = certain = ""
        whole = range(0)
        for reading in chain(filter(None, (first, second)), readings):
            if reading.start in whole:
                continue  # a part of a whole statement is not what was meant
            result = self._tries.prepare(shield.shown(reading.sql))
            if result is None:
                certain = certain or (reading.sql if reading.announced else "")
                break
            if prepares(result):
                return Answer(shield.shown(reading.sql), prepares=True)
            if reading.certain and result.outcome is Outcome.INVALID:
                # Several statements: none of them is more meant than the others.
                return Answer(shield.shown(reading.sql), prepares=True)
            certain = certain or (reading.sql if reading.certain else "")
            if not parses and result.parsed and reading.announced:
                parses, whole = reading.sql, range(reading.start, reading.end)
        return Answer(shield.shown(parses or certain), parses=bool(parses))
