"""`envbuild card`: a data card's generated blocks, made anew or checked."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import FINDINGS, OK, JsonOption, print_json
from envbuild.errors import ConfigurationError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from envbuild.cards.refresh import Refreshed


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("card")(card)


def card(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Data cards, Markdown.")],
    corpus: Annotated[
        Path | None,
        typer.Option("--corpus", help="The corpus; default: the front matter's envbuild_corpus."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only look: exit 1 when stale.")] = False,
    json: JsonOption = False,
) -> None:
    """Refreshes a data card's generated blocks; the prose around them stays.

    Blocks about a corpus need one: --corpus, or envbuild_corpus in the card's front matter;
    without it they are left as they are, and named. A card that --check can compare with nothing
    is refused, and so is a corpus of another reader than the front matter's envbuild_reader.

    Example: envbuild card data_cards/synsql.md --corpus corpus/synsql --check
    """
    from envbuild.cards.refresh import card_corpus, refresh_card
    from envbuild.io.files import write_text

    done = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as e:
            raise UsageError(f"cannot read {file}: {e.strerror}") from e
        except UnicodeDecodeError as e:
            raise UsageError(f"cannot read {file}: it is not UTF-8 text") from e
        try:
            refreshed = refresh_card(text, card_corpus(text, file, corpus))
        except (ConfigurationError, UnknownNameError) as e:
            raise ConfigurationError(f"{file}: {e}") from e
        if check and refreshed.unchecked and not (refreshed.fresh or refreshed.stale):
            raise UsageError(
                f"{file}: all its blocks ({', '.join(refreshed.unchecked)}) are about a corpus, "
                "and there is none to check them against: name it with --corpus"
            )
        if refreshed.stale and not check:
            write_text(file, refreshed.text)
        done.append((file, refreshed))
    if json:
        cards = [
            {"card": str(f), "stale": r.stale, "fresh": r.fresh, "unchecked": r.unchecked}
            for f, r in done
        ]
        print_json("card", {"checked_only": check, "cards": cards})
    for file, refreshed in done:
        if not json:
            typer.echo(f"{file}: {_said(refreshed, check=check)}")
    stale_cards = [file for file, refreshed in done if refreshed.stale]
    raise typer.Exit(FINDINGS if check and stale_cards else OK)


def _said(refreshed: "Refreshed", *, check: bool) -> str:
    """What became of the card; block by block where some need a corpus that is not there."""
    changed = f"{'stale' if check else 'refreshed'}: {', '.join(refreshed.stale)}"
    if not refreshed.unchecked:
        return changed if refreshed.stale else "fresh"
    said = [changed] if refreshed.stale else []
    if refreshed.fresh:
        said.append(f"fresh: {', '.join(refreshed.fresh)}")
    left = f"not {'checked' if check else 'refreshed'} without a corpus"
    return "; ".join((*said, f"{left}: {', '.join(refreshed.unchecked)}"))
