"""One episode, over text or over token ids: its rules, its state and its record."""

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from envbuild.env.chat import (
    MAX_CHARACTERS_PER_TOKEN,
    CallCounter,
    IdCounter,
    TokenCounter,
    Tokenizer,
    TurnCutter,
    cut_at_stop,
    estimate_tokens,
    opens_thinking,
    render_observation,
    render_prompt,
)
from envbuild.env.final import final_sql
from envbuild.env.parse import MAX_UNREADABLE, Call, Parsed, parse_completion
from envbuild.env.prompts import (
    Prompts,
    check_settings,
    draw_gate,
    fill,
    load_prompts,
    normalised,
    preset_name,
)
from envbuild.env.render import cap_text, storable
from envbuild.env.tools import Toolbox, check_call, render_tools
from envbuild.env.views import EpisodeDatabase
from envbuild.errors import StateError
from envbuild.records.episode import (
    ChatFormat,
    EndedBy,
    Episode,
    EpisodeSettings,
    Task,
    TextRequest,
    TokenRequest,
    ToolCall,
    Turn,
)

# The episode's rules over whole turns: what a completion does, and what the policy is told.
#
# Nothing here knows prompts' delimiters, tokens or transports (see `text_episode`,
# `token_episode`); tools run through a `Toolbox`. The rules are CONTRACT 10's.


TOOL_TURNS = "tool_turns"
"""Exploration ended because its turns were used up."""

MIN_SHOWN = 200
"""Characters that each of a turn's many results may always take, and its last query."""


class Machine:
    """One episode's state between turns."""

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        settings: EpisodeSettings,
        prompts: Prompts,
        gated: bool = False,
        opened_thinking: bool = False,
    ) -> None:
        self.toolbox = toolbox
        self.settings = settings
        self.prompts = prompts
        self.gated = gated
        self.opened_thinking = opened_thinking
        """The prompt already ends in `<think>`."""
        self.turns: list[Turn] = []
        self.calls_made = 0
        self.failing_queries = 0
        """run_query calls that failed since the last that worked."""
        self.last_working_sql = ""
        self.ran: set[tuple[str, ...]] = set()
        """Queries that worked, normalised; the gate looks here."""
        self.exploration_ended_by = ""
        self.ended_by: EndedBy | None = None
        self.sql = ""
        self.answer_source = ""

    @property
    def over(self) -> bool:
        """True once nothing more is asked of the policy."""
        return self.ended_by is not None

    @property
    def kind(self) -> str:
        """What the next completion is for: `tool` or `final`."""
        return "final" if self.exploration_ended_by else "tool"

    @property
    def turn_tokens(self) -> int:
        """How long the next completion may be."""
        s = self.settings
        return s.final_turn_tokens if self.exploration_ended_by else s.tool_turn_tokens

    def take(self, completion: str, *, tokens: int = 0, truncated: bool = False) -> str:
        """What the policy is told about its completion; empty when the episode is over.

        Raises StateError after the end.
        """
        if self.over:
            raise StateError("the episode is over: reset before another step")
        completion = storable(completion)
        parsed = parse_completion(completion, opened_thinking=self.opened_thinking)
        turn = Turn(
            index=len(self.turns),
            kind=self.kind,
            completion=completion,
            completion_tokens=tokens,
            truncated=truncated,
        )
        if turn.kind == "final":
            self.turns.append(turn)
            self._answer(final_sql(parsed))
            return ""
        calls, notes = self._run_calls(parsed)
        last = self.last_working_sql if self.exploration_ended_by and not self.over else ""
        *results, last = self._fitted([*(call.result for call in calls), last])
        calls = [
            msgspec.structs.replace(call, result=result)
            for call, result in zip(calls, results, strict=True)
        ]
        observation = "" if self.over else self._observation(parsed, calls, notes, last)
        self.turns.append(
            msgspec.structs.replace(turn, calls=tuple(calls), observation=observation)
        )
        return observation

    def stop(self, ended_by: EndedBy) -> None:
        """Ends the episode from outside (tokens spent, a policy that failed).

        The last observation was never shown, so it leaves the record. Spent tokens leave the last
        working query as the answer; a policy or a server that failed gave none.
        """
        if self.over:
            return
        if self.turns and self.turns[-1].kind == "tool":
            self.turns[-1] = msgspec.structs.replace(self.turns[-1], observation="")
        self.exploration_ended_by = self.exploration_ended_by or ended_by.value
        self.ended_by = ended_by
        if ended_by not in (EndedBy.POLICY_ERROR, EndedBy.SERVER_ERROR):
            self._fall_back()

    def _run_calls(self, parsed: Parsed) -> tuple[list[ToolCall], list[str]]:
        """Runs a turn's calls until one ends exploration; the notes say what was not run."""
        done: list[ToolCall] = []
        notes: list[str] = []
        if parsed.unread:
            notes.append(fill(self.prompts.unread, count=MAX_UNREADABLE))
        allowed = self.settings.calls_a_turn
        for position, call in enumerate(parsed.calls):
            left = len(parsed.calls) - position
            if allowed is not None and position >= allowed:
                calls = "one call" if allowed == 1 else f"{allowed} calls"
                notes.append(fill(self.prompts.extra_calls, calls=calls, count=left))
                break
            if self.calls_made >= self.settings.calls:
                notes.append(fill(self.prompts.calls_spent, calls=self.settings.calls, count=left))
                break
            self.calls_made += 1
            done.append(self._run_call(call))
            if self.over:
                return done, notes
            if self.failing_queries >= self.settings.failing_queries:
                self.exploration_ended_by = EndedBy.QUERY_ERROR_CAP.value
                notes.append(fill(self.prompts.errors_spent, errors=self.failing_queries))
                if left > 1:
                    notes.append(fill(self.prompts.not_run, count=left - 1))
                return done, notes
        if self.calls_made >= self.settings.calls:
            self.exploration_ended_by = EndedBy.CALL_BUDGET.value
        elif len(self.turns) + 1 >= self.settings.tool_turns:
            self.exploration_ended_by = TOOL_TURNS
        return done, notes

    def _fitted(self, texts: list[str]) -> list[str]:
        """Results and last query as they together fit an observation.

        What is too long gets an equal part of what the shorter ones leave.
        """
        left = self.settings.observation_characters
        lengths = sorted(len(text) for text in texts)
        for shorter, length in enumerate(lengths):
            part = left // (len(lengths) - shorter)
            if length > part:
                return [cap_text(text, max(part, MIN_SHOWN)) for text in texts]
            left -= length
        return texts

    def _run_call(self, call: Call) -> ToolCall:
        arguments = json.dumps(call.arguments, ensure_ascii=False) if call.tool else call.text
        problem = call.problem or check_call(
            call.tool, call.arguments, most_rows=self.settings.most_rows
        )
        if problem:
            done = ToolCall(tool=call.tool, result=f"Error: {problem}", failed=True)
        elif call.tool == "submit_sql":
            done = self._submit(call.arguments["sql"])
        else:
            done = self.toolbox.run(call.tool, call.arguments)
        if call.tool == "run_query":
            self._count_query(done)
        return msgspec.structs.replace(
            done,
            tool=storable(done.tool),
            arguments=storable(arguments),
            sql=storable(done.sql),
            result=storable(done.result),
        )

    def _count_query(self, done: ToolCall) -> None:
        if done.failed:
            self.failing_queries += 1
            return
        self.failing_queries = 0
        self.last_working_sql = done.sql
        self.ran.add(normalised(done.sql))

    def _submit(self, sql: str) -> ToolCall:
        if self.gated and normalised(sql) not in self.ran:
            return ToolCall(tool="submit_sql", result=self.prompts.gate, failed=True, sql=sql)
        self.sql, self.answer_source = storable(sql), "submit_sql"
        self.exploration_ended_by = self.ended_by = EndedBy.SUBMIT_SQL
        return ToolCall(tool="submit_sql", sql=sql)

    def _answer(self, sql: str) -> None:
        """The final turn's outcome: its SQL, or the last working query where that gives nothing."""
        self.sql, self.answer_source = sql, "final_turn" if sql else ""
        if not sql or not self.toolbox.runs(sql):
            self._fall_back()
        if self.answer_source == "last_working_query":
            self.ended_by = EndedBy.FALLBACK
        elif self.exploration_ended_by != TOOL_TURNS:
            self.ended_by = EndedBy(self.exploration_ended_by)
        else:
            self.ended_by = EndedBy.FINAL_TURN if sql else EndedBy.NO_ANSWER

    def _fall_back(self) -> None:
        if self.last_working_sql:
            self.sql, self.answer_source = self.last_working_sql, "last_working_query"

    def _observation(
        self, parsed: Parsed, calls: list[ToolCall], notes: list[str], last_query: str
    ) -> str:
        prompts = self.prompts
        blocks = []
        if not parsed.calls:
            text = prompts.unfinished_thinking if parsed.unfinished_thinking else prompts.no_call
            blocks.append(fill(prompts.result, result=text))
        elif len(calls) == 1:
            blocks.append(fill(prompts.result, result=calls[0].result))
        else:
            blocks += [
                fill(
                    prompts.numbered_result,
                    number=number,
                    tool=call.tool[:60] or "unreadable",
                    result=call.result,
                )
                for number, call in enumerate(calls, 1)
            ]
        blocks += notes
        blocks.append(self._what_is_left(last_query))
        return "\n\n".join(blocks)

    def _what_is_left(self, last_query: str) -> str:
        prompts = self.prompts
        if self.exploration_ended_by:
            told = fill(prompts.last_query, sql=last_query) if last_query else ""
            return fill(prompts.final, last_query=told)
        left = self.settings.tool_turns - len(self.turns) - 1
        return prompts.turn_left if left == 1 else fill(prompts.turns_left, turns=left)


# What an episode over text and one over token ids have in common: its start and its record.


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


# One episode over text: the prompt string grows, each completion is the model's own text.


class TextEpisode(RunningEpisode):
    """`next_request()` says what to sample, `feed()` takes it, until there is no request.

    The limits on tokens hold as in a token episode: a completion past its request's
    `max_new_tokens` is cut there, and the turn marked `truncated`. Tokens are those that the server
    reports to `feed`; without its figures `tokenizer` or `count_tokens` counts them; without these
    they are estimated at four characters a token: that bounds an episode in any case, and cuts only
    what no tokenizer could fit (16 characters a token).
    """

    def __init__(
        self,
        task: Task,
        database: EpisodeDatabase,
        *,
        tokenizer: Tokenizer | None = None,
        count_tokens: Callable[[str], int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(task, database, **options)
        self.context = self.prompt
        """The prompt string and everything after it."""
        self._counter: TokenCounter = (
            CallCounter(count_tokens or estimate_tokens)
            if tokenizer is None or count_tokens is not None
            else IdCounter(tokenizer)
        )
        self._counted = tokenizer is not None or count_tokens is not None
        self._spent = 0
        self._prompt_tokens: int | None = None

    def next_request(self) -> TextRequest | None:
        """The next completion wanted; None when the episode is over."""
        if self.over:
            return None
        return TextRequest(
            context=self.context,
            max_new_tokens=self._most_tokens(),
            stop=self.chat.stop,
            kind=self.machine.kind,
            episode_id=self.episode_id,
            turn=len(self.machine.turns),
        )

    def feed(
        self,
        completion: str,
        *,
        completion_tokens: int | None = None,
        context_tokens: int | None = None,
        truncated: bool = False,
    ) -> str:
        """Takes what was sampled and returns the observation; empty when the episode is over.

        `completion` may end in a stop text or not; what stands behind one, or past the request's
        limit, is dropped. `context_tokens` and `completion_tokens` are the server's own figures.
        `truncated` says that the token limit was hit. Raises StateError after the end.
        """
        if self.over:
            raise StateError("the episode is over: reset before another step")
        text, stop = cut_at_stop(self.chat, storable(completion))
        sampled = self._sampled(text, stop, self._most_tokens(), completion_tokens)
        truncated = truncated or sampled.cut
        text = sampled.text
        if context_tokens is not None:
            if self._prompt_tokens is None:
                self._prompt_tokens = context_tokens
            self._spent = context_tokens - self._prompt_tokens
        self._spent += sampled.tokens
        observation = self.machine.take(text, tokens=sampled.tokens, truncated=truncated)
        self.context += text
        if self.over:
            return ""
        rendered = render_observation(self.chat, observation)
        shown = self.chat.message_end + rendered
        tokens = self._counter.count(rendered if sampled.closed else shown)
        if self._spent + tokens >= self.settings.episode_tokens:
            self.machine.stop(EndedBy.TOKEN_BUDGET)
            return ""
        self._spent += tokens
        self.context += shown
        return observation

    def _most_tokens(self) -> int:
        return min(self.machine.turn_tokens, self.settings.episode_tokens - self._spent)

    def _sampled(self, text: str, stop: str, most: int, reported: int | None) -> "_Sampled":
        """What was sampled of a turn, by the same rules that a token episode has for ids."""
        counter = self._counter
        if reported is not None:
            if reported <= most:
                return _Sampled(text, reported)
            kept = (
                counter.cut(text, most) if self._counted else text[: len(text) * most // reported]
            )
            return _Sampled(kept, most, cut=True)
        tokens = counter.count(text)
        if not self._counted:
            kept = text[: most * MAX_CHARACTERS_PER_TOKEN]
            return _Sampled(kept, min(tokens, most), cut=len(kept) < len(text))
        if tokens >= most:
            return _Sampled(counter.cut(text, most) if tokens > most else text, most, cut=True)
        closed = stop == self.chat.message_end
        return _Sampled(text, tokens + (counter.count(stop) if stop else 0), closed=closed)


class _Sampled(NamedTuple):
    """A completion within its limit."""

    text: str
    tokens: int
    cut: bool = False
    """It reached its limit before it ended."""
    closed: bool = False
    """The end of the message is among its tokens."""


# One episode over token ids: the ids as sampled are the record, and nothing is rendered again.


class TokenEpisode(RunningEpisode):
    """`next_request()` says what to sample, `feed()` takes the ids, until there is no request.

    `response_ids` is everything after the prompt, `response_mask` 1 for sampled ids and 0 for the
    environment's, `response_logprobs` as long as these, or empty where a turn came without. A
    sampled id whose log-probability is None or not finite has mask 0, since no ratio can be taken
    for it; `unknown_logprobs` counts them.
    """

    def __init__(
        self, task: Task, database: EpisodeDatabase, *, tokenizer: Tokenizer, **options: Any
    ) -> None:
        super().__init__(task, database, **options)
        self.tokenizer = tokenizer
        self.prompt_ids: tuple[int, ...] = tuple(tokenizer.encode(self.prompt))
        self.response_ids: list[int] = []
        self.response_mask: list[int] = []
        self.response_logprobs: list[float] = []
        self.unknown_logprobs = 0
        self._has_logprobs = True
        self._cutter = TurnCutter(self.chat, tokenizer)
        self.stop_ids = self._cutter.stop_ids
        """The stop texts that are one token each."""

    def next_request(self) -> TokenRequest | None:
        """The next completion wanted; None when the episode is over."""
        if self.over:
            return None
        return TokenRequest(
            context=(*self.prompt_ids, *self.response_ids),
            max_new_tokens=self._most_tokens(),
            stop=self.chat.stop,
            stop_ids=self.stop_ids,
            kind=self.machine.kind,
        )

    def feed(self, ids: Sequence[int], logprobs: Sequence[float | None] | None = None) -> str:
        """Takes the sampled ids and returns the observation; empty when the episode is over.

        Both may be any sequence of numbers, an array too. `ids` may end in a stop text or not; what
        stands behind one, or past the request's limit, is dropped from the ids as from the text.
        Raises StateError after the end, or where logprobs and ids differ in number.
        """
        if self.over:
            raise StateError("the episode is over: reset before another step")
        if logprobs is not None and len(logprobs) != len(ids):
            raise StateError(f"{len(logprobs)} log-probabilities for {len(ids)} tokens")
        most = self._most_tokens()
        turn = self._cutter.cut([int(token) for token in ids[:most]])
        kept = len(turn.ids)
        self._append_sampled(turn.ids, None if logprobs is None else logprobs[:kept])
        truncated = kept == most and not turn.stopped
        observation = self.machine.take(turn.text, tokens=kept, truncated=truncated)
        if self.over:
            return ""
        shown = render_observation(self.chat, observation)
        added = self.tokenizer.encode(shown if turn.closed else self.chat.message_end + shown)
        if len(self.response_ids) + len(added) >= self.settings.episode_tokens:
            self.machine.stop(EndedBy.TOKEN_BUDGET)
            return ""
        self._append(added, [0] * len(added), [0.0] * len(added))
        return observation

    def record(self) -> Episode:
        """The finished episode with its ids. Raises StateError before its end."""
        return msgspec.structs.replace(
            super().record(),
            prompt_ids=self.prompt_ids,
            response_ids=tuple(self.response_ids),
            response_mask=tuple(self.response_mask),
            response_logprobs=tuple(self.response_logprobs) if self._has_logprobs else (),
            unknown_logprobs=self.unknown_logprobs,
        )

    def _most_tokens(self) -> int:
        left = self.settings.episode_tokens - len(self.response_ids)
        return min(self.machine.turn_tokens, left)

    def _append_sampled(self, ids: Sequence[int], logprobs: Sequence[float | None] | None) -> None:
        if logprobs is None:
            self._has_logprobs = False
            self._append(ids, [1] * len(ids), [0.0] * len(ids))
            return
        given = [math.nan if logprob is None else float(logprob) for logprob in logprobs]
        known = [math.isfinite(logprob) for logprob in given]
        self.unknown_logprobs += known.count(False)
        pairs = zip(given, known, strict=True)
        self._append(ids, [int(k) for k in known], [p if k else 0.0 for p, k in pairs])

    def _append(self, ids: Sequence[int], mask: Sequence[int], logprobs: Sequence[float]) -> None:
        self.response_ids += ids
        self.response_mask += mask
        self.response_logprobs += logprobs
