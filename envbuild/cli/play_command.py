"""`envbuild play`: you are the agent."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envbuild.cli.options import JsonOption, RerunGoldsOption, SeedOption, print_json, warn
from envbuild.cli.play_words import HELP, completion_of, is_unknown
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from envbuild.environment import Environment
    from envbuild.records.episode import Episode
    from envbuild.records.reward import RewardBreakdown


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(name="play")(play)


def play(
    manifest: Annotated[Path, typer.Argument(help="A manifest folder.")],
    row: Annotated[
        str | None, typer.Option("--row", metavar="ID", help="A row_id; default: the first row.")
    ] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="default, several-calls or one-call.")
    ] = "default",
    prompts: Annotated[
        Path | None, typer.Option("--prompts", metavar="FILE", help="Your own prompts (TOML).")
    ] = None,
    full_schema: Annotated[
        bool, typer.Option("--full-schema", help="Put the DDL into the prompt.")
    ] = False,
    step: Annotated[
        int | None,
        typer.Option("--step", min=0, help="Training step that sets the submit gate."),
    ] = None,
    rerun_golds: RerunGoldsOption = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """You are the agent, in the terminal: explore, try a query, submit it, see what it earned.

    Type `help` for the words. Works piped, one turn a line:

        printf 'tables\\nsubmit SELECT 1\\n' | envbuild play manifest/ --row ID
    """
    from envbuild.environment import Environment
    from envbuild.episode.presets import load_preset
    from envbuild.episode.prompts import load_prompts

    environment = Environment.open(
        manifest,
        settings=load_preset(preset, schema="full" if full_schema else "withheld"),
        prompts=load_prompts(prompts),
        seed=seed,
        rerun_golds=rerun_golds,
    )
    row_id = row if row is not None else _first_row(environment)
    say = warn if as_json else typer.echo
    environment.reset(row_id, step=step)
    _show_start(environment, row_id, say)
    _take_turns(environment, say)
    episode, reward = environment.episode(), environment.reward()
    environment.close()
    if as_json:
        print_json("play", {"episode": _plain(episode), "reward": _plain(reward)})
    else:
        _show_end(episode, reward)


def _first_row(environment: "Environment") -> str:
    from envbuild.errors import UsageError

    ids = environment.manifest.row_ids
    if not ids:
        raise UsageError("the manifest holds no rows, so there is nothing to play")
    return str(ids[0])


def _show_start(environment: "Environment", row_id: str, say: Callable[[str], None]) -> None:
    row = environment.row(row_id)
    say(f"Row {row.row_id} ({row.bucket}, {counted(len(row.tables), 'table')})")
    say(f"Question: {row.question}")
    if row.evidence:
        say(f"Evidence: {row.evidence}")
    say(f"{environment.settings.tool_turns} tool turns. Type help for the words.\n")


def _take_turns(environment: "Environment", say: Callable[[str], None]) -> None:
    """Reads lines until the episode is over or the person leaves."""
    while (request := environment.request) is not None:
        line = _read_line("final> " if request.kind == "final" else "> ")
        if line is None or line.strip() in ("quit", "exit"):
            environment.leave("left before the end")
        elif line.strip() == "help":
            say(HELP)
        elif line.strip() == "prompt":
            say(request.context)
        elif request.kind != "final" and is_unknown(line):
            say("No such word: `sql QUERY` tries, `submit QUERY` answers, `help` lists them all.\n")
        elif line.strip():
            observation = environment.step(completion_of(line)).observation
            if observation:
                say(f"{observation}\n")


def _read_line(prompt: str) -> str | None:
    """The next line without its end; None at the end of input. The prompt is for terminals."""
    if sys.stdin.isatty():
        typer.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _show_end(episode: "Episode", reward: "RewardBreakdown") -> None:
    from envbuild.cli.tables import print_table

    earned = "unscored" if reward.reward is None else f"{reward.reward:g}"
    typer.echo(f"Answer: {episode.sql or '(none)'}")
    parts: list[tuple[str, object]] = [
        ("reward", earned),
        ("tier", reward.tier.value),
        ("ended by", episode.ended_by.value),
        (f"verdict ({reward.verdict_name})", reward.verdict),
        ("outcome", reward.outcome or "-"),
        ("F1", f"{reward.f1:.3f}"),
        ("join share", f"{reward.join_share:.3f}"),
        ("turns", len(episode.turns)),
        ("calls", sum(len(turn.calls) for turn in episode.turns)),
    ]
    if reward.variants_scored:
        parts.append(("variants", f"{reward.variants_matched} of {reward.variants_scored}"))
    print_table(("part", "value"), parts)


def _plain(record: "Episode | RewardBreakdown") -> Any:
    import msgspec

    return msgspec.to_builtins(record)
