"""`envbuild score`: the rewards of an episodes folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import FINDINGS, JsonOption, RerunGoldsOption, print_json, warn
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from envbuild.records.episode import Episode
    from envbuild.records.reward import RewardBreakdown


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("score")(score)


def score(
    episodes: Annotated[Path, typer.Argument(help="An episodes folder.")],
    manifest: Annotated[
        Path | None,
        typer.Option("--manifest", help="Default: the one the episodes were made with."),
    ] = None,
    verdict: Annotated[
        str, typer.Option("--verdict", help="What counts as equivalent; published: bag@1.")
    ] = "bag@1",
    rerun_golds: RerunGoldsOption = False,
    json: JsonOption = False,
) -> None:
    """What each episode earned, consensus within its group included.

    Writes rewards.parquet beside the episodes. Gold results come from the manifest; nothing runs
    gold again unless --rerun-golds asks. Hidden variants judge too, but for a rollout
    --evaluation, as its folder records. Exit 1 where a gold cannot be scored, or a server failed
    an episode: the reward is null, never 0.

    Example: envbuild score episodes/
    """
    from envbuild.environment import Environment
    from envbuild.evaluate.runs import manifest_of
    from envbuild.io.episodes import check_episodes, iter_episodes
    from envbuild.records.episode import EpisodeSettings
    from envbuild.records.reward import RewardSettings
    from envbuild.rollout.score import recorded_settings, score_groups, write_rewards
    from envbuild.sql.verdicts import row_equality

    row_equality(verdict)  # an unknown name is said before anything runs
    check_episodes(episodes)
    settings = recorded_settings(episodes)
    if settings is None:
        warn(f"{episodes} does not say how it was played: scored as training episodes are")
    env = Environment.open(
        manifest or manifest_of(episodes),
        settings=settings or EpisodeSettings(),
        reward=RewardSettings(verdict=verdict),
        rerun_golds=rerun_golds,
    )
    played = {episode.episode_id: episode for episode in iter_episodes(episodes)}
    breakdowns = list(score_groups(env, played.values()))
    write_rewards(episodes, breakdowns)
    unscored = sum(breakdown.reward is None for breakdown in breakdowns)
    if json:
        asked = {"verdict": verdict, "evaluation": env.settings.evaluation}
        print_json("score", {**asked, **_summary(breakdowns)})
    else:
        _show(breakdowns, played)
    if unscored:
        raise typer.Exit(FINDINGS)


def _summary(breakdowns: "list[RewardBreakdown]") -> "dict[str, object]":
    from collections import Counter

    scored = [b.reward for b in breakdowns if b.reward is not None]
    return {
        "episodes": len(breakdowns),
        "unscored": len(breakdowns) - len(scored),
        "mean_reward": sum(scored) / len(scored) if scored else None,
        "tiers": dict(sorted(Counter(b.tier.value for b in breakdowns).items())),
    }


def _show(breakdowns: "list[RewardBreakdown]", played: "dict[str, Episode]") -> None:
    from collections import Counter, defaultdict

    from envbuild.cli.tables import print_table
    from envbuild.records.reward import Tier

    by_tier: dict[Tier, list[RewardBreakdown]] = defaultdict(list)
    for breakdown in breakdowns:
        by_tier[breakdown.tier].append(breakdown)
    lines = []
    for tier in Tier:
        group = by_tier[tier]
        rewards = [b.reward for b in group if b.reward is not None]
        endings = Counter(played[b.episode_id].ended_by.value for b in group).most_common(2)
        lines.append(
            (
                tier.value,
                len(group),
                f"{len(group) / len(breakdowns):.1%}" if breakdowns else "-",
                f"{sum(rewards) / len(rewards):.3f}" if rewards else "-",
                ", ".join(f"{name} {count}" for name, count in endings) or "-",
            )
        )
    print_table(
        ("tier", "episodes", "share", "mean reward", "mostly ended by"), lines, right=(1, 2, 3)
    )
    summary = _summary(breakdowns)
    mean = summary["mean_reward"]
    agreed = sum(b.consensus > 0 for b in breakdowns)
    typer.echo(
        f"mean reward {mean:.3f}; {counted(agreed, 'episode')} with their group's consensus"
        if isinstance(mean, float)
        else "no episode could be scored"
    )
