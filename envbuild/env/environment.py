"""The environment: a manifest's rows as episodes, and what each episode earned.

    env = Environment.open("manifest/")
    env.reset(row_id)
    while (request := env.request) is not None:
        env.step(generate(request.context, request.max_new_tokens))
    print(env.reward())

Here episodes and rewards meet; trainers, servers and the terminal only translate.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from envbuild.env.chat import Tokenizer
from envbuild.env.episode import QWEN, TextEpisode, TokenEpisode
from envbuild.env.prompts import (
    Prompts,
    check_settings,
    gate_probability,
    load_preset,
    load_prompts,
)
from envbuild.env.reward import Variant, can_judge, score_answer, settings_sha256, unscored_answer
from envbuild.env.views import EpisodeDatabase, ViewCache
from envbuild.errors import StateError
from envbuild.manifest.gold_store import GoldStore
from envbuild.manifest.read import Manifest, open_manifest
from envbuild.records.corpus import is_evaluation_split
from envbuild.records.episode import (
    ChatFormat,
    EndedBy,
    Episode,
    EpisodeSettings,
    RewardBreakdown,
    RewardSettings,
    Task,
    TextRequest,
)
from envbuild.records.execution import Verdict
from envbuild.records.manifest import GoldResult, ManifestRow
from envbuild.signal.variants import VariantStore

DEFAULT_REWARD = RewardSettings()


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one completion came to."""

    observation: str
    """What the policy is told; empty when the episode is over."""
    done: bool
    breakdown: RewardBreakdown | None = None
    """Once done, what the episode earned; consensus apart, since that needs its group."""


class Environment:
    """A manifest's questions; any number of episodes at once, from any thread.

    `reset`, `request`, `step`, `episode` and `reward` drive one episode at a time. For many at
    once, take them from `new_episode` (text) or `new_token_episode` (ids) and `score` what they
    record: they share this instance, its manifest and its views.
    """

    def __init__(
        self,
        manifest: Manifest,
        *,
        settings: EpisodeSettings,
        reward: RewardSettings = DEFAULT_REWARD,
        prompts: Prompts | None = None,
        chat: ChatFormat = QWEN,
        seed: int = 0,
        tokenizer: Tokenizer | None = None,
        rerun_golds: bool = False,
    ) -> None:
        """`reward`: its constants. `prompts`: the words, the package's own by default. `seed` draws
        submit gates. `tokenizer` counts the tokens of text episodes (a Hugging Face one:
        `HubTokenizer`); without one they are estimated at four characters a token: that ends an
        episode, and cuts only what no tokenizer could fit. `rerun_golds`: judge by golds run here,
        each once a process, instead of those stored. Raises CorpusFolderError without it where
        another version of SQLite made the stored ones.
        """
        self.manifest = manifest
        self.settings = check_settings(settings)
        self.reward_settings = reward
        self.reward_sha256 = settings_sha256(reward)
        self.prompts = prompts or load_prompts()
        self.chat = chat
        self.seed = seed
        self.views = ViewCache()
        self.tokenizer = tokenizer
        self._variant_store = VariantStore(manifest.root)
        self._gold_store = GoldStore(
            manifest, rerun_golds=rerun_golds, open_variant=self._variant_store.session
        )
        self._current: TextEpisode | None = None
        self._breakdown: RewardBreakdown | None = None

    @classmethod
    def open(
        cls, manifest: Path | str, *, settings: EpisodeSettings | str = "default", **options: Any
    ) -> "Environment":
        """The environment over the manifest folder; `settings` may name a preset.

        The other arguments are the constructor's. Raises CorpusFolderError where there is no
        manifest, or its golds are another SQLite's; UnknownNameError for an unknown preset,
        ConfigurationError for settings that no episode can have.
        """
        chosen = load_preset(settings) if isinstance(settings, str) else settings
        return cls(open_manifest(Path(manifest)), settings=chosen, **options)

    @property
    def row_ids(self) -> Sequence[str]:
        """Every question's row id, sorted."""
        return self.manifest.row_ids

    def new_episode(self, row: ManifestRow | str, **played: Any) -> TextEpisode:
        """An episode of its own over text; close it when it is done.

        `candidate` (0) is its number within its group. `step` is the training step that sets the
        submit gate's probability; None leaves it open. `policy` names who plays, for the record.
        `settings` replace the environment's own.
        """
        task, database, options = self._opening(row, **played)
        return TextEpisode(task, database, tokenizer=self.tokenizer, **options)

    def new_token_episode(
        self, row: ManifestRow | str, *, tokenizer: Tokenizer, **played: Any
    ) -> TokenEpisode:
        """An episode of its own over token ids; see `new_episode`."""
        task, database, options = self._opening(row, **played)
        return TokenEpisode(task, database, tokenizer=tokenizer, **options)

    def score(self, episode: Episode) -> RewardBreakdown:
        """What a finished episode earned, before its group's consensus is known.

        The gold comes from the manifest and is not run, unless `rerun_golds` asks for it. An
        episode that its server failed is unscored. Raises UnknownNameError where the manifest does
        not hold the episode's row, CorpusError where its database has changed.
        """
        row = self.row(episode.row_id)
        if episode.ended_by is EndedBy.SERVER_ERROR:
            breakdown = unscored_answer(Verdict.SERVER_ERROR, self.reward_settings)
        else:
            with closing(self._open_view(row)) as database:
                breakdown = score_answer(
                    episode.sql,
                    session=database.session,
                    gold=self.gold(row),
                    schema=database.schema.schema,
                    settings=self.reward_settings,
                    variants=self._variants(row),
                )
        return msgspec.structs.replace(
            breakdown, episode_id=episode.episode_id, row_id=episode.row_id
        )

    def row(self, row: ManifestRow | str) -> ManifestRow:
        """The manifest's row of that id; a row is returned as it is."""
        return row if isinstance(row, ManifestRow) else self.manifest.row(row)

    def gold(self, row: ManifestRow, variant: str = "") -> GoldResult:
        """The row's gold result: the stored one, or the one run here where that is asked for."""
        return self._gold_store.gold(row, variant)

    def reset(
        self, row: ManifestRow | str, *, candidate: int = 0, step: int | None = None
    ) -> TextRequest:
        """Starts an episode, leaving nothing of the one before; returns its first request."""
        self.close()
        self._current = self.new_episode(row, candidate=candidate, step=step)
        request = self._current.next_request()
        assert request is not None, "a new episode asks for a completion"
        return request

    @property
    def request(self) -> TextRequest | None:
        """The next completion wanted of the current episode; None when it is over."""
        return self._running().next_request()

    def step(self, completion: str) -> Step:
        """Feeds the current episode one completion, cut where it is longer than was asked for.

        Raises StateError after its end.
        """
        episode = self._running()
        observation = episode.feed(completion)
        breakdown = self.reward() if episode.over else None
        return Step(observation=observation, done=episode.over, breakdown=breakdown)

    def leave(self, reason: str) -> None:
        """Ends the current episode because the policy cannot go on (`policy_error`)."""
        self._running().fail(reason)

    def episode(self) -> Episode:
        """The current episode's record. Raises StateError before its end."""
        return self._running().record()

    def reward(self) -> RewardBreakdown:
        """What the current episode earned. Raises StateError before its end."""
        if self._breakdown is None:
            self._breakdown = self.score(self.episode())
        return self._breakdown

    def close(self) -> None:
        """Ends the current episode, if there is one; the environment can be reset again."""
        if self._current is not None:
            self._current.close()
            self._current = self._breakdown = None

    def __enter__(self) -> "Environment":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> TextEpisode:
        if self._current is None:
            raise StateError("no episode: call reset first")
        return self._current

    def _opening(
        self,
        row: ManifestRow | str,
        *,
        candidate: int = 0,
        step: int | None = None,
        policy: str = "",
        settings: EpisodeSettings | None = None,
    ) -> tuple[Task, EpisodeDatabase, dict[str, Any]]:
        """What an episode of either form is made with."""
        row, rules = self.row(row), settings or self.settings
        options = {
            "settings": rules,
            "prompts": self.prompts,
            "chat": self.chat,
            "seed": self.seed,
            "candidate": candidate,
            "gate_probability": 0.0
            if is_evaluation_split(row.split)
            else gate_probability(step, rules),
            "policy": policy,
            "reward_sha256": self.reward_sha256,
        }
        task = Task(question=row.question, evidence=row.evidence, row_id=row.row_id)
        return task, self._open_view(row), options

    def _open_view(self, row: ManifestRow) -> EpisodeDatabase:
        return self.views.open(
            self._gold_store.database_path(row),
            row.tables,
            digest=row.database_sha256,
        )

    def _variants(self, row: ManifestRow) -> Iterator[Variant]:
        """The row's hidden variants; none at evaluation, whose rows are judged as published.

        Each is built when it is reached, and takes one query at a time: a session's own rule.
        """
        if self.settings.evaluation or is_evaluation_split(row.split):
            return
        visible = self._gold_store.database_path(row)
        for name in row.variants:
            gold = self.gold(row, name)
            if can_judge(gold):
                yield Variant(self._variant_store.session(name, visible), gold)
