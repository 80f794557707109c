"""Every output that a database was run for names the engine's version and envbuild's own."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from envbuild import __version__
from envbuild.cli.app import app
from envbuild.corpora.synthetic import write_demo_sources
from envbuild.io.episodes import EpisodeJournal, read_configuration, read_index
from envbuild.io.parquet import parquet_metadata
from envbuild.sql.connect import SQLITE_VERSION
from envbuild.testing.server import PolicyServer

BOTH = {"envbuild": __version__, "sqlite": SQLITE_VERSION}
FILES = (
    "corpus/findings.parquet",
    "corpus/signal.parquet",
    "corpus/buckets.parquet",
    "manifest/schedule.parquet",
    "episodes/episodes.parquet",
    "episodes/rewards.parquet",
    "episodes/evaluation.parquet",
    "episodes/literals.parquet",
)
DOCUMENTS = (
    "corpus/corpus.json",
    "corpus/preflight.json",
    "manifest/manifest.json",
    "episodes/evaluation.json",
    "trl/export.json",
)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with all that is made of it; each command's document is checked on the way."""
    work = tmp_path_factory.mktemp("versions")
    manifest, episodes = work / "manifest", work / "episodes"
    write_demo_sources(work / "sources")
    one = ("--limit", "1", "--workers", "1")
    run("materialize", work / "sources" / "demo_synsql", "--out", work, "--name", "corpus", *one)
    corpus = work / "corpus"
    run("preflight", corpus, "--signal", "all", "--workers", "1")
    run("buckets", corpus)
    run("manifest", corpus, "--out", manifest, "--workers", "1")
    run("pool", manifest, "--schedule", "none", "--write")
    run("export", manifest, "--to", "trl", "--out", work / "trl")
    with PolicyServer(manifest) as url:
        run(
            "rollout",
            manifest,
            "--base-url",
            url,
            "--model",
            "oracle",
            "--out",
            episodes,
            "--episodes",
            "1",
        )
    run("score", episodes)
    run("evaluate", episodes, "--html", work / "page.html")
    run("compare", episodes, episodes)
    return work


def run(*arguments: object) -> None:
    found = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert isinstance(found.exception, SystemExit | None), (arguments, found.exception)
    assert json.loads(found.stdout)["versions"] == BOTH


@pytest.mark.parametrize("file", FILES)
def test_a_parquet_file_names_them(work: Path, file: str) -> None:
    metadata = parquet_metadata(work / file)
    assert {key: metadata.get(key) for key in BOTH} == BOTH


@pytest.mark.parametrize("file", DOCUMENTS)
def test_a_json_file_names_them(work: Path, file: str) -> None:
    document = json.loads((work / file).read_bytes())
    assert {key: document.get("versions", document).get(key) for key in BOTH} == BOTH


def test_an_episodes_folder_names_them_from_its_start_on(work: Path, tmp_path: Path) -> None:
    done = read_index(work / "episodes").configuration
    assert done.items() >= BOTH.items()
    EpisodeJournal(tmp_path, configuration=done).close()
    assert read_configuration(tmp_path) == done
