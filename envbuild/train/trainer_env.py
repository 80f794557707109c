"""Episodes for a trainer, and their rewards: the one protocol that every adapter speaks.

    env = shared_trainer_env("manifest/")
    spec = EpisodeSpec.from_json(row["env_json"])              # a row of `envbuild export`
    group = [env.start_tokens(spec, tokenizer=tokenizer, candidate=n) for n in range(8)]
    for episode in group:
        while (request := episode.next_request()) is not None:
            ids, logprobs = sample(request.context, request.max_new_tokens, request.stop_ids)
            episode.feed(ids, logprobs)
    for scored in env.finish_group(group):
        learn(scored.episode.response_ids, scored.episode.response_mask, scored.breakdown.reward)

start_tokens, start_text   a row's episode over token ids; or over text, for a trainer without ids
next_request               what to sample next: a TokenRequest or a TextRequest; None at the end
feed                       takes what was sampled and returns the observation; it blocks on SQL, so
                           an adapter with an event loop calls it in a thread
finish_group               records and scores of one row's whole group, the consensus bonus included
finish_alone               the same where a trainer shows one episode at a time: no bonus

The reward is None where the gold cannot be scored: such an episode must train nothing, and its
place in a trainer that knows no missing reward is 0.0 with every token masked. An adapter holds no
rule of its own; `pipelines/examples/minimal_trainer.py` is a whole one.
"""

import os
import secrets
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec

from envbuild.env.chat import Tokenizer
from envbuild.env.environment import Environment
from envbuild.env.episode import RunningEpisode, TextEpisode, TokenEpisode
from envbuild.env.prompts import load_preset
from envbuild.env.reward import with_consensus
from envbuild.errors import ConfigurationError
from envbuild.io.files import sha256_file
from envbuild.manifest.read import ROWS_FILE
from envbuild.records.episode import Episode, EpisodeSettings, RewardBreakdown
from envbuild.train.pool import TEST_SPLIT, untrainable_rows

NAME = "envbuild"
"""The name under which adapters register with their trainers, and exports refer to them."""
MANIFEST_VARIABLE = "ENVBUILD_MANIFEST"
"""Where an adapter looks for the manifest folder that its trainer's configuration does not name."""
RERUN_VARIABLE = "ENVBUILD_RERUN_GOLDS"
"""`1` asks every adapter to judge by golds run here, as its own setting `rerun_golds` does."""


class EpisodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter needs to start an episode: the JSON text of every layout's `env_json`.

    It points at the manifest and never holds an answer.
    """

    row_id: str
    manifest_sha256: str
    """Of manifest.parquet: an adapter refuses another manifest."""
    scheduled: bool = False
    """It stands in a schedule; False leaves the submit gate open."""
    schedule_step: int = 0
    schedule_slot: int = 0
    gate_probability: float = 0.0
    """The submit gate's at that step."""
    gate_steps: int = 80
    """Steps over which the schedule closes the gate's probability to 0."""
    preset: str = "default"
    """Preset of the episode's rules."""
    schema: str = "withheld"
    """`withheld`, or `full`: the DDL is in the prompt."""

    @classmethod
    def from_json(cls, text: str) -> "EpisodeSpec":
        """The specification in a row's `env_json`."""
        return msgspec.json.decode(text, type=cls)

    @property
    def step(self) -> int | None:
        """The training step it belongs to; None outside a schedule."""
        return self.schedule_step if self.scheduled else None


class ScoredEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One finished episode and what it earned."""

    episode: Episode
    breakdown: RewardBreakdown
    group_seen: bool
    """Its whole group was there, so consensus was decided; False: nobody got the bonus."""


def metrics(scored: ScoredEpisode) -> dict[str, float]:
    """What every adapter logs of an episode: numbers that a trainer may average."""
    episode, breakdown = scored.episode, scored.breakdown
    return {
        "scored": float(breakdown.reward is not None),
        "equivalent": float(breakdown.tier == "equivalent"),
        "f1": breakdown.f1,
        "join_share": breakdown.join_share,
        "consensus": breakdown.consensus,
        "submitted": float(episode.ended_by == "submit_sql"),
        "turns": float(len(episode.turns)),
        "unknown_logprobs": float(episode.unknown_logprobs),
        "group_seen": float(scored.group_seen),
    }


class TrainerEnv:
    """One manifest's episodes; any number at once, from any thread."""

    def __init__(self, manifest: Path, **options: Any) -> None:
        """`options` are those of `Environment.open`: `reward`, `prompts`, `chat`, `seed`, …

        Raises CorpusFolderError as it does.
        """
        self.environment = Environment.open(manifest, **options)
        """What plays and scores the episodes."""
        self.manifest = self.environment.manifest
        self.prompts = self.environment.prompts

    @cached_property
    def manifest_sha256(self) -> str:
        """Digest of manifest.parquet; the row of another manifest's export is refused."""
        return sha256_file(self.manifest.root / ROWS_FILE)

    @cached_property
    def splits(self) -> dict[str, list[str]]:
        """Row ids of `train`, which may be trained on, and of `test`; sorted."""
        ids = self.manifest.row_ids
        return {
            "train": [row_id for row_id in ids if row_id not in self.untrainable],
            "test": [row_id for row_id in ids if self.untrainable.get(row_id) == TEST_SPLIT],
        }

    @cached_property
    def untrainable(self) -> dict[str, str]:
        """Row id -> why it is in no training data (`untrainable_rows`)."""
        return untrainable_rows(self.manifest)

    def settings_of(self, spec: EpisodeSpec) -> EpisodeSettings:
        """An episode's rules. Raises ConfigurationError for an episode of another manifest."""
        if spec.manifest_sha256 != self.manifest_sha256:
            raise ConfigurationError(
                f"the training data were exported from another manifest than "
                f"{self.manifest.root}: export it again, or name the right one"
            )
        return load_preset(spec.preset, schema=spec.schema, gate_steps=spec.gate_steps)

    def start_tokens(
        self, spec: EpisodeSpec, *, tokenizer: Tokenizer, candidate: int, step: int | None = None
    ) -> TokenEpisode:
        """An episode over token ids, number `candidate` of its group.

        `step`: the trainer's own, where it tells; else the schedule's. Raises ConfigurationError
        for an export of another manifest.
        """
        return self.environment.new_token_episode(
            spec.row_id,
            tokenizer=tokenizer,
            candidate=candidate,
            step=spec.step if step is None else step,
            settings=self.settings_of(spec),
        )

    def start_text(self, spec: EpisodeSpec, *, candidate: int) -> TextEpisode:
        """An episode over text; see `start_tokens`."""
        rules = self.settings_of(spec)
        return self.environment.new_episode(
            spec.row_id, candidate=candidate, step=spec.step, settings=rules
        )

    def finish_group(self, episodes: Sequence[RunningEpisode]) -> list[ScoredEpisode]:
        """Records and scores of one row's whole group, in order, consensus included."""
        alone = self.finish_alone(episodes)
        settled = with_consensus([one.breakdown for one in alone], self.environment.reward_settings)
        return [
            ScoredEpisode(episode=one.episode, breakdown=breakdown, group_seen=True)
            for one, breakdown in zip(alone, settled, strict=True)
        ]

    def finish_alone(self, episodes: Sequence[RunningEpisode]) -> list[ScoredEpisode]:
        """Records and scores of finished episodes whose groups are not here: no consensus."""
        finished = []
        for episode in episodes:
            record = episode.record()
            episode.close()
            breakdown = self.environment.score(record)  # no preset changes a score
            finished.append(ScoredEpisode(episode=record, breakdown=breakdown, group_seen=False))
        return finished


def shared_trainer_env(
    manifest: str | Path | None = None, *, rerun_golds: bool = False
) -> TrainerEnv:
    """This process's TrainerEnv over a manifest folder; without one, $ENVBUILD_MANIFEST's.

    $ENVBUILD_RERUN_GOLDS asks for golds to be run here where `rerun_golds` does not. Raises
    ConfigurationError where no manifest is named, CorpusFolderError where its golds cannot be used.
    """
    folder = manifest or os.environ.get(MANIFEST_VARIABLE)
    if not folder:
        raise ConfigurationError(
            f"no manifest: set ${MANIFEST_VARIABLE} or name it in the trainer's configuration"
        )
    rerun = os.environ.get(RERUN_VARIABLE, "")
    if rerun not in ("", "0", "1"):
        raise ConfigurationError(f"${RERUN_VARIABLE} takes 1 or 0, got {rerun!r}")
    return _opened(str(Path(folder).absolute()), rerun_golds or rerun == "1")


def candidate_number(given: int | str | None) -> int:
    """An episode's number within its group, on which its submit gate is drawn.

    It is the trainer's own where the trainer gives one. Otherwise it is drawn by the system, since
    no process knows which members the others play: two of a group must not share their gate.
    """
    return secrets.randbits(31) if given is None else int(given)


@cache
def _opened(folder: str, rerun_golds: bool) -> TrainerEnv:
    return TrainerEnv(Path(folder), rerun_golds=rerun_golds)
