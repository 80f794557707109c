"""`envbuild card`: a data card's generated blocks, made anew or checked."""

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.options import FINDINGS, OK, JsonOption, print_json, warn
from envbuild.errors import UsageError


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("card")(card)


def card(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Data cards, Markdown.")],
    corpus: Annotated[
        Path | None,
        typer.Option("--corpus", help="The corpus; default: the front matter's envbuild_corpus."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only look: exit 1 when stale.")] = False,
    json: JsonOption = False,
) -> None:
    """Refreshes a data card's generated blocks; the prose around them stays.

    Blocks about a corpus need one: --corpus, or envbuild_corpus in the card's front matter;
    without it they are left as they are, and named.

    Example: envbuild card data_cards/synsql.md --corpus corpus/synsql --check
    """
    from envbuild.cards.refresh import card_corpus, refresh_card
    from envbuild.io.files import write_text

    done = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise UsageError(f"cannot read {file}: {e}") from e
        refreshed = refresh_card(text, card_corpus(text, file, corpus))
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
            word = "stale" if check else "refreshed"
            stale = ", ".join(refreshed.stale)
            typer.echo(f"{file}: {f'{word}: {stale}' if stale else 'fresh'}")
        if refreshed.unchecked:
            warn(f"{file}: not checked without a corpus: {', '.join(refreshed.unchecked)}")
    stale_cards = [file for file, refreshed in done if refreshed.stale]
    raise typer.Exit(FINDINGS if check and stale_cards else OK)
