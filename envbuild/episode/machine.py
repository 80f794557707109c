"""The episode's rules over whole turns: what a completion does, and what the policy is told.

Nothing here knows prompts' delimiters, tokens or transports (see `text_episode`, `token_episode`);
tools run through a `Toolbox`. The rules are CONTRACT 10's.
"""

import json

import msgspec

from envbuild.episode.final import final_sql
from envbuild.episode.gate import normalised
from envbuild.episode.parse import MAX_UNREADABLE, Call, Parsed, parse_completion
from envbuild.episode.prompts import Prompts, fill
from envbuild.episode.render import cap_text, storable
from envbuild.episode.toolbox import Toolbox
from envbuild.episode.tools import check_call
from envbuild.errors import StateError
from envbuild.records.episode import EndedBy, EpisodeSettings, ToolCall, Turn

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
