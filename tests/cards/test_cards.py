"""Data cards: the repository's own are fresh, and a stale block is found and made anew."""

import json
from functools import partial
from pathlib import Path

import pytest

from envbuild.cards.refresh import BLOCKS, refresh_card
from envbuild.corpora.folder import CorpusFolder
from envbuild.errors import ConfigurationError, CorpusFolderError, UnknownNameError
from tests.preflight.corpora import ask, build_corpus
from tests.shared import envbuild

CARDS = sorted((Path(__file__).parents[2] / "data_cards").glob("*.md"))
SHOP = "CREATE TABLE shop(name, sold); INSERT INTO shop VALUES ('a', 1), ('b', 2), ('c', 3);"


card = partial(envbuild, "card", XDG_CACHE_HOME="/nonexistent")


def text_of(*blocks: str, front: str = "license: mit") -> str:
    body = "\n".join(f"<!-- envbuild:begin {name} -->\n<!-- envbuild:end -->" for name in blocks)
    return f"---\n{front}\n---\n\n# Shop\n\nBefore.\n\n{body}\n\nAfter.\n"


def test_the_three_corpora_have_cards_and_they_are_fresh() -> None:
    assert [path.stem for path in CARDS] == ["bird", "sqale", "synsql"]
    run = card(*CARDS, "--check")
    assert run.returncode == 0, run.stdout
    for path in CARDS:
        front = path.read_text().split("\n---\n")[0]
        keys = {line.split(":")[0] for line in front.splitlines() if line[0] not in " -"}
        assert {"license", "language", "task_categories", "tags", "configs"} <= keys


def test_blocks_follow_the_corpus(tmp_path: Path) -> None:
    questions = [ask("shop", "SELECT name FROM shop"), ask("shop", "SELECT sold FROM shop LIMIT 1")]
    build_corpus(tmp_path / "shop", {"shop": SHOP}, questions)
    envbuild("preflight", tmp_path / "shop")
    file = tmp_path / "card.md"
    file.write_text(text_of(*BLOCKS, front="license: mit\nenvbuild_corpus: shop"))
    first = card(file, "--check", "--json")
    assert first.returncode == 1
    assert json.loads(first.stdout)["cards"][0]["stale"] == list(BLOCKS)
    assert card(file).returncode == 0
    assert card(file, "--check").returncode == 0
    text = file.read_text()
    assert "| 1 | 1 | 3 | 3 | 3 | 3 | 3.0 | 0.0% | 0.0% |" in text
    assert "| distinct gold queries | 2 |" in text
    assert "`tie_sensitive_gold`" in text and "licence of the data: unknown: ask" in text
    assert "| short | 0 to 148 | 2 | 100.0% |" in text
    assert text.startswith("---\nlicense: mit\n") and text.endswith("\nAfter.\n")
    file.write_text(text.replace("| distinct gold queries | 2 |", "| distinct gold queries | 3 |"))
    stale = card(file, "--check")
    assert (stale.returncode, stale.stdout) == (1, f"{file}: stale: gold-queries\n")


def test_a_card_without_its_corpus_is_not_called_fresh(tmp_path: Path) -> None:
    about, mixed = tmp_path / "about.md", tmp_path / "mixed.md"
    about.write_text(text_of("counts", "rows-per-table"))
    mixed.write_text(text_of("counts", "published"))
    refused = card(about, "--check", "--json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "all its blocks (counts, rows-per-table) are about a corpus" in refused.stderr
    assert card(mixed).returncode == 0
    found = card(mixed, "--check")
    said = f"{mixed}: fresh: published; not checked without a corpus: counts\n"
    assert (found.returncode, found.stdout) == (0, said)


def test_what_cannot_be_rendered_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no card block 'rows'; known: .*rows-per-table"):
        refresh_card(text_of("rows"), None)
    with pytest.raises(ConfigurationError, match="does not end"):
        refresh_card(text_of() + "<!-- envbuild:begin files -->\n", None)
    with pytest.raises(ConfigurationError, match="front matter"):
        refresh_card("# No front matter\n", None)
    left = refresh_card(text_of("counts", "published"), None)
    assert (left.stale, left.unchecked) == (("published",), ("counts",))
    folder = build_corpus(tmp_path / "shop", {"shop": SHOP})

    with pytest.raises(CorpusFolderError, match="run envbuild preflight first"):
        refresh_card(text_of("findings"), CorpusFolder(folder))


def test_a_card_of_another_corpus_is_not_filled(tmp_path: Path) -> None:
    folder = build_corpus(tmp_path / "shop", {"shop": SHOP})
    index = {"format": "envbuild.corpus/1", "name": "shop", "reader": "synsql"}
    (folder / "corpus.json").write_text(json.dumps(index))
    file = tmp_path / "card.md"
    file.write_text(text_of("counts", front="envbuild_reader: sqale"))
    refused = card(file, "--corpus", folder)
    assert (refused.returncode, file.read_text()) == (
        2,
        text_of("counts", front="envbuild_reader: sqale"),
    )
    assert "read as sqale" in refused.stderr and "read as synsql" in refused.stderr
    file.write_text(text_of("counts", front="envbuild_reader: synsql"))
    assert card(file, "--corpus", folder).returncode == 0


def test_an_error_names_the_card(tmp_path: Path) -> None:
    bare = tmp_path / "bare.md"
    bare.write_text("# No front matter\n")
    missing = tmp_path / "nope.md"
    for file, said in ((bare, "no YAML front matter"), (missing, "No such file or directory")):
        refused = card(file)
        assert refused.returncode == 2
        assert str(file) in refused.stderr and said in refused.stderr
        assert "[Errno" not in refused.stderr
