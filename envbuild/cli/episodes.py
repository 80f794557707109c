"""Commands over episodes: rollout, score, view, play, ask, serve."""

import asyncio
import json as jsons
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from typer import Option

from envbuild.cli import options
from envbuild.cli.output import Result, print_table, progress, say, warn
from envbuild.env.agent import Agent
from envbuild.env.client import CompletionsClient, ServerGenerate
from envbuild.env.environment import Environment
from envbuild.env.prompts import load_preset, load_prompts
from envbuild.env.rollout import (
    REWARDS_FILE,
    choose_rows,
    recorded_settings,
    render_episodes,
    run_rollouts,
    score_groups,
    write_rewards,
)
from envbuild.env.tools import TOOLS, Tool
from envbuild.env.views import open_database
from envbuild.errors import CorpusFolderError, UsageError
from envbuild.evaluate.runs import manifest_of
from envbuild.io.episodes import EpisodeJournal, check_episodes, iter_episodes
from envbuild.io.files import sha256_file, write_text
from envbuild.io.parquet import iter_records
from envbuild.manifest.read import ROWS_FILE, open_manifest
from envbuild.records.corpus import counted, printable
from envbuild.records.episode import (
    EVALUATION_SAMPLING,
    EndedBy,
    Episode,
    EpisodeSettings,
    RewardBreakdown,
    RewardSettings,
    Sampling,
    TextRequest,
    Tier,
)
from envbuild.records.execution import QueryResult, Verdict
from envbuild.sql.connect import VERSIONS
from envbuild.sql.verdicts import row_equality


def rollout(
    manifest: options.ManifestArgument,
    base_url: options.BaseUrlOption,
    model: options.ModelOption,
    out: Annotated[Path, options.folder_option("Episodes folder; resumed.")] = Path("episodes"),
    episodes: Annotated[int, Option(min=1, help="Candidates a row: its group.")] = 8,
    rows: Annotated[int | None, Option(min=1, help="A seeded sample of this many rows.")] = None,
    row: Annotated[
        list[str] | None, Option(metavar="ID", help="This row only; repeatable.")
    ] = None,
    where: options.WhereOption = "",
    preset: options.PresetOption = "default",
    evaluation: Annotated[
        bool,
        Option("--evaluation", help="No submit gate; temperature 0.6, top-p 0.95, top-k 20."),
    ] = False,
    step: options.GateStepOption = None,
    schema: options.SchemaOption = "withheld",
    prompts: options.PromptsOption = None,
    temperature: Annotated[float | None, Option(min=0)] = None,
    top_p: Annotated[float | None, Option(min=0, max=1)] = None,
    top_k: Annotated[int | None, Option(min=-1)] = None,
    dialect: options.DialectOption = "vllm",
    concurrency: Annotated[int, Option(min=1, help="Episodes open at once.")] = 64,
    trace: Annotated[
        bool,
        Option("--trace", help="Show the first episode still to be asked as it goes (stderr)."),
    ] = False,
    rerun_golds: options.RerunGoldsOption = False,
    seed: options.SeedOption = 0,
    quiet: options.QuietOption = False,
) -> Result:
    """Episodes of every row against a server, kept as they finish; run again to resume.

    Exit 1 while episodes remain that the server failed: they are kept unscored, and the same
    command asks for them again.

    The key for the server, if it wants one, is read from $OPENAI_API_KEY.

    Example: envbuild rollout manifest/ --base-url http://127.0.0.1:8000/v1 --model NAME
    """
    env = Environment.open(
        manifest,
        settings=load_preset(preset, schema=schema, evaluation=evaluation),
        prompts=load_prompts(prompts),
        seed=seed,
        rerun_golds=rerun_golds,
    )
    chosen = choose_rows(env, rows=rows, named=row or (), where=where)
    given = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
    sampling = msgspec.structs.replace(
        EVALUATION_SAMPLING if evaluation else Sampling(),
        **{name: value for name, value in given.items() if value is not None},
    )
    configuration = {  # what a resume must agree on; the rows and episodes asked for may grow
        "manifest": str(manifest.resolve()),
        "manifest_sha256": sha256_file(env.manifest.root / ROWS_FILE),
        "model": model,
        "settings": msgspec.to_builtins(env.settings),
        "prompts_sha256": env.prompts.sha256,
        "sampling": msgspec.to_builtins(sampling),
        "step": step,
        "seed": env.seed,
        **VERSIONS,
    }
    with EpisodeJournal(out, configuration=configuration) as journal:
        asked = (f"{name}/{n}" for name in chosen for n in range(episodes))
        todo = [episode_id for episode_id in asked if episode_id not in journal.finished]
        if not todo:
            warn(f"nothing is left to ask: every episode is finished in {out}")
        concurrency = max(1, min(concurrency, len(todo)))
        client = CompletionsClient(
            base_url,
            model,
            sampling=sampling,
            dialect=dialect,
            api_key=os.environ.get("OPENAI_API_KEY", ""),
            connections=concurrency,
        )

        def show_first(episode_id: str, *turn: Any) -> None:
            if episode_id == todo[0]:
                _show_turn(*turn)

        async def roll_out() -> None:
            done = submitted = 0
            async with client:
                with progress(
                    "rolled out", "episodes", total=len(todo), quiet=quiet or trace
                ) as bar:
                    async for episode in run_rollouts(
                        env,
                        chosen,
                        client,
                        journal,
                        episodes=episodes,
                        concurrency=concurrency,
                        step=step,
                        policy=model,
                        on_turn=show_first if trace else None,
                    ):
                        done += 1
                        submitted += episode.ended_by is EndedBy.SUBMIT_SQL
                        bar.advance(note=f"submitted {submitted / done:.0%}")

        asyncio.run(roll_out())
        count = journal.seal()
        unanswered = len(journal.unanswered)
    ended: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    turns = 0
    for episode in iter_episodes(out):
        ended[episode.ended_by.value] += 1
        turns += len(episode.turns)
        if episode.error:
            errors[episode.error[:200]] += 1
    document = {
        "out": str(out),
        "where": where,
        "episodes": count,
        "ended_by": dict(sorted(ended.items())),
        "mean_turns": turns / count if count else 0.0,
        "unanswered": unanswered,
    }

    def show() -> None:
        rows = [(name, number, f"{number / count:.1%}") for name, number in sorted(ended.items())]
        print_table(("ended by", "episodes", "share"), rows, right=(1, 2))
        say(f"{counted(count, 'episode')}, {document['mean_turns']:.2f} turns each, in {out}")
        for error, number in errors.most_common(3):
            warn(f"{number} x {error}")

    if unanswered:
        warn(
            f"the server failed {counted(unanswered, 'episode')}: not scored, and the same command "
            "asks again"
        )
    return Result(
        document,
        show,
        findings=unanswered,
        wrote=out,
        following=("score", out),
    )


def _show_turn(request: TextRequest, completion: str, observation: str) -> None:
    """One turn on stderr, as `--trace` shows it."""
    warn(f"--- {request.kind} turn, at most {request.max_new_tokens} tokens")
    warn(completion.strip() or "(nothing)")
    if observation:
        warn("\n".join(f"    {line}" for line in observation.split("\n")))


def score(
    episodes: options.EpisodesArgument,
    manifest: options.ManifestOption = None,
    verdict: Annotated[str, Option(help="What counts as equivalent; published: bag@1.")] = "bag@1",
    rerun_golds: options.RerunGoldsOption = False,
) -> Result:
    """What each episode earned, consensus within its group included.

    Writes rewards.parquet beside the episodes. Gold results come from the manifest; nothing runs
    gold again unless --rerun-golds asks. Hidden variants judge too, but for a rollout
    --evaluation, as its folder records. Exit 1 where a gold cannot be scored, or a server failed
    an episode: the reward is null, never 0.

    Example: envbuild score episodes/
    """
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
    scored = [b.reward for b in breakdowns if b.reward is not None]
    mean = sum(scored) / len(scored) if scored else None
    document = {
        "verdict": verdict,
        "evaluation": env.settings.evaluation,
        "episodes": len(breakdowns),
        "unscored": len(breakdowns) - len(scored),
        "mean_reward": mean,
        "tiers": dict(sorted(Counter(b.tier.value for b in breakdowns).items())),
    }
    return Result(
        document,
        lambda: _show_scores(breakdowns, played, mean),
        findings=len(scored) < len(breakdowns),
        wrote=episodes / REWARDS_FILE,
        following=("evaluate", episodes),
    )


def _show_scores(
    breakdowns: list[RewardBreakdown], played: dict[str, Episode], mean: float | None
) -> None:

    lines = []
    for tier in Tier:
        group = [b for b in breakdowns if b.tier is tier]
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
    headers = ("tier", "episodes", "share", "mean reward", "mostly ended by")
    print_table(headers, lines, right=(1, 2, 3))
    agreed = counted(sum(b.consensus > 0 for b in breakdowns), "episode")
    say(
        "no episode could be scored"
        if mean is None
        else f"mean reward {mean:.3f}; {agreed} with their group's consensus"
    )


def view(
    episodes: options.EpisodesArgument,
    html: Annotated[Path, options.file_option("Where the page goes.")] = Path("episodes.html"),
    manifest: options.ManifestOption = None,
    limit: options.EpisodeLimitOption = None,
) -> Result:
    """One self-contained page: every turn, filters by ending, tier and bucket, a search.

    Rewards are shown where `envbuild score` has been run. j goes to the next episode, k to the one
    before.

    Example: envbuild view episodes/ --html episodes.html
    """
    chosen = list(islice(iter_episodes(episodes), limit))
    asked = {episode.row_id for episode in chosen}
    rows = {}
    try:
        opened = open_manifest(manifest or manifest_of(episodes))
        rows = {row_id: opened.row(row_id) for row_id in asked & set(opened.row_ids)}
        if lost := len(asked) - len(rows):
            warn(f"{lost} of {len(asked)} questions are not shown: {opened.root} has no such rows")
    except CorpusFolderError as e:
        if manifest is not None:
            raise
        warn(f"questions and golds are not shown: {e}")
    rewards_file = episodes / REWARDS_FILE
    failed = {e.episode_id for e in chosen if e.ended_by is EndedBy.SERVER_ERROR}
    scores = iter_records(rewards_file, RewardBreakdown) if rewards_file.exists() else ()
    rewards = {
        reward.episode_id: reward
        for reward in scores
        # an episode that was asked again since has not been scored yet
        if (reward.verdict == Verdict.SERVER_ERROR) == (reward.episode_id in failed)
    }
    name = episodes.resolve().name
    write_text(html, render_episodes(name, chosen, rows=rows, rewards=rewards))
    document = {
        "html": str(html),
        "episodes": len(chosen),
        "rows_known": len(rows),
        "scored": sum(episode.episode_id in rewards for episode in chosen),
    }
    return Result(
        document,
        lambda: say(f"{counted(len(chosen), 'episode')} in {html}"),
        following=("evaluate", episodes),
    )


def play(
    manifest: options.ManifestArgument,
    row: Annotated[
        str | None, Option(metavar="ID", help="A row_id; default: the first row.")
    ] = None,
    preset: options.PresetOption = "default",
    prompts: options.PromptsOption = None,
    schema: options.SchemaOption = "withheld",
    step: options.GateStepOption = None,
    rerun_golds: options.RerunGoldsOption = False,
    seed: options.SeedOption = 0,
    json: options.JsonOption = False,
) -> Result:
    """You are the agent, in the terminal: explore, try a query, submit it, see what it earned.

    Type `help` for the words. Works piped, one turn a line:

        printf 'tables\\nsubmit SELECT 1\\n' | envbuild play manifest/ --row ID
    """
    environment = Environment.open(
        manifest,
        settings=load_preset(preset, schema=schema),
        prompts=load_prompts(prompts),
        seed=seed,
        rerun_golds=rerun_golds,
    )
    if row is None:
        row = next(iter(environment.manifest.row_ids), None)
        if row is None:
            raise UsageError("the manifest holds no rows, so there is nothing to play")
    tell = warn if json else say
    environment.reset(row, step=step)
    asked = environment.row(row)
    tell(f"Row {asked.row_id} ({asked.bucket}, {counted(len(asked.tables), 'table')})")
    tell(f"Question: {asked.question}")
    if asked.evidence:
        tell(f"Evidence: {asked.evidence}")
    tell(f"{environment.settings.tool_turns} tool turns. Type help for the words.\n")
    _take_turns(environment, tell)
    episode, reward = environment.episode(), environment.reward()
    environment.close()
    document = {"episode": episode, "reward": reward}
    return Result(
        document,
        lambda: _show_end(episode, reward),
        following=("rollout", manifest, "--base-url", "URL", "--model", "NAME"),
    )


def _take_turns(environment: Environment, tell: Callable[[str], None]) -> None:
    """Reads lines until the episode is over or the person leaves."""
    while (request := environment.request) is not None:
        final = request.kind == "final"
        if sys.stdin.isatty():  # the prompt is for terminals
            typer.echo("final> " if final else "> ", nl=False, err=True)
        line = sys.stdin.readline()
        word = line.strip()
        if not line or word in ("quit", "exit"):
            environment.leave("left before the end")
        elif word == "help":
            tell(play_help())
        elif word == "prompt":
            tell(request.context)
        elif word:
            completion = completion_of(line.rstrip("\n")) or (line if final else None)
            if completion is None:
                tell("No such word: `sql QUERY` tries, `submit QUERY` answers, `help` lists all.\n")
                continue
            observation = environment.step(completion).observation
            if observation:
                tell(f"{observation}\n")


def _show_end(episode: Episode, reward: RewardBreakdown) -> None:
    say(f"Answer: {episode.sql or '(none)'}")
    parts: list[tuple[str, object]] = [
        ("reward", "unscored" if reward.reward is None else f"{reward.reward:g}"),
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


WORDS: dict[str, Tool] = {tool.word: tool for tool in TOOLS}
"""What a person types for each tool."""
OPERANDS = {
    "table_name": "TABLE",
    "table_a": "TABLE",
    "table_b": "TABLE",
    "column_name": "COLUMN",
    "limit": "N",
    "sql": "QUERY",
}


def play_help() -> str:
    """What may be typed, a line each."""
    lines = []
    for word, tool in WORDS.items():
        names = [(OPERANDS[one.name], one.required) for one in tool.arguments]
        usage = " ".join((word, *(name if needed else f"[{name}]" for name, needed in names)))
        lines.append((usage, tool.typed))
    lines += [("prompt", "what an agent is told at the start")]
    lines += [("help, quit", "this list; leave")]
    shown = "\n".join(f"{usage:<28} {text}" for usage, text in lines)
    return f"{shown}\nA JSON call, or several, is taken as it is. Names with blanks go in quotes."


def completion_of(line: str) -> str | None:
    """The completion that a typed line stands for: a tool's call, or what an agent writes as it is.

    None where the line is neither.
    """
    word, _, rest = line.strip().partition(" ")
    tool = WORDS.get(word.lower())
    if tool is None:
        return line if "{" in line or "<" in line else None
    names = [argument.name for argument in tool.arguments]
    if names == ["sql"]:
        operands = [rest.strip()]
    else:
        try:
            operands = shlex.split(rest)
        except ValueError:  # a quote that never ends
            operands = rest.split()
    names += [f"extra_{number}" for number in range(1, len(operands) + 1)]
    arguments: dict[str, object] = dict(zip(names, filter(None, operands), strict=False))
    limit = arguments.get("limit")
    if isinstance(limit, str) and limit.lstrip("-").isdigit():
        arguments["limit"] = int(limit)
    return jsons.dumps({"tool": tool.name, "args": arguments}, ensure_ascii=False)


def ask(
    db: Annotated[Path, Option(help="Your SQLite file; opened read-only.")],
    question: Annotated[str, Option(help="In plain words.")],
    base_url: options.BaseUrlOption,
    model: options.ModelOption,
    evidence: Annotated[str, Option(help="Outside knowledge the model should have.")] = "",
    schema: options.SchemaOption = "withheld",
    dialect: options.DialectOption = "vllm",
    trace: Annotated[bool, Option("--trace", help="Show every turn as it goes (stderr).")] = False,
    seed: options.SeedOption = 0,
) -> Result:
    """One question over your own database: the SQL, and what it returns.

    Exit 1 where no SQL came of it; SQL that fails, or returns more than can be shown, says so.

    Example: envbuild ask --db shop.sqlite --question "How many orders did Ann make?"
    --base-url http://127.0.0.1:8000/v1 --model NAME
    """

    def show_turn(_place: int, *turn: Any) -> None:
        _show_turn(*turn)

    key = os.environ.get("OPENAI_API_KEY", "")
    generate = ServerGenerate(base_url, model, dialect=dialect, api_key=key, seed=seed)
    settings = load_preset("default", evaluation=True, schema=schema)
    agent = Agent(generate, settings=settings, policy=model)
    episode = agent.run(question, db, evidence=evidence, on_turn=show_turn if trace else None)
    database = open_database(db)
    result = database.session.run(episode.sql) if episode.sql else None
    database.close()
    document = {
        "episode": episode,
        "outcome": result.outcome.value if result else "",
        "error": result.error if result else episode.error,
        "columns": result.columns if result else (),
        "rows": result.rows if result else (),
    }
    return Result(
        document,
        lambda: _show_answer(episode, result),
        findings=result is None,
    )


def _show_answer(episode: Episode, result: QueryResult | None) -> None:
    """The SQL or why there is none, and the first rows."""
    if result is None:
        why = episode.error or f"the episode ended by {episode.ended_by}"
        say(printable(f"no answer: {why}"))
        return
    say(printable(episode.sql))
    if not result.columns:
        say(printable(result.error))
        return
    shown = [["NULL" if cell is None else cell for cell in row] for row in result.rows[:50]]
    print_table(result.columns, shown)
    if len(result.rows) > len(shown) or not result.ok:
        more = "" if result.ok else "more than "
        say(f"{more}{len(result.rows)} rows; the first {len(shown)} are shown")


def serve(
    manifest: options.ManifestArgument,
    openenv: Annotated[
        bool, Option("--openenv", help="Speak OpenEnv (HTTP and WebSocket).")
    ] = False,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0: any free port.")] = 8000,
    sessions: Annotated[int, Option(min=1, help="Episodes at once, at most.")] = 256,
    rerun_golds: options.RerunGoldsOption = False,
) -> None:
    """The manifest's questions as an environment server.

    Needs `pip install '.[openenv]'` in a checkout. Runs until Ctrl-C.

    Example: envbuild serve manifest/ --openenv --port 8000
    """
    if not openenv:
        raise UsageError("say which protocol to speak; there is one: --openenv")
    from envbuild.train.openenv import listen, make_app, run_server

    app = make_app(manifest, sessions=sessions, rerun_golds=rerun_golds)
    with listen(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        warn(f"serving {manifest} on http://{shown}:{listening.getsockname()[1]}")
        run_server(app, listening)
