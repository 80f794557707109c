"""One episode, over text or over token ids: its rules, its state and its record (CONTRACT 10)."""

import json
import math
import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from envbuild.env.chat import (
    Tokenizer,
    cut_at_stop,
    cut_turn,
    opens_thinking,
    render_observation,
    render_prompt,
    stops_by_id,
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
    Completion,
    EndedBy,
    Episode,
    EpisodeSettings,
    Task,
    TextRequest,
    TokenRequest,
    ToolCall,
    Turn,
)

DEFAULT_SETTINGS = EpisodeSettings()
QWEN = ChatFormat()
TOOL_TURNS = "tool_turns"
"""Exploration ended because its turns were used up."""
MIN_SHOWN = 200
"""Characters that each of a turn's many results may always take, and its last query."""
CHARACTERS_A_TOKEN = 4
"""The estimate where nobody counts tokens."""
MAX_CHARACTERS_PER_TOKEN = 16
"""More than any tokenizer packs into the tokens of prose or SQL: an estimate cuts nothing shorter,
or it would take the call from the end of a long thought."""


class RunningEpisode:
    """One episode under way: its rules over whole turns, whatever its completions are made of.

    `TextEpisode` and `TokenEpisode` add what is asked and fed. Raises an OperatorError for settings
    that no episode can have (`check_settings`).
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
        self.settings = check_settings(settings)
        self.prompts = prompts or load_prompts()
        self.chat = chat
        self.messages = prompt_messages(task, database, settings=settings, prompts=self.prompts)
        """The prompt as chat messages, for a harness that renders them itself."""
        system, user = (message["content"] for message in self.messages)
        self.prompt = render_prompt(chat, system=system, user=user)
        self.row_id = task.row_id
        """The manifest's row that is asked."""
        self.episode_id = f"{task.row_id}/{candidate}"
        gate = 0.0 if settings.evaluation else gate_probability
        self._begun = Episode(
            episode_id=self.episode_id,
            row_id=task.row_id,
            candidate=candidate,
            policy=policy,
            seed=seed,
            preset=preset_name(settings),
            schema=settings.schema,
            prompts_sha256=self.prompts.sha256,
            reward_sha256=reward_sha256,
            gate_probability=gate,
            gated=draw_gate(gate, seed=seed, row_id=task.row_id, candidate=candidate),
            prompt=self.prompt,
            ended_by=EndedBy.NO_ANSWER,
        )
        """What the record says of the episode from its start."""
        self.turns: list[Turn] = []
        self.ended_by: EndedBy | None = None
        self.exploration_ended_by = ""
        self.last_working_sql = ""
        self.sql = ""
        self.answer_source = ""
        self.error = ""
        self._toolbox = Toolbox(database, settings)
        self._calls_made = 0
        self._failing_queries = 0
        """run_query calls that failed since the last that worked."""
        self._ran: set[tuple[str, ...]] = set()
        """Queries that worked, normalised; the gate looks here."""
        self._started = time.monotonic()
        self._seconds = 0.0

    @property
    def over(self) -> bool:
        """True once nothing more is asked of the policy."""
        return self.ended_by is not None

    @property
    def kind(self) -> str:
        """What the next completion is for: `tool` or `final`."""
        return "final" if self.exploration_ended_by else "tool"

    def fail(self, error: str, *, ended_by: EndedBy = EndedBy.POLICY_ERROR) -> None:
        """Ends the episode because the policy could not go on; `error` goes into the record.

        `ended_by` SERVER_ERROR: for no fault of the policy, so that nothing is scored.
        """
        if not self.over:
            self.error = error
            self._stop(ended_by)

    def close(self) -> None:
        """Closes the database; the record can still be taken."""
        self._toolbox.database.close()

    def record(self) -> Episode:
        """The finished episode. Raises StateError before its end."""
        if self.ended_by is None:
            raise StateError("the episode is not over yet")
        self._seconds = self._seconds or time.monotonic() - self._started
        return replace(
            self._begun,
            turns=tuple(self.turns),
            sql=self.sql,
            ended_by=self.ended_by,
            answer_source=self.answer_source,
            exploration_ended_by=self.exploration_ended_by,
            last_working_sql=self.last_working_sql,
            error=self.error,
            seconds=self._seconds,
        )

    def _turn_limit(self, spent: int) -> int:
        """How many tokens the next completion may have, after `spent` of the episode's.

        Raises StateError after the end.
        """
        if self.over:
            raise StateError("the episode is over: reset before another step")
        s = self.settings
        turn = s.final_turn_tokens if self.exploration_ended_by else s.tool_turn_tokens
        return min(turn, s.episode_tokens - spent)

    def _take(self, completion: str, *, tokens: int, truncated: bool) -> str:
        """What the policy is told about its completion; empty when the episode is over."""
        completion = storable(completion)
        parsed = parse_completion(completion, opened_thinking=opens_thinking(self.chat))
        turn = Turn(
            index=len(self.turns),
            kind=self.kind,
            completion=completion,
            completion_tokens=tokens,
            truncated=truncated,
        )
        if turn.kind == "final":
            self._answer(final_sql(parsed))
        else:
            calls, notes = self._run_calls(parsed)
            last = self.last_working_sql if self.exploration_ended_by and not self.over else ""
            *results, last = self._fitted([*(call.result for call in calls), last])
            pairs = zip(calls, results, strict=True)
            calls = [replace(call, result=result) for call, result in pairs]
            told = "" if self.over else self._observation(parsed, calls, notes, last)
            turn = replace(turn, calls=tuple(calls), observation=told)
        self.turns.append(turn)
        return turn.observation

    def _stop(self, ended_by: EndedBy) -> None:
        """Ends the episode from outside (tokens spent, a policy that failed).

        The last observation was never shown, so it leaves the record. Spent tokens leave the last
        working query as the answer; a policy or a server that failed gave none.
        """
        if self.turns:
            self.turns[-1] = replace(self.turns[-1], observation="")
        self.exploration_ended_by = self.exploration_ended_by or ended_by.value
        self.ended_by = ended_by
        if ended_by is EndedBy.TOKEN_BUDGET:
            self._fall_back()

    def _run_calls(self, parsed: Parsed) -> tuple[list[ToolCall], list[str]]:
        """Runs a turn's calls until one ends exploration; the notes say what was not run."""
        s, prompts = self.settings, self.prompts
        done: list[ToolCall] = []
        notes = [fill(prompts.unread, count=MAX_UNREADABLE)] if parsed.unread else []
        for position, call in enumerate(parsed.calls):
            left = len(parsed.calls) - position
            if position == s.calls_a_turn:
                calls = "one call" if s.calls_a_turn == 1 else f"{s.calls_a_turn} calls"
                notes.append(fill(prompts.extra_calls, calls=calls, count=left))
                break
            if self._calls_made >= s.calls:
                notes.append(fill(prompts.calls_spent, calls=s.calls, count=left))
                break
            self._calls_made += 1
            done.append(self._run_call(call))
            if self.over:
                return done, notes
            if self._failing_queries >= s.failing_queries:
                self.exploration_ended_by = EndedBy.QUERY_ERROR_CAP.value
                notes.append(fill(prompts.errors_spent, errors=self._failing_queries))
                if left > 1:
                    notes.append(fill(prompts.not_run, count=left - 1))
                return done, notes
        if self._calls_made >= s.calls:
            self.exploration_ended_by = EndedBy.CALL_BUDGET.value
        elif len(self.turns) + 1 >= s.tool_turns:
            self.exploration_ended_by = TOOL_TURNS
        return done, notes

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
            done = self._toolbox.run(call.tool, call.arguments)
        if call.tool == "run_query":
            self._failing_queries = self._failing_queries + 1 if done.failed else 0
            if not done.failed:
                self.last_working_sql = done.sql
                self._ran.add(normalised(done.sql))
        return replace(
            done,
            tool=storable(done.tool),
            arguments=storable(arguments),
            sql=storable(done.sql),
            result=storable(done.result),
        )

    def _submit(self, sql: str) -> ToolCall:
        if self._begun.gated and normalised(sql) not in self._ran:
            return ToolCall(tool="submit_sql", result=self.prompts.gate, failed=True, sql=sql)
        self.sql, self.answer_source = storable(sql), "submit_sql"
        self.exploration_ended_by = self.ended_by = EndedBy.SUBMIT_SQL
        return ToolCall(tool="submit_sql", sql=sql)

    def _answer(self, sql: str) -> None:
        """The final turn's outcome: its SQL, or the last working query where that gives nothing."""
        self.sql, self.answer_source = sql, "final_turn" if sql else ""
        if not sql or not self._toolbox.runs(sql):
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

    def _observation(
        self, parsed: Parsed, calls: list[ToolCall], notes: list[str], last_query: str
    ) -> str:
        prompts = self.prompts
        if not parsed.calls:
            text = prompts.unfinished_thinking if parsed.unfinished_thinking else prompts.no_call
            blocks = [fill(prompts.result, result=text)]
        elif len(calls) == 1:
            blocks = [fill(prompts.result, result=calls[0].result)]
        else:
            blocks = [
                fill(
                    prompts.numbered_result,
                    number=number,
                    tool=call.tool[:60] or "unreadable",
                    result=call.result,
                )
                for number, call in enumerate(calls, 1)
            ]
        left = self.settings.tool_turns - len(self.turns) - 1
        what_is_left = prompts.turn_left if left == 1 else fill(prompts.turns_left, turns=left)
        if self.exploration_ended_by:
            told = fill(prompts.last_query, sql=last_query) if last_query else ""
            what_is_left = fill(prompts.final, last_query=told)
        return "\n\n".join([*blocks, *notes, what_is_left])


def prompt_messages(
    task: Task, database: EpisodeDatabase | None, *, settings: EpisodeSettings, prompts: Prompts
) -> list[dict[str, str]]:
    """The system and the user message that open an episode.

    A withheld schema needs no database. Raises StateError where a full one has none.
    """
    schema = ""
    if settings.schema == "full":
        if database is None:
            raise StateError("the full schema is shown: open the database first")
        known = {table.name: table.sql for table in database.schema.schema.tables}
        ddl = ";\n\n".join(known[name] for name in database.schema.tables if name in known)
        schema = fill(prompts.schema, ddl=f"{ddl};" if ddl else "")
    call_rule = prompts.several_calls
    if settings.calls_a_turn is not None:
        limited = prompts.one_call if settings.calls_a_turn == 1 else prompts.limited_calls
        call_rule = fill(limited, calls=settings.calls_a_turn)
    system = fill(
        prompts.system, tools=render_tools(), call_rule=call_rule, tool_turns=settings.tool_turns
    )
    evidence = fill(prompts.evidence, evidence=task.evidence) if task.evidence else ""
    user = fill(prompts.user, question=task.question, evidence=evidence, schema=schema)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


class TextEpisode(RunningEpisode):
    """Over text: `next_request()` says what to sample, `feed()` takes it, until none is wanted.

    The prompt string grows, each completion is the model's own text. The limits on tokens hold as
    in a token episode: a completion past its request's `max_new_tokens` is cut there, and the turn
    marked `truncated`. Tokens are those that the server reports to `feed`; without its figures
    `tokenizer` counts them; without one they are estimated at four characters a token: that bounds
    an episode in any case, and cuts only what no tokenizer could fit (16 characters a token).
    """

    def __init__(
        self,
        task: Task,
        database: EpisodeDatabase,
        *,
        tokenizer: Tokenizer | None = None,
        **options: Any,
    ) -> None:
        super().__init__(task, database, **options)
        self.context = self.prompt
        """The prompt string and everything after it."""
        self.tokenizer = tokenizer
        self._spent = 0
        self._prompt_tokens: int | None = None

    def next_request(self) -> TextRequest | None:
        """The next completion wanted; None when the episode is over."""
        if self.over:
            return None
        return TextRequest(
            context=self.context,
            max_new_tokens=self._turn_limit(self._spent),
            stop=self.chat.stop,
            kind=self.kind,
            episode_id=self.episode_id,
            turn=len(self.turns),
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
        limit = self._turn_limit(self._spent)
        text, stop = cut_at_stop(self.chat, storable(completion))
        tokens = self._count(text) if completion_tokens is None else completion_tokens
        kept = self._within(text, limit, tokens, reported=completion_tokens is not None)
        closed = False
        if completion_tokens is not None:
            truncated |= tokens > limit
        elif self.tokenizer is None:
            truncated |= len(kept) < len(text)
        elif tokens >= limit:
            truncated = True
        elif stop:  # the tokens that the policy sampled end in it
            tokens += self._count(stop)
            closed = stop == self.chat.message_end
        tokens = min(tokens, limit)
        if context_tokens is not None:
            if self._prompt_tokens is None:
                self._prompt_tokens = context_tokens
            self._spent = context_tokens - self._prompt_tokens
        self._spent += tokens
        observation = self._take(kept, tokens=tokens, truncated=truncated)
        self.context += kept
        if self.over:
            return ""
        shown = render_observation(self.chat, observation)
        added = self._count(shown if closed else self.chat.message_end + shown)
        if self._spent + added >= self.settings.episode_tokens:
            self._stop(EndedBy.TOKEN_BUDGET)
            return ""
        self._spent += added
        self.context += self.chat.message_end + shown
        return observation

    def feed_completion(self, found: Completion) -> str:
        """`feed`, with the server's own figures."""
        return self.feed(
            found.text,
            completion_tokens=found.completion_tokens,
            context_tokens=found.context_tokens,
            truncated=found.truncated,
        )

    def _count(self, text: str) -> int:
        if self.tokenizer is None:
            return -(-len(text) // CHARACTERS_A_TOKEN)
        return len(self.tokenizer.encode(text))

    def _within(self, text: str, limit: int, tokens: int, *, reported: bool) -> str:
        """The part of `text`, which has `tokens` tokens, that its limit lets through."""
        if self.tokenizer is None and not reported:
            return text[: limit * MAX_CHARACTERS_PER_TOKEN]
        if tokens <= limit:
            return text
        if self.tokenizer is None:
            return text[: len(text) * limit // tokens]
        return self.tokenizer.decode(self.tokenizer.encode(text)[:limit])


class TokenEpisode(RunningEpisode):
    """Over ids: `next_request()` says what to sample, `feed()` takes it, until none is wanted.

    The ids as sampled are the record, and nothing is rendered again. `response_ids` is everything
    after the prompt, `response_mask` 1 for sampled ids and 0 for the environment's,
    `response_logprobs` as long as these, or empty where a turn came without. A sampled id whose
    log-probability is None or not finite has mask 0, since no ratio can be taken for it;
    `unknown_logprobs` counts them.
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
        self._stops = stops_by_id(self.chat, tokenizer)

    def next_request(self) -> TokenRequest | None:
        """The next completion wanted; None when the episode is over."""
        if self.over:
            return None
        return TokenRequest(
            context=(*self.prompt_ids, *self.response_ids),
            max_new_tokens=self._turn_limit(len(self.response_ids)),
            stop=self.chat.stop,
            stop_ids=tuple(self._stops),
            kind=self.kind,
        )

    def feed(self, ids: Sequence[int], logprobs: Sequence[float | None] | None = None) -> str:
        """Takes the sampled ids and returns the observation; empty when the episode is over.

        Both may be any sequence of numbers, an array too. `ids` may end in a stop text or not; what
        stands behind one, or past the request's limit, is dropped from the ids as from the text.
        Raises StateError after the end, or where logprobs and ids differ in number.
        """
        if logprobs is not None and len(logprobs) != len(ids):
            raise StateError(f"{len(logprobs)} log-probabilities for {len(ids)} tokens")
        limit = self._turn_limit(len(self.response_ids))
        sampled = [int(token) for token in ids[:limit]]
        turn = cut_turn(sampled, chat=self.chat, tokenizer=self.tokenizer, stops=self._stops)
        kept = len(turn.ids)
        if logprobs is None:
            self._has_logprobs = False
            self._append(turn.ids, [0.0] * kept, mask=1)
        else:
            self._append(turn.ids, logprobs[:kept], mask=1)
        truncated = kept == limit and not turn.stopped
        observation = self._take(turn.text, tokens=kept, truncated=truncated)
        if self.over:
            return ""
        shown = render_observation(self.chat, observation)
        added = self.tokenizer.encode(shown if turn.closed else self.chat.message_end + shown)
        if len(self.response_ids) + len(added) >= self.settings.episode_tokens:
            self._stop(EndedBy.TOKEN_BUDGET)
            return ""
        self._append(added, [0.0] * len(added), mask=0)
        return observation

    def record(self) -> Episode:
        """The finished episode with its ids. Raises StateError before its end."""
        return replace(
            super().record(),
            prompt_ids=self.prompt_ids,
            response_ids=tuple(self.response_ids),
            response_mask=tuple(self.response_mask),
            response_logprobs=tuple(self.response_logprobs) if self._has_logprobs else (),
            unknown_logprobs=self.unknown_logprobs,
        )

    def _append(self, ids: Sequence[int], logprobs: Sequence[float | None], *, mask: int) -> None:
        for token, logprob in zip(ids, logprobs, strict=True):
            known = logprob is not None and math.isfinite(logprob)
            self.unknown_logprobs += not known
            self.response_ids.append(token)
            self.response_mask.append(mask if known else 0)
            self.response_logprobs.append(float(logprob) if logprob is not None and known else 0.0)
