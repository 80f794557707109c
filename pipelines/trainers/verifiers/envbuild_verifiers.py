"""The name under which verifiers finds taskset and harness: put this folder on PYTHONPATH."""

from envbuild.train.verifiers import EpisodeHarness, EpisodeTaskset

__all__ = ["EpisodeHarness", "EpisodeTaskset"]
