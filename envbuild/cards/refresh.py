"""A data card with its generated blocks made anew; the prose around them stays as it is.

A block stands between `<!-- envbuild:begin NAME -->` and `<!-- envbuild:end -->`.
"""

import re
from pathlib import Path

import msgspec

from envbuild.cards.blocks import BLOCKS
from envbuild.corpora.folder import CorpusFolder, open_corpora
from envbuild.errors import ConfigurationError, UnknownNameError

_BLOCK = re.compile(
    r"(?P<begin><!-- envbuild:begin (?P<name>[^\s>]+) -->\n)(?P<body>.*?)"
    r"(?P<end><!-- envbuild:end(?: [^\s>]+)? -->)",
    re.DOTALL,
)
_BEGIN = re.compile(r"<!-- envbuild:begin ")
_CORPUS_KEY = re.compile(r"^envbuild_corpus:\s*(?P<path>\S.*?)\s*$", re.MULTILINE)
_READER_KEY = re.compile(r"^envbuild_reader:\s*(?P<reader>\S+)\s*$", re.MULTILINE)


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """A card made anew."""

    text: str
    stale: tuple[str, ...]
    """Blocks whose text was another one."""
    fresh: tuple[str, ...]
    unchecked: tuple[str, ...]
    """Blocks that need a corpus, where none was given; left as they are."""


def refresh_card(text: str, folder: CorpusFolder | None) -> Refreshed:
    """The card with every block rendered, from `folder` where the block is about a corpus.

    Raises UnknownNameError for a block nobody renders, ConfigurationError for one that never ends
    or a card without front matter, CorpusFolderError where the corpus lacks what a block shows.
    """
    if not text.startswith("---\n") or "\n---\n" not in text[4:]:
        raise ConfigurationError("the card has no YAML front matter between two lines of ---")
    found = list(_BLOCK.finditer(text))
    if len(found) != len(_BEGIN.findall(text)):
        raise ConfigurationError("a block of the card begins and does not end")
    stale: list[str] = []
    fresh: list[str] = []
    unchecked: list[str] = []
    for match in reversed(found):  # from the end, so that earlier places stay where they are
        name = match["name"]
        if name not in BLOCKS:
            raise UnknownNameError("card block", name, BLOCKS)
        block = BLOCKS[name]
        if block.needs_corpus and folder is None:
            unchecked.append(name)
            continue
        body = block.render(folder).rstrip("\n") + "\n"
        (fresh if body == match["body"] else stale).append(name)
        text = text[: match.start("body")] + body + text[match.end("body") :]
    return Refreshed(
        text=text,
        stale=tuple(reversed(stale)),
        fresh=tuple(reversed(fresh)),
        unchecked=tuple(reversed(unchecked)),
    )


def card_corpus(text: str, card: Path, named: Path | None) -> CorpusFolder | None:
    """The corpus a card is about: `named`, else the front matter's `envbuild_corpus`, else none.

    The front matter's path is relative to the card. Raises CorpusFolderError where there is no
    corpus, ConfigurationError where there are several, or where the front matter's
    `envbuild_reader` is not the one that the corpus was read by.
    """
    front = text[: text.find("\n---\n", 4) + 1]
    stated = _CORPUS_KEY.search(front)
    path = named or (card.parent / stated["path"].strip("\"'") if stated else None)
    if path is None:
        return None
    folders = open_corpora(path)
    if len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise ConfigurationError(f"{path} holds several corpora ({names}); name one of them")
    about, reader = _READER_KEY.search(front), folders[0].index.get("reader")
    if about is not None and reader and reader != about["reader"].strip("\"'"):
        raise ConfigurationError(
            f"the card is about a corpus read as {about['reader']}, and {path} was read as "
            f"{reader}; if that is meant, change envbuild_reader in its front matter"
        )
    return folders[0]
