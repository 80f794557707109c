"""`envbuild ask`: one question over one's own database."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envbuild.cli.options import FINDINGS, JsonOption, SeedOption, print_json

if TYPE_CHECKING:
    from envbuild.records.episode import Episode, TextRequest
    from envbuild.records.execution import QueryResult


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("ask")(ask)


def ask(
    db: Annotated[Path, typer.Option("--db", help="Your SQLite file; opened read-only.")],
    question: Annotated[str, typer.Option("--question", help="In plain words.")],
    base_url: Annotated[str, typer.Option("--base-url", help="Such as http://127.0.0.1:8000/v1.")],
    model: Annotated[str, typer.Option("--model", help="The served model's name.")],
    evidence: Annotated[
        str, typer.Option("--evidence", help="Outside knowledge the model should have.")
    ] = "",
    full_schema: Annotated[
        bool, typer.Option("--full-schema", help="Put the DDL into the prompt.")
    ] = False,
    dialect: Annotated[str, typer.Option("--dialect", help="vllm or openai.")] = "vllm",
    trace: Annotated[
        bool, typer.Option("--trace", help="Show every turn as it goes (stderr).")
    ] = False,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """One question over your own database: the SQL, and what it returns.

    Exit 1 where no SQL came of it; SQL that fails, or returns more than can be shown, says so.

    Example: envbuild ask --db shop.sqlite --question "How many orders did Ann make?"
    --base-url http://127.0.0.1:8000/v1 --model NAME
    """
    from envbuild.cli.rollout_command import show_turn
    from envbuild.episode.presets import load_preset
    from envbuild.episode.views import open_database
    from envbuild.records.counted import printable
    from envbuild.rollout.agent import Agent
    from envbuild.rollout.generate import ServerGenerate

    def show(place: int, request: "TextRequest", completion: str, observation: str) -> None:
        show_turn(request, completion, observation)

    generate = ServerGenerate(
        base_url,
        model,
        dialect=dialect,
        api_key=os.environ.get("OPENAI_API_KEY", ""),
        seed=seed,
    )
    schema = "full" if full_schema else "withheld"
    settings = load_preset("default", evaluation=True, schema=schema)
    agent = Agent(generate, settings=settings, policy=model)
    episode = agent.run(question, db, evidence=evidence, on_turn=show if trace else None)
    database = open_database(db)
    result = database.session.run(episode.sql) if episode.sql else None
    database.close()
    if json:
        print_json("ask", {"episode": episode, **_returned(result, episode.error)})
    else:
        typer.echo(printable(episode.sql or f"no answer: {episode.error or _why(episode)}"))
        if result is not None:
            _show_rows(result)
    if result is None:
        raise typer.Exit(FINDINGS)


def _why(episode: "Episode") -> str:
    """Why the model came to no SQL."""
    return _WITHOUT_SQL.get(episode.ended_by.value, f"the episode ended by {episode.ended_by}")


_WITHOUT_SQL = {
    "submit_sql": "the model submitted nothing",
    "no_answer": "the tool turns were used up, no query had worked, and the last turn gave no SQL",
    "query_error_cap": "too many queries failed, and the last turn gave no SQL",
    "token_budget": "the tokens were used up before any query had worked",
    "call_budget": "the tool calls were used up, and the last turn gave no SQL",
}


def _returned(result: "QueryResult | None", error: str) -> dict[str, object]:
    """What the SQL came to; `error` says why there is none."""
    if result is None:
        return {"outcome": "", "error": error, "columns": (), "rows": ()}
    return {
        "outcome": result.outcome.value,
        "error": result.error,
        "columns": result.columns,
        "rows": result.rows,
    }


def _show_rows(result: "QueryResult") -> None:
    from envbuild.cli.tables import print_table
    from envbuild.records.counted import printable

    if not result.columns:
        typer.echo(printable(result.error))
        return
    shown = [["NULL" if cell is None else cell for cell in row] for row in result.rows[:50]]
    print_table(result.columns, shown)
    if len(result.rows) > len(shown) or not result.ok:
        more = "" if result.ok else "more than "
        typer.echo(f"{more}{len(result.rows)} rows; the first {len(shown)} are shown")
