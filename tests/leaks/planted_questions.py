"""Planted question leaks: 200 published questions, reworded in one of eight ways by a seed.

The set was fixed before any threshold was chosen. Of each database of BIRD dev and Spider dev every
second question is asked by the benchmark; the others, as far as they ask something else, are what
must not be found.
"""

import json
import random
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from envbuild.engine.seeds import derived_random
from envbuild.sql.mask import mask_sql
from tests.shared import shared_data

_WORDS: Any = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
A_KIND = 25


class Asked(NamedTuple):
    """One question of the shared data."""

    question_id: str
    db_id: str
    question: str
    sql: str


class Reworded(NamedTuple):
    """A benchmark's question in other words."""

    kind: str
    of: Asked
    question: str


def benchmark_questions() -> list[Asked]:
    """What the benchmark asks: every second question of BIRD dev and Spider dev."""
    return [one for place, one in enumerate(_all_questions()) if place % 4 < 2]


def other_questions() -> list[Asked]:
    """Questions about the same databases whose masked SQL is that of no benchmark question.

    Nor is their text one of the benchmark's: Spider asks some questions twice.
    """
    asked = benchmark_questions()
    known = {(one.db_id, _masked(one.sql)) for one in asked}
    said = {one.question.lower() for one in asked}
    return [
        one
        for place, one in enumerate(_all_questions())
        if place % 4 >= 2
        and (one.db_id, _masked(one.sql)) not in known
        and one.question.lower() not in said
    ]


def reworded_questions() -> list[Reworded]:
    """The 200, in the order of KINDS, each of another question."""
    free = benchmark_questions()
    found = []
    for kind, change in KINDS.items():
        chance = derived_random(14, kind, "reworded")
        order = list(free)
        chance.shuffle(order)
        made: list[Reworded] = []
        for one in order:
            new = change(one.question, chance)
            if new is not None and new != one.question:
                made.append(Reworded(kind, one, new))
                free.remove(one)
            if len(made) == A_KIND:
                break
        found += made
    return found


def _all_questions() -> list[Asked]:
    found = []
    for corpus, *file in (("bird", "leaks", "bird_dev.json"), ("spider", "spider", "dev.json")):
        for place, record in enumerate(json.loads(shared_data(*file).read_text())):
            sql = record.get("SQL") or record["query"]
            asked = Asked(f"{corpus}-{place}", record["db_id"], record["question"], sql)
            found.append(asked)
    return found


def _masked(sql: str) -> str:
    return mask_sql(sql).text.lower()


# The eight ways; None where a question cannot be reworded so.


def change_case(question: str, chance: random.Random) -> str | None:
    """Another case throughout."""
    return chance.choice((str.upper, str.lower, str.title, str.swapcase))(question)


def change_punctuation(question: str, chance: random.Random) -> str | None:
    """No punctuation, or other, and more spaces."""
    bare = re.sub(r"[^\w\s]", lambda found: " " if found[0] in "-/" else "", question)
    if chance.random() < 0.5:
        return f"  {bare} "
    return re.sub(r"[?.]+\s*$", "", question).replace("'", "’").replace(",", " ,") + " ..."


def use_synonyms(question: str, chance: random.Random) -> str | None:
    """One to three words replaced by others of the same meaning."""
    return _replaced(question, SYNONYMS, chance, most=3)


def change_numbers(question: str, chance: random.Random) -> str | None:
    """A number in words, a word as a number, or another number."""
    words = {word: str(number) for number, word in enumerate(NUMBER_WORDS)}
    if named := [w for w in words if re.search(rf"\b{w}\b", question, re.IGNORECASE)]:
        return re.sub(rf"\b{named[0]}\b", words[named[0]], question, flags=re.IGNORECASE)
    digits = re.findall(r"(?<![\w.,:/-])\d+(?![\w,:/-]|\.\d)", question)
    if not digits:
        return None
    number = chance.choice(digits)
    if int(number) < len(NUMBER_WORDS):
        other = NUMBER_WORDS[int(number)]
    else:
        other = str(int(number) + chance.randint(1, 9))
    return re.sub(rf"(?<![\w.,:/-]){number}(?![\w,:/-])", other, question, count=1)


def change_order(question: str, chance: random.Random) -> str | None:
    """What stands before a comma or a preposition put behind what follows, or the other way."""
    body = question.rstrip(" ?.")
    first, comma, rest = body.partition(", ")
    if comma and len(first.split()) >= 2 and len(rest.split()) >= 3:
        return f"{rest[0].upper()}{rest[1:]}, {first[0].lower()}{first[1:]}?"
    for word in (" of ", " for ", " in ", " with ", " who ", " that ", " from "):
        first, found, rest = body.partition(word)
        if found and len(first.split()) >= 3 and len(rest.split()) >= 2:
            return f"{word.strip().capitalize()} {rest}, {first[0].lower()}{first[1:]}?"
    return None


def drop_clause(question: str, chance: random.Random) -> str | None:
    """The last or the first clause left out, at most two fifths of the words."""
    words = question.rstrip(" ?.").split()
    cuts = [
        place
        for place, word in enumerate(words)
        if word.lower() in CLAUSES or (place and words[place - 1].endswith(","))
    ]
    for place in reversed(cuts):
        if 0.6 * len(words) <= place <= len(words) - 2:
            return " ".join(words[:place]).rstrip(",") + "?"
    for place in cuts:
        if 2 <= place <= 0.4 * len(words):
            return " ".join(words[place:]).capitalize() + "?"
    return None


def translate_names(question: str, chance: random.Random) -> str | None:
    """One to three names and nouns in German."""
    return _replaced(question, GERMAN, chance, most=3)


def make_typos(question: str, chance: random.Random) -> str | None:
    """In every eighth word two letters swapped, one dropped or one doubled."""
    words = question.split()
    able = [place for place, word in enumerate(words) if len(word) >= 4 and word.isalpha()]
    if not able:
        return None
    for place in chance.sample(able, min(len(able), max(1, len(words) // 8))):
        word, at = words[place], chance.randrange(1, len(words[place]) - 1)
        words[place] = chance.choice(
            (
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
                word[:at] + word[at + 1 :],
                word[:at] + word[at] + word[at:],
            )
        )
    return " ".join(words)


KINDS: dict[str, Callable[[str, random.Random], str | None]] = {
    "case": change_case,
    "punctuation": change_punctuation,
    "synonym": use_synonyms,
    "number": change_numbers,
    "order": change_order,
    "clause dropped": drop_clause,
    "translated names": translate_names,
    "typo": make_typos,
}


def _replaced(
    question: str, table: dict[str, str], chance: random.Random, *, most: int
) -> str | None:
    """Up to `most` words replaced by the table's, at most a third of the question."""
    places = [found for found in re.finditer(r"[^\W\d_]+", question) if found[0].lower() in table]
    if not places:
        return None
    count = min(len(places), most, max(1, len(question.split()) // 3))
    for found in sorted(chance.sample(places, count), key=lambda f: -f.start()):
        new = table[found[0].lower()].replace("_", " ")
        new = new.capitalize() if found[0][0].isupper() else new
        question = question[: found.start()] + new + question[found.end() :]
    return question


NUMBER_WORDS: list[str] = _WORDS["sets"]["number_words"]
CLAUSES: list[str] = _WORDS["sets"]["clauses"]
SYNONYMS: dict[str, str] = _WORDS["question_english"]
"""Word -> another English word for it; `_` is a space."""
GERMAN: dict[str, str] = _WORDS["question_german"]
"""Word -> a German word for it; `_` is a space."""
