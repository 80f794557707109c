"""`envbuild rollout`: episodes against an OpenAI-compatible server."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from envbuild.cli.options import (
    FINDINGS,
    JsonOption,
    QuietOption,
    RerunGoldsOption,
    SeedOption,
    folder_path,
    print_json,
    warn,
)
from envbuild.records.counted import counted

if TYPE_CHECKING:
    from envbuild.environment import Environment
    from envbuild.records.episode import Episode, TextRequest
    from envbuild.records.rollout import Sampling


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("rollout")(rollout)


def rollout(
    manifest: Annotated[Path, typer.Argument(help="A manifest folder.")],
    base_url: Annotated[str, typer.Option("--base-url", help="Such as http://127.0.0.1:8000/v1.")],
    model: Annotated[str, typer.Option("--model", help="The served model's name.")],
    out: Annotated[
        Path, typer.Option("--out", callback=folder_path, help="Episodes folder; resumed.")
    ] = Path("episodes"),
    episodes: Annotated[
        int, typer.Option("--episodes", min=1, help="Candidates a row: its group.")
    ] = 8,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="A seeded sample of this many rows.")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option("--row", metavar="ID", help="This row only; repeatable.")
    ] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="default, several-calls or one-call.")
    ] = "default",
    evaluation: Annotated[
        bool,
        typer.Option("--evaluation", help="No submit gate; temperature 0.6, top-p 0.95, top-k 20."),
    ] = False,
    step: Annotated[
        int | None, typer.Option("--step", min=0, help="Training step that sets the submit gate.")
    ] = None,
    full_schema: Annotated[
        bool, typer.Option("--full-schema", help="Put the DDL into the prompt.")
    ] = False,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", metavar="FILE", help="Your own prompts (TOML).")
    ] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0)] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", min=0, max=1)] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", min=-1)] = None,
    dialect: Annotated[str, typer.Option("--dialect", help="vllm or openai.")] = "vllm",
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="Episodes open at once.")
    ] = 64,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace", help="Show the first episode still to be asked as it goes (stderr)."
        ),
    ] = False,
    rerun_golds: RerunGoldsOption = False,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Episodes of every row against a server, kept as they finish; run again to resume.

    Exit 1 while episodes remain that the server failed: they are kept unscored, and the same
    command asks for them again.

    The key for the server, if it wants one, is read from $OPENAI_API_KEY.

    Example: envbuild rollout manifest/ --base-url http://127.0.0.1:8000/v1 --model NAME
    """
    import asyncio

    from envbuild.environment import Environment
    from envbuild.episode.presets import load_preset
    from envbuild.episode.prompts import load_prompts
    from envbuild.io.episodes import EpisodeJournal
    from envbuild.rollout.run import choose_rows

    settings = load_preset(
        preset, schema="full" if full_schema else "withheld", evaluation=evaluation
    )
    env = Environment.open(
        manifest,
        settings=settings,
        prompts=load_prompts(prompts),
        seed=seed,
        rerun_golds=rerun_golds,
    )
    chosen = choose_rows(env, rows=rows, named=row or ())
    sampling = _sampling(evaluation, temperature, top_p, top_k)
    configuration = _configuration(env, manifest, model, sampling, step)
    with EpisodeJournal(out, configuration=configuration) as journal:
        asked = (f"{name}/{n}" for name in chosen for n in range(episodes))
        todo = [episode_id for episode_id in asked if episode_id not in journal.finished]
        if not todo:
            warn(f"nothing is left to ask: every episode is finished in {out}")
        asyncio.run(
            _run(
                env,
                chosen,
                journal,
                base_url=base_url,
                model=model,
                sampling=sampling,
                dialect=dialect,
                episodes=episodes,
                concurrency=max(1, min(concurrency, len(todo))),
                step=step,
                todo=len(todo),
                traced=todo[0] if trace and todo else "",
                quiet=quiet or trace,
            )
        )
        count = journal.seal()
        unanswered = len(journal.unanswered)
    _report(out, count, unanswered, json=json)
    if unanswered:
        warn(
            f"the server failed {counted(unanswered, 'episode')}: not scored, and the same command "
            "asks again"
        )
        raise typer.Exit(FINDINGS)


async def _run(
    env: "Environment",
    rows: list[str],
    journal: Any,
    *,
    base_url: str,
    model: str,
    sampling: "Sampling",
    dialect: str,
    episodes: int,
    concurrency: int,
    step: int | None,
    todo: int,
    traced: str,
    quiet: bool,
) -> None:
    from envbuild.cli.progress import progress_noted
    from envbuild.records.episode import EndedBy
    from envbuild.rollout.client import CompletionsClient
    from envbuild.rollout.run import run_rollouts

    def show(episode_id: str, request: "TextRequest", completion: str, observation: str) -> None:
        if episode_id == traced:
            show_turn(request, completion, observation)

    done = submitted = 0
    async with CompletionsClient(
        base_url,
        model,
        sampling=sampling,
        dialect=dialect,
        api_key=os.environ.get("OPENAI_API_KEY", ""),
        connections=concurrency,
    ) as client:
        with progress_noted(total=todo, label="episodes", quiet=quiet) as advance:
            async for episode in run_rollouts(
                env,
                rows,
                client,
                journal,
                episodes=episodes,
                concurrency=concurrency,
                step=step,
                policy=model,
                on_turn=show if traced else None,
            ):
                done += 1
                submitted += episode.ended_by is EndedBy.SUBMIT_SQL
                advance(f"submitted {submitted / done:.0%}")


def show_turn(request: "TextRequest", completion: str, observation: str) -> None:
    """One turn on stderr, as `--trace` shows it."""
    warn(f"--- {request.kind} turn, at most {request.max_new_tokens} tokens")
    warn(completion.strip() or "(nothing)")
    if observation:
        warn("\n".join(f"    {line}" for line in observation.split("\n")))


def _sampling(
    evaluation: bool, temperature: float | None, top_p: float | None, top_k: int | None
) -> "Sampling":
    import msgspec

    from envbuild.records.rollout import EVALUATION_SAMPLING, Sampling

    base = EVALUATION_SAMPLING if evaluation else Sampling()
    given = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
    return msgspec.structs.replace(base, **{k: v for k, v in given.items() if v is not None})


def _configuration(
    env: "Environment", manifest: Path, model: str, sampling: "Sampling", step: int | None
) -> dict[str, object]:
    """What a resume must agree on; which rows and how many episodes may grow."""
    import msgspec

    from envbuild.io.files import sha256_file
    from envbuild.manifest.layout import ROWS_FILE
    from envbuild.sql.connect import VERSIONS

    return {
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


def _report(out: Path, count: int, unanswered: int, *, json: bool) -> None:
    from collections import Counter

    from envbuild.io.episodes import iter_episodes

    ended: Counter[str] = Counter()
    turns = 0
    errors: Counter[str] = Counter()
    for episode in iter_episodes(out):
        ended[episode.ended_by.value] += 1
        turns += len(episode.turns)
        errors[_short(episode)] += bool(episode.error)
    summary = dict(sorted(ended.items()))
    mean = turns / count if count else 0.0
    if json:
        print_json(
            "rollout",
            {
                "out": str(out),
                "episodes": count,
                "ended_by": summary,
                "mean_turns": mean,
                "unanswered": unanswered,
            },
        )
        return
    from envbuild.cli.tables import print_table

    rows = [(name, number, f"{number / count:.1%}") for name, number in summary.items()]
    print_table(("ended by", "episodes", "share"), rows, right=(1, 2))
    typer.echo(f"{counted(count, 'episode')}, {mean:.2f} turns each, in {out}")
    for error, number in errors.most_common(3):
        if number:
            warn(f"{number} x {error}")


def _short(episode: "Episode") -> str:
    return episode.error[:200]
