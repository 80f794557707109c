"""One scripted group through every installed adapter: all of them must agree with envbuild."""

from pathlib import Path

import pytest

from tests.adapters.drivers import DRIVERS, SEES_GROUP
from tests.adapters.questions import make_manifest
from tests.adapters.transcript import GROUP, Outcome, reference


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_manifest(tmp_path_factory.mktemp("conformance") / "manifest")


def test_the_reference_group_has_every_kind_of_episode(manifest: Path) -> None:
    outcomes = reference(manifest, consensus=True, tokens=True)
    assert [o.breakdown["tier"] for o in outcomes] == [
        "equivalent",
        "executable",
        "executable",
        "invalid",
    ]
    assert [o.breakdown["consensus"] for o in outcomes] == [0.0, 1.0, 1.0, 0.0]
    assert [o.ended_by for o in outcomes] == ["submit_sql"] * 3 + ["final_turn"]
    assert outcomes[0].breakdown["reward"] == 3.0 and outcomes[3].breakdown["reward"] == 0.0
    assert 1.1 < outcomes[1].breakdown["reward"] <= 2.1
    texts = reference(manifest, consensus=True, tokens=False)
    for token, text in zip(outcomes, texts, strict=True):
        assert (token.turns, token.sql, token.breakdown) == (text.turns, text.sql, text.breakdown)


@pytest.mark.parametrize("name", DRIVERS)
def test_an_adapter_agrees_with_envbuild(manifest: Path, name: str) -> None:
    outcomes, group_seen = DRIVERS[name](manifest)
    assert group_seen is (name in SEES_GROUP)
    expected = reference(manifest, consensus=group_seen, tokens=True)
    assert len(outcomes) == len(GROUP)
    for own, wanted in zip(outcomes, expected, strict=True):
        compare(own, wanted, name)


def compare(own: Outcome, wanted: Outcome, name: str) -> None:
    """Whatever an adapter shows is equal; what it does not show is empty."""
    assert own.ended_by == wanted.ended_by
    ignored = {"episode_id"}  # some trainers number the members of a group themselves
    assert {k: v for k, v in own.breakdown.items() if k not in ignored} == {
        k: v for k, v in wanted.breakdown.items() if k not in ignored
    }
    assert own.sql in ("", wanted.sql)
    assert own.turns in ((), wanted.turns)
    assert own.prompt_ids in ((), wanted.prompt_ids)
    assert own.response_ids in ((), wanted.response_ids)
    assert own.response_mask in ((), wanted.response_mask)
    if name in ("trl", "verl"):
        assert own.response_ids


def test_an_adapter_without_its_trainer_says_how_to_install_it() -> None:
    import importlib
    import importlib.util

    from envbuild.errors import MissingDependencyError

    modules = {
        "trl": "envbuild.train.trl_run",
        "verl": "envbuild.train.verl",
        "skyrl": "envbuild.train.skyrl",
        "openenv": "envbuild.train.openenv",
        "verifiers": "envbuild.train.verifiers",
    }
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    assert absent, "some trainer must be missing for this test to say anything"
    for name in absent:
        with pytest.raises(MissingDependencyError, match=r"pip install .*'\.\[.* in a checkout"):
            importlib.import_module(modules[name])
