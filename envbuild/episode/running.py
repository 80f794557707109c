"""What an episode over text and one over token ids have in common: its start and its record."""

import time

from envbuild.episode.chat import opens_thinking, render_prompt
from envbuild.episode.database import EpisodeDatabase
from envbuild.episode.gate import draw_gate
from envbuild.episode.machine import Machine
from envbuild.episode.presets import check_settings, preset_name
from envbuild.episode.prompts import Prompts, fill, load_prompts
from envbuild.episode.toolbox import Toolbox
from envbuild.episode.tools import render_tools
from envbuild.errors import StateError
from envbuild.records.episode import ChatFormat, EndedBy, Episode, EpisodeSettings, Task

DEFAULT_SETTINGS = EpisodeSettings()
QWEN = ChatFormat()


class RunningEpisode:
    """One episode under way; `TextEpisode` and `TokenEpisode` add what is asked and fed.

    Raises an OperatorError for settings that no episode can have (`check_settings`).
    """

    def __init__(
        self,
        task: Task,
        database: EpisodeDatabase,
        *,
        settings: EpisodeSettings = DEFAULT_SETTINGS,
        prompts: Prompts | None = None,
        chat: ChatFormat = QWEN,
        seed: int = 0,
        candidate: int = 0,
        gate_probability: float = 0.0,
        policy: str = "",
        reward_sha256: str = "",
    ) -> None:
        check_settings(settings)
        self.task = task
        self.database = database
        self.settings = settings
        self.prompts = prompts or load_prompts()
        self.chat = chat
        self.seed = seed
        self.candidate = candidate
        self.gate_probability = 0.0 if settings.evaluation else gate_probability
        self.policy = policy
        self.reward_sha256 = reward_sha256
        self.error = ""
        self.machine = Machine(
            Toolbox(database, settings),
            settings=settings,
            prompts=self.prompts,
            gated=draw_gate(
                self.gate_probability, seed=seed, row_id=task.row_id, candidate=candidate
            ),
            opened_thinking=opens_thinking(chat),
        )
        self.messages = prompt_messages(task, database, settings=settings, prompts=self.prompts)
        """The prompt as chat messages, for a harness that renders them itself."""
        system, user = (message["content"] for message in self.messages)
        self.prompt = render_prompt(chat, system=system, user=user)
        self._started = time.monotonic()
        self._seconds = 0.0

    @property
    def episode_id(self) -> str:
        """`<row_id>/<candidate>`."""
        return f"{self.task.row_id}/{self.candidate}"

    @property
    def over(self) -> bool:
        """True once there is nothing more to ask."""
        return self.machine.over

    def fail(self, error: str, *, ended_by: EndedBy = EndedBy.POLICY_ERROR) -> None:
        """Ends the episode because the policy could not go on; `error` goes into the record.

        `ended_by` SERVER_ERROR: for no fault of the policy, so that nothing is scored.
        """
        if not self.over:
            self.error = error
            self.machine.stop(ended_by)

    def close(self) -> None:
        """Closes the database; the record can still be taken."""
        self.database.close()

    def record(self) -> Episode:
        """The finished episode. Raises StateError before its end."""
        machine = self.machine
        if machine.ended_by is None:
            raise StateError("the episode is not over yet")
        self._seconds = self._seconds or time.monotonic() - self._started
        return Episode(
            episode_id=self.episode_id,
            row_id=self.task.row_id,
            candidate=self.candidate,
            policy=self.policy,
            seed=self.seed,
            preset=preset_name(self.settings),
            schema=self.settings.schema,
            prompts_sha256=self.prompts.sha256,
            reward_sha256=self.reward_sha256,
            gate_probability=self.gate_probability,
            gated=machine.gated,
            prompt=self.prompt,
            turns=tuple(machine.turns),
            sql=machine.sql,
            ended_by=machine.ended_by,
            answer_source=machine.answer_source,
            exploration_ended_by=machine.exploration_ended_by,
            last_working_sql=machine.last_working_sql,
            error=self.error,
            seconds=self._seconds,
        )


def prompt_messages(
    task: Task, database: EpisodeDatabase | None, *, settings: EpisodeSettings, prompts: Prompts
) -> list[dict[str, str]]:
    """The system and the user message that open an episode.

    A withheld schema needs no database. Raises StateError where a full one has none.
    """
    if settings.schema == "full" and database is None:
        raise StateError("the full schema is shown: open the database first")
    system = fill(
        prompts.system,
        tools=render_tools(),
        call_rule=_call_rule(settings.calls_a_turn, prompts),
        tool_turns=settings.tool_turns,
    )
    user = fill(
        prompts.user,
        question=task.question,
        evidence=fill(prompts.evidence, evidence=task.evidence) if task.evidence else "",
        schema=_shown_schema(database, prompts) if database and settings.schema == "full" else "",
    )
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _call_rule(calls_a_turn: int | None, prompts: Prompts) -> str:
    if calls_a_turn is None:
        return prompts.several_calls
    return (
        prompts.one_call if calls_a_turn == 1 else fill(prompts.limited_calls, calls=calls_a_turn)
    )


def _shown_schema(database: EpisodeDatabase, prompts: Prompts) -> str:
    known = {table.name: table.sql for table in database.schema.schema.tables}
    ddl = ";\n\n".join(known[name] for name in database.schema.tables if name in known)
    return fill(prompts.schema, ddl=f"{ddl};" if ddl else "")
