"""The planted leaks stay as they were frozen, before any threshold was chosen."""

import hashlib
from collections.abc import Iterable

from tests.leaks.planted_questions import other_questions, reworded_questions
from tests.leaks.planted_schemas import planted_schemas

SCHEMAS = "638dfd5334c59e35"
QUESTIONS = "51ee8797a1803e84"


def test_the_planted_sets_are_those_that_were_frozen() -> None:
    questions = (*reworded_questions(), *other_questions())
    assert digest(map(repr, planted_schemas())) == SCHEMAS
    assert digest(map(repr, questions)) == QUESTIONS


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
