"""`envbuild view`: a page to read episodes turn by turn."""

from pathlib import Path
from typing import Annotated

import typer

from envbuild.cli.options import JsonOption, LimitOption, file_path, print_json, warn
from envbuild.records.counted import counted


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("view")(view)


def view(
    episodes: Annotated[Path, typer.Argument(help="An episodes folder.")],
    html: Annotated[
        Path,
        typer.Option("--html", callback=file_path, metavar="FILE", help="Where the page goes."),
    ] = Path("episodes.html"),
    manifest: Annotated[
        Path | None,
        typer.Option("--manifest", help="Default: the one the episodes were made with."),
    ] = None,
    limit: LimitOption = None,
    json: JsonOption = False,
) -> None:
    """One self-contained page: every turn, filters by ending, tier and bucket, a search.

    Rewards are shown where `envbuild score` has been run. j goes to the next episode, k to the one
    before.

    Example: envbuild view episodes/ --html episodes.html
    """
    from itertools import islice

    from envbuild.errors import CorpusFolderError
    from envbuild.evaluate.runs import manifest_of
    from envbuild.io.episodes import iter_episodes
    from envbuild.io.files import write_text
    from envbuild.io.parquet import iter_records
    from envbuild.manifest.read import open_manifest
    from envbuild.records.episode import EndedBy
    from envbuild.records.reward import RewardBreakdown
    from envbuild.records.verdict import Verdict
    from envbuild.rollout.page import render_episodes
    from envbuild.rollout.score import REWARDS_FILE

    chosen = list(islice(iter_episodes(episodes), limit))
    try:
        opened = open_manifest(manifest or manifest_of(episodes))
        known, asked = set(opened.row_ids), {episode.row_id for episode in chosen}
        unknown = sorted(asked - known)
        if unknown and manifest is not None:
            opened.row(unknown[0])  # says that it has no such row, as score and evaluate do
        rows = {row_id: opened.row(row_id) for row_id in sorted(asked & known)}
        if unknown:
            warn(
                f"{len(unknown)} of {len(asked)} questions are not shown: {opened.root} holds them "
                "no longer"
            )
    except CorpusFolderError as e:
        if manifest is not None:
            raise
        warn(f"questions and golds are not shown: {e}")
        rows = {}
    rewards_file = episodes / REWARDS_FILE
    failed = {e.episode_id for e in chosen if e.ended_by is EndedBy.SERVER_ERROR}
    rewards = (
        {
            reward.episode_id: reward
            for reward in iter_records(rewards_file, RewardBreakdown)
            # an episode that was asked again since has not been scored yet
            if (reward.verdict == Verdict.SERVER_ERROR) == (reward.episode_id in failed)
        }
        if rewards_file.exists()
        else {}
    )
    name = episodes.resolve().name
    write_text(html, render_episodes(name, chosen, rows=rows, rewards=rewards))
    if json:
        scored = sum(episode.episode_id in rewards for episode in chosen)
        shown = {"episodes": len(chosen), "rows_known": len(rows), "scored": scored}
        print_json("view", {"html": str(html), **shown})
    else:
        typer.echo(f"{counted(len(chosen), 'episode')} in {html}")
