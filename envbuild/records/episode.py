"""One rollout: what was asked, every turn, how it ended (CONTRACT 10), what it earned (9)."""

from enum import StrEnum
from typing import Annotated

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters; the defaults are the published ones of a training rollout."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """-1: no limit."""


EVALUATION_SAMPLING = Sampling(temperature=0.6, top_p=0.95, top_k=20)
"""What the published evaluation samples with."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One completion as the server gave it."""

    text: str
    """Without the stop text."""
    completion_tokens: int | None = None
    """The server's own count; None where it gives none."""
    context_tokens: int | None = None
    truncated: bool = False
    """The token limit was hit."""


class EndedBy(StrEnum):
    """Why an episode ended; `answer_source` says where its answer came from."""

    SUBMIT_SQL = "submit_sql"
    FINAL_TURN = "final_turn"
    """The tool turns were used up, and the final turn gave SQL."""
    FALLBACK = "fallback_to_last_working_query"
    """The final turn gave no SQL that runs, however it was reached, and an earlier query had."""
    QUERY_ERROR_CAP = "query_error_cap"
    """Failing queries ended exploration; the answer is the final turn's, if it gave one."""
    TOKEN_BUDGET = "token_budget"
    """No tokens were left to ask for more; the answer is the last working query, if any."""
    CALL_BUDGET = "call_budget"
    """Spent calls ended exploration; the answer is the final turn's, if it gave one."""
    NO_ANSWER = "no_answer"
    """The tool turns were used up, the final turn gave no SQL, and no query had worked."""
    POLICY_ERROR = "policy_error"
    """The policy could not go on (a prompt its window never takes, a person who leaves)."""
    SERVER_ERROR = "server_error"
    """What samples the policy failed: nothing is known of its answer. Unscored, asked again."""


class EpisodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one episode; the defaults are the published ones (CONTRACT 10).

    `check_settings` refuses other values.
    """

    preset: str = "default"
    schema: str = "withheld"
    """`withheld`, or `full`: the DDL is in the prompt."""
    tool_turns: Positive = 6
    tool_turn_tokens: Positive = 2048
    final_turn_tokens: Positive = 3072
    episode_tokens: Positive = 12288
    """Model and observation tokens after the prompt."""
    failing_queries: Positive = 4
    """Consecutive failing run_query calls that end exploration."""
    calls_a_turn: Positive | None = None
    """None: as many as the completion holds."""
    calls: Positive = 48
    """Tool calls an episode."""
    shown_rows: Positive = 5
    """Rows that run_query shows, and that sample_rows and distinct_values show by default."""
    most_rows: Positive = 50
    """The largest `limit` that sample_rows and distinct_values take."""
    cell_characters: Positive = 200
    observation_characters: Positive = 8000
    """Of a turn's results together, and the last working query that the final turn is told; those
    that are too long are cut to equal parts of what the others leave."""
    gate_steps: Annotated[int, msgspec.Meta(ge=0)] = 80
    """Training steps over which the submit gate fades from certain to never; 0: never."""
    evaluation: bool = False
    """True switches the submit gate off."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What one episode asks."""

    question: str
    evidence: str = ""
    """Outside knowledge the corpus gives with the question; shown when there is any."""
    row_id: str = ""


class ChatFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How messages become one string; the defaults are Qwen's."""

    message_start: str = "<|im_start|>"
    message_end: str = "<|im_end|>"
    end_of_text: str = "<|endoftext|>"
    system_role: str = "system"
    user_role: str = "user"
    assistant_role: str = "assistant"
    assistant_opening: str = ""
    """What already stands in the assistant's message as it starts to write, e.g. `<think>`."""

    @property
    def stop(self) -> tuple[str, ...]:
        """The texts at which a completion ends."""
        return tuple(stop for stop in (self.message_end, self.end_of_text) if stop)


class TextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The next completion wanted, as text."""

    context: str
    """The whole prompt string so far, every `<think>` block included."""
    max_new_tokens: int
    """A longer completion is cut there."""
    stop: tuple[str, ...]
    kind: str = "tool"
    """`tool` or `final`."""
    episode_id: str = ""
    """With `turn` what a sampling seed is derived from."""
    turn: int = 0
    """0-based."""


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The next completion wanted, as token ids."""

    context: tuple[int, ...]
    """Prompt and response so far: the ids as sampled, never re-rendered."""
    max_new_tokens: int
    stop: tuple[str, ...]
    stop_ids: tuple[int, ...] = ()
    kind: str = "tool"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a turn, with what came of it."""

    tool: str
    """The name as the policy wrote it; empty where the call could not be read."""
    arguments: str = "{}"
    """JSON text."""
    result: str = ""
    """What the policy was shown for it."""
    failed: bool = False
    sql: str = ""
    """For run_query and submit_sql: the SQL."""
    outcome: str = ""
    """For SQL that ran: an `Outcome` value (`truncated`: there were more rows than shown)."""
    rows: int = 0
    """Rows of data shown."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One completion and the observation it got."""

    index: int
    kind: str
    """`tool` or `final`."""
    completion: str
    """As sampled, the `<think>` block included."""
    calls: tuple[ToolCall, ...] = ()
    observation: str = ""
    """Empty after the last turn."""
    completion_tokens: int = 0
    """0 where no tokenizer took part."""
    truncated: bool = False
    """The completion hit its token limit."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """One finished episode; a row of episodes Parquet."""

    episode_id: str
    """`<row_id>/<candidate>`."""
    row_id: str
    candidate: int = 0
    """0-based position within its group (the episodes of one row)."""
    policy: str = ""
    """Model or scripted policy that acted."""
    seed: int = 0
    preset: str = "default"
    """The settings' name; rules changed from it stand behind, as in `default (tool_turns=4)`."""
    schema: str = "withheld"
    prompts_sha256: str = ""
    reward_sha256: str = ""
    """Of the reward's constants that were in force (CONTRACT 9); empty where nobody pays one."""
    gate_probability: float = 0.0
    gated: bool = False
    """The submit gate was drawn for this episode."""
    prompt: str = ""
    turns: tuple[Turn, ...] = ()
    sql: str = ""
    """The answer; empty when there is none."""
    ended_by: EndedBy
    answer_source: str = ""
    """`submit_sql`, `final_turn` or `last_working_query`; empty when there is no answer."""
    exploration_ended_by: str = ""
    """`submit_sql`, `tool_turns`, or the budget or cap that ended exploration early."""
    last_working_sql: str = ""
    error: str = ""
    """For policy_error and server_error: what failed, e.g. the server's answer."""
    prompt_ids: tuple[int, ...] = ()
    response_ids: tuple[int, ...] = ()
    """Everything after the prompt: model and observation tokens in order."""
    response_mask: tuple[int, ...] = ()
    """1 for tokens to learn from: those the model sampled, with a known log-probability."""
    response_logprobs: tuple[float, ...] = ()
    """As long as response_ids (0.0 where the mask is 0), or empty."""
    unknown_logprobs: int = 0
    """Sampled tokens masked out because the engine gave no finite log-probability for them."""
    seconds: float = 0.0


class Tier(StrEnum):
    """How far an answer got."""

    EQUIVALENT = "equivalent"
    EXECUTABLE = "executable"
    PARSABLE = "parsable"
    INVALID = "invalid"
    UNSCORED = "unscored"
    """The gold cannot be scored, or the server failed the episode; the reward is null."""


class RewardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every constant of the reward; its digest is in the breakdown."""

    verdict: str = "bag@1"
    equivalent: float = 3.0
    executable: float = 1.0
    f1_weight: float = 0.9
    join_weight: float = 0.1
    consensus_weight: float = 0.1
    parsable: float = 0.5
    invalid: float = 0.0
    subset_weight: float = 0.9
    """Column-subset credit's factor."""
    variant_base: float = 2.1
    """Right on the visible database only: base + weight x share of variants matched."""
    variant_weight: float = 0.9


class RewardBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """One episode's reward and its parts; flat, so that it is a Parquet row."""

    episode_id: str = ""
    row_id: str = ""
    tier: Tier
    reward: float | None
    """None = unscored."""
    verdict: str
    """A `Verdict` value."""
    verdict_name: str
    """Rule and version, e.g. `bag@1`."""
    outcome: str = ""
    """An `Outcome` value of the predicted SQL; empty without a prediction."""
    f1: float = 0.0
    """The larger of the whole-row and the column-subset F1; of whole rows alone where `wide`."""
    wide: bool = False
    """The answer or its gold has more than `sql.verdicts.WIDE_CELLS` cells: rows were compared by
    digest, and no column-subset credit was sought."""
    join_share: float = 0.0
    """Counted for executable answers only; a right one is paid in full without it."""
    consensus: float = 0.0
    """1.0 for members of the largest class of equal results; 0.0 before the group is known."""
    result_digest: str = ""
    """Order-free digest of the predicted rows; what consensus compares."""
    variants_scored: int = 0
    variants_matched: int = 0
    constants_sha256: str = ""
