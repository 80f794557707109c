"""Prompts files: what they may replace, and what is refused with a sentence."""

from pathlib import Path

import pytest

from envbuild.env.prompts import Prompts, fill, load_prompts
from envbuild.errors import ConfigurationError


def test_a_text_is_replaced_and_filled(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("final = 'Answer.{last_query} { as } {}'")
    own = load_prompts(file)
    assert fill(own.final, last_query=" So far: x.") == "Answer. So far: x. { as } {}"
    assert own.system == load_prompts().system
    assert own.sha256 != load_prompts().sha256


def test_the_digest_is_of_the_words_that_are_used(tmp_path: Path) -> None:
    """Not of the file: what it lacks is the package's, whose words may change under it."""
    file = tmp_path / "own.toml"
    digests = {}
    for text in ("", "# a remark", "final = 'Answer.'", 'final = "Answer."', "final = 'Answer!'"):
        file.write_text(text)
        digests[text] = load_prompts(file).sha256
    plain, remark, answer, quoted, other = digests.values()
    assert plain == remark == load_prompts().sha256
    assert answer == quoted and len({plain, answer, other}) == 3
    names = [name for name in Prompts.__struct_fields__ if name != "sha256"]
    for name in names:  # each of the words counts
        file.write_text("\n".join(f"{other} = '{'word' * (other == name)}'" for other in names))
        digests[name] = load_prompts(file).sha256
    assert len(set(digests.values())) == 3 + len(names)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("final = 'Answer.{last_quary}'", r"final has {last_quary}, but is filled with {last_quer"),
        ("gate = '{turns} left'", r"gate has {turns}, but is filled with nothing"),
        ("finale = 'x'", r"unknown keys: finale; known: system, "),
        ("final = 1", r"expected `str`|Expected `str`"),
        ("final =", r"is not TOML"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        load_prompts(file)
