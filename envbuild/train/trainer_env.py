"""Episodes for a trainer, and their scores by group: all that an adapter needs of envbuild."""

import os
import secrets
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec

from envbuild.env.chat import Tokenizer
from envbuild.env.environment import Environment
from envbuild.env.episode import RunningEpisode, TextEpisode, TokenEpisode, prompt_messages
from envbuild.env.prompts import Prompts, load_preset, load_prompts
from envbuild.env.reward import has_zero_variance, settings_sha256, with_consensus
from envbuild.env.views import ViewCache
from envbuild.errors import ConfigurationError
from envbuild.io.files import sha256_file, write_bytes
from envbuild.manifest.gold_store import refuse_other_engine
from envbuild.manifest.read import ROWS_FILE, open_manifest
from envbuild.records.episode import ChatFormat, Episode, RewardBreakdown, RewardSettings, Task
from envbuild.records.manifest import ManifestRow
from envbuild.sql.connect import VERSIONS
from envbuild.train.layouts import EpisodeSpec, Message
from envbuild.train.pool import TEST_SPLIT, untrainable_rows

# Groups: the episodes of one row, whole or not at all.


class ScoredEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One finished episode and what it earned."""

    episode: Episode
    breakdown: RewardBreakdown
    group_seen: bool
    """Its whole group was there, so consensus was decided; False: nobody got the bonus."""
    attempt: int = 0
    """How often the group had been rolled out before."""


def whole_groups(tickets: Sequence[EpisodeSpec], size: int) -> list[list[EpisodeSpec]]:
    """The batch as groups of `size` neighbours.

    Raises ConfigurationError where a group is split or mixed: consensus and re-rolling would be
    wrong without a word.
    """
    groups = [list(tickets[at : at + size]) for at in range(0, len(tickets), size)]
    for group in groups:
        if len(group) != size or any(ticket != group[0] for ticket in group):
            raise ConfigurationError(
                f"the batch does not hold whole groups of {size}: set the batch sizes so that "
                "every process generates whole groups"
            )
    return groups


def is_flat(group: Sequence[ScoredEpisode]) -> bool:
    """True where a group teaches nothing but might if it were rolled out anew.

    A group whose gold cannot be scored is not flat: another attempt would be unscored too.
    """
    rewards = [one.breakdown.reward for one in group]
    return any(reward is not None for reward in rewards) and has_zero_variance(rewards)


# Episodes from tickets, and their scores: all that an adapter needs of envbuild.
#
# An adapter starts episodes here, lets its trainer's model answer their requests, and gives them
# back to be scored, as a whole group where the trainer shows one.


MANIFEST_VARIABLE = "ENVBUILD_MANIFEST"
"""Where an adapter looks for the manifest folder that its trainer's configuration does not name."""
RERUN_VARIABLE = "ENVBUILD_RERUN_GOLDS"
"""`1` asks every adapter to judge by golds run here, as its own setting `rerun_golds` does."""
DEFAULT_REWARD = RewardSettings()
QWEN = ChatFormat()


class TrainerEnv:
    """One manifest's episodes; any number at once, from any thread."""

    def __init__(
        self,
        manifest: Path,
        *,
        reward: RewardSettings = DEFAULT_REWARD,
        prompts: Prompts | None = None,
        chat: ChatFormat = QWEN,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
        rerun_golds: bool = False,
    ) -> None:
        """`settings`: fields of EpisodeSettings that replace those of a ticket's preset.

        `rerun_golds`: as for an Environment; raises CorpusFolderError as it does.
        """
        self.manifest = open_manifest(manifest)
        self.rerun_golds = rerun_golds
        if not rerun_golds:
            refuse_other_engine(self.manifest)
        self.reward = reward
        self.prompts = prompts or load_prompts()
        self.chat = chat
        self.seed = seed
        self.changes = settings or {}
        self._views = ViewCache()
        self._environments: dict[tuple[str, str, int], Environment] = {}
        self._lock = threading.Lock()

    @cached_property
    def manifest_sha256(self) -> str:
        """Digest of manifest.parquet; a ticket of another manifest is refused."""
        return sha256_file(self.manifest.root / ROWS_FILE)

    @property
    def prompts_sha256(self) -> str:
        """Digest of the prompts' file."""
        return self.prompts.sha256

    @property
    def reward_sha256(self) -> str:
        """Digest of the reward's constants."""
        return settings_sha256(self.reward)

    @cached_property
    def splits(self) -> dict[str, list[str]]:
        """Row ids of `train`, which may be trained on, and of `test`; sorted."""
        ids = self.manifest.columns("row_id").column(0).to_pylist()
        return {
            "train": [row_id for row_id in ids if row_id not in self.untrainable],
            "test": [row_id for row_id in ids if self.untrainable.get(row_id) == TEST_SPLIT],
        }

    @cached_property
    def untrainable(self) -> dict[str, str]:
        """Row id -> why it is in no training data (`untrainable_rows`)."""
        return untrainable_rows(self.manifest)

    def environment(
        self,
        preset: str,
        *,
        schema: str = "withheld",
        gate_steps: int = 80,
    ) -> Environment:
        """The environment of a preset; all of them share the manifest and its views."""
        key = (preset, schema, gate_steps)
        with self._lock:
            if key not in self._environments:
                changes = {"schema": schema, "gate_steps": gate_steps, **self.changes}
                self._environments[key] = Environment(
                    self.manifest,
                    settings=load_preset(preset, **changes),
                    reward=self.reward,
                    prompts=self.prompts,
                    chat=self.chat,
                    seed=self.seed,
                    views=self._views,
                    rerun_golds=self.rerun_golds,
                )
            return self._environments[key]

    def messages(self, row: ManifestRow, *, preset: str, schema: str) -> tuple[Message, ...]:
        """The system and the user message that open a row's episode."""
        environment = self.environment(preset, schema=schema)
        if schema == "full":
            with closing(environment.new_episode(row)) as episode:
                opening = episode.messages
        else:
            task = Task(question=row.question, evidence=row.evidence, row_id=row.row_id)
            opening = prompt_messages(
                task, None, settings=environment.settings, prompts=self.prompts
            )
        return tuple(Message(**message) for message in opening)

    def start_tokens(
        self, ticket: EpisodeSpec, *, tokenizer: Tokenizer, candidate: int, step: int | None = None
    ) -> TokenEpisode:
        """An episode over token ids. `step`: the trainer's own, where it tells; else the ticket's.

        Raises ConfigurationError for a ticket of another manifest.
        """
        environment = self.environment_of(ticket)
        return environment.new_token_episode(
            ticket.row_id,
            tokenizer=tokenizer,
            candidate=candidate,
            step=ticket.step if step is None else step,
        )

    def start_text(self, ticket: EpisodeSpec, *, candidate: int) -> TextEpisode:
        """An episode over text; see `start_tokens`."""
        environment = self.environment_of(ticket)
        return environment.new_episode(ticket.row_id, candidate=candidate, step=ticket.step)

    def finish_alone(self, episodes: Sequence[RunningEpisode]) -> list[ScoredEpisode]:
        """Records and scores of finished episodes whose groups are not here: no consensus."""
        return [self._finish(episode, attempt=0) for episode in episodes]

    def finish_group(
        self, episodes: Sequence[RunningEpisode], *, attempt: int = 0
    ) -> list[ScoredEpisode]:
        """Records and scores of one row's whole group, in order, consensus included."""
        alone = [self._finish(episode, attempt=attempt) for episode in episodes]
        settled = with_consensus([one.breakdown for one in alone], self.reward)
        return [
            ScoredEpisode(
                episode=one.episode, breakdown=breakdown, group_seen=True, attempt=attempt
            )
            for one, breakdown in zip(alone, settled, strict=True)
        ]

    def _finish(self, episode: RunningEpisode, *, attempt: int) -> ScoredEpisode:
        record = episode.record()
        episode.close()
        breakdown = self.environment("default").score(record)  # no preset changes a score
        return ScoredEpisode(episode=record, breakdown=breakdown, group_seen=False, attempt=attempt)

    def environment_of(self, ticket: EpisodeSpec) -> Environment:
        """The environment of a ticket. Raises ConfigurationError for one of another manifest."""
        if ticket.manifest_sha256 != self.manifest_sha256:
            raise ConfigurationError(
                f"the training data were exported from another manifest than "
                f"{self.manifest.root}: export it again, or name the right one"
            )
        return self.environment(ticket.preset, schema=ticket.schema, gate_steps=ticket.gate_steps)


def shared_trainer_env(
    manifest: str | Path | None = None, *, rerun_golds: bool = False
) -> TrainerEnv:
    """This process's rollouts over a manifest folder; without one, $ENVBUILD_MANIFEST's.

    $ENVBUILD_RERUN_GOLDS asks for golds to be run here where `rerun_golds` does not. Raises
    ConfigurationError where no manifest is named, CorpusFolderError where its golds cannot be used.
    """
    folder = manifest or os.environ.get(MANIFEST_VARIABLE)
    if not folder:
        raise ConfigurationError(
            f"no manifest: set ${MANIFEST_VARIABLE} or name it in the trainer's configuration"
        )
    rerun = rerun_golds or _is_set(RERUN_VARIABLE)
    return _opened(str(Path(folder).absolute()), rerun)


def candidate_number(given: int | str | None) -> int:
    """An episode's number within its group, on which its submit gate is drawn.

    It is the trainer's own where the trainer gives one. Otherwise it is drawn by the system, since
    no process knows which members the others play: two of a group must not share their gate.
    """
    return secrets.randbits(31) if given is None else int(given)


def _is_set(variable: str) -> bool:
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise ConfigurationError(f"${variable} takes 1 or 0, got {value!r}")
    return value == "1"


@cache
def _opened(folder: str, rerun_golds: bool) -> TrainerEnv:
    return TrainerEnv(Path(folder), rerun_golds=rerun_golds)


# What a training run says of itself: which data and rules, and whether groups were seen.


FILE = "envbuild_run.json"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run: envbuild_run.json beside its checkpoints."""

    format: str = "envbuild.run/1"
    adapter: str
    recipe: str = ""
    manifest_sha256: str
    prompts_sha256: str
    reward_sha256: str
    """Digest of the reward's constants."""
    group_seen: bool
    """False: the trainer shows one episode at a time, so nobody got the consensus bonus."""
    note: str = ""
    """Why groups are seen, or not."""
    versions: dict[str, str] = msgspec.field(default_factory=VERSIONS.copy)
    """`envbuild` and `sqlite`: what ran the queries."""


def read_run_record(folder: Path) -> RunRecord | None:
    """The record of the run in this folder; None where none has begun."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=RunRecord)
    except FileNotFoundError:
        return None


def write_run_record(folder: Path, record: RunRecord) -> Path:
    """Writes the record into the run's folder and returns its path."""
    path = folder / FILE
    write_bytes(path, msgspec.json.format(msgspec.json.encode(record)))
    return path
