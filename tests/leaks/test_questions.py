"""Questions reworded in eight ways are found, and their neighbours in the same database are not."""

from collections import Counter

import pytest

from envbuild.errors import MissingDependencyError
from envbuild.leaks.questions import EmbeddingIndex, QueryIndex, QuestionIndex
from tests.leaks.planted_questions import benchmark_questions, other_questions, reworded_questions

FOUND = {
    "case": 25, "punctuation": 25, "synonym": 19, "number": 25, "order": 25, "clause dropped": 25,
    "translated names": 21, "typo": 25,
}  # fmt: skip
"""Of 25 planted a kind; docs/leaks.md prints them."""
WRONG = 8
"""Of the neighbours."""


def test_reworded_questions_are_found_and_neighbours_are_not() -> None:
    asked = benchmark_questions()
    index = QuestionIndex([one.question for one in asked])
    right: Counter[str] = Counter()
    for one in reworded_questions():
        right[one.kind] += any(asked[near.place] == one.of for near in index.near(one.question))
    wrong = sum(bool(index.near(one.question)) for one in other_questions())
    assert (right, wrong) == (FOUND, WRONG)
    assert right.total() / 200 >= 0.95
    assert right.total() / (right.total() + wrong) >= 0.95


@pytest.mark.parametrize(
    ("question", "evidence"),
    [
        ("how many singers do we have", "the same words in the same order"),
        ("Please tell me how many singers we have!", "5 of 5 and 6 words"),
        ("How many singerss do we have?", "shingles"),
        ("How many stadiums do we have?", ""),
        ("", ""),
    ],
)
def test_short_questions(question: str, evidence: str) -> None:
    found = QuestionIndex(["How many singers do we have?", "", "Name the age."]).near(question)
    assert (evidence in found[0].evidence) if evidence else not any(n.place == 0 for n in found)


def test_a_question_inside_a_long_prompt_is_found() -> None:
    asked = "What is the average height of players born after 1990 in the Belgian league?"
    prompt = f"You are given a database about football in Europe with many teams. {asked} Hint: use"
    long = f"{prompt} the tables of players and their attributes, joined by the player's own key"
    (found,) = QuestionIndex([asked]).near(long)
    assert found.evidence == "7 of 7 8-grams"


def test_queries_leak_by_skeleton_and_identifiers() -> None:
    index = QueryIndex(
        ["SELECT name FROM singer WHERE age > 20", "SELECT count(*) FROM concert WHERE year = 2014"]
    )
    leaks, alike = index.near("select T.Name from Singers where T.AGE > 35")
    assert (leaks, alike) == ([], [])
    leaks, alike = index.near('select "Name" from Singers where age > 35')
    assert [(one.place, one.score) for one in leaks] == [(0, 1.0)]
    leaks, alike = index.near("SELECT title FROM song WHERE length > 3")
    assert (leaks, alike) == ([], [0])
    leaks, alike = index.near("SELECT count(*) FROM concert WHERE year = 2015")
    assert (leaks, alike) == ([], [1])  # two identifiers are too few


def test_embeddings_need_their_package() -> None:
    try:
        import sentence_transformers  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(MissingDependencyError, match="pip install sentence-transformers"):
            EmbeddingIndex(["a"], "any")
