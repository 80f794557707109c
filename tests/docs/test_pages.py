"""README and site: what they show runs as printed, in order, in a fresh folder."""

import csv
import os
import re
import shlex
import socket
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from envbuild.cli.app import app
from envbuild.preflight.checks import SEVERITIES

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = Path(sys.executable).parent
_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<kind>sh|python)\n(?P<text>.*?)```", re.S
)


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of a page's blocks; those that install or run the tests are left out."""
    found = _BLOCK.finditer((ROOT / page).read_text())
    return [
        (block["kind"], block["text"])
        for block in found
        if block["mark"] is None and "pip install" not in block["text"]
    ]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demo has run, and `my-folder` lies: two databases, a CSV file."""
    place = tmp_path_factory.mktemp("fresh")
    subprocess.run([SCRIPTS / "envbuild", "demo", "--quiet"], cwd=place, check=True, stdout=-3)
    mine = place / "my-folder"
    mine.mkdir()
    for name in ("shop", "zoo"):
        with sqlite3.connect(mine / f"{name}.db") as connection:
            connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
            rows = [(n, f"item {n}") for n in range(60)]
            connection.executemany("INSERT INTO item VALUES (?, ?)", rows)
        connection.close()
    with (mine / "questions.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("database", "utterance", "sql"))
        for name in ("shop", "zoo"):
            writer.writerow((name, f"How many items has the {name}?", "SELECT COUNT(*) FROM item"))
    (mine / "notes.txt").write_text("nothing to read")
    return place


def free_port() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/index.md",
        "docs/own-data.md",
        "docs/corpora.md",
        "docs/preflight.md",
        "docs/curriculum.md",
        "docs/schemas.md",
        "docs/manifest.md",
        "docs/environment.md",
        "docs/training/index.md",
        "docs/evaluation.md",
        "docs/leaks.md",
        "docs/signal.md",
        "docs/cluster.md",
    ],
)
def test_every_block_runs_as_printed(page: str, fresh: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    for found in (fresh / "envbuild-demo", fresh / "my-folder", ROOT / "pipelines"):
        subprocess.run(["cp", "-r", found, place], check=True)
    port = free_port()
    environment = {
        **os.environ,
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
        "ENVBUILD_CACHE": str(tmp_path / "cache"),
    }
    behind: list[subprocess.Popen[bytes]] = []
    try:
        for kind, text in blocks(page):
            lines = text.replace("\\\n", " ").splitlines() if kind == "sh" else [text]
            for line in lines:
                command = line.replace("8765", port)
                if command.rstrip().endswith("&"):
                    words = shlex.split(command.rstrip().removesuffix("&"))
                    behind.append(subprocess.Popen(words, cwd=place, env=environment))
                    continue
                program = ["bash", "-c", command] if kind == "sh" else [sys.executable, "-c", text]
                done = subprocess.run(
                    program,
                    cwd=place,
                    env=environment,
                    capture_output=True,
                    text=True,
                    stdin=subprocess.DEVNULL,
                )
                # 1 is an answer: something was found, as in the demo on purpose
                assert done.returncode in (0, 1), f"{command}\n{done.stdout}\n{done.stderr}"
                assert "Traceback" not in done.stderr, done.stderr
    finally:
        for server in behind:
            server.kill()
            server.wait()


def test_what_is_not_run_is_what_commands_and_extras_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that need a GPU or a download: their options exist; so do the extras they install."""
    monkeypatch.chdir(tmp_path)  # where an option's folder is looked at
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    group, parsed = get_command(app), 0
    assert isinstance(group, TyperGroup)
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for block in _BLOCK.finditer(page.read_text()):
            assert set(re.findall(r"'\.\[([\w-]+)\]'", block["text"])) <= {*extras}
            for line in block["text"].replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if block["mark"] is None or words[:1] != ["envbuild"]:
                    continue
                command = group.get_command(Context(group), words[1])
                assert command is not None, line
                command.make_context(words[1], [word for word in words[2:] if word != "&"])
                parsed += 1
    assert parsed > 15


def test_the_line_that_own_data_shows_is_what_is_printed(fresh: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPTS / "envbuild", "buckets", "my-folder/"],
        cwd=fresh,
        env={**os.environ, "ENVBUILD_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    shown = (ROOT / "docs" / "own-data.md").read_text()
    said = done.stderr.splitlines()[0]
    assert re.sub(r"\d+", "N", said) in re.sub(r"\d+", "N", shown)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "site" / "reference" / "commands" / "index.html").read_text()
    assert "envbuild materialize [OPTIONS]" in page
    loaded = re.compile(r"<(?:script|link|img)[^>]*(?:src|href)=\"?https?://[^\" >]*")
    for html in (tmp_path / "site").rglob("*.html"):
        outside = [t for t in loaded.findall(html.read_text()) if 'rel="canonical"' not in t]
        assert outside == [], f"{html.name} loads {outside}"


def test_readme_quickstart_and_trainers_pages_are_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120 and len(text.split()) <= 700
    assert len((ROOT / "docs" / "index.md").read_text().split()) <= 450
    for page in (ROOT / "docs" / "training").glob("*.md"):
        assert len(page.read_text().splitlines()) <= 120, page.name


def test_the_design_page_shows_the_layers() -> None:
    (contract, *_) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    table = re.findall(r"^\| (`\w.*`) \|", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE)
    shown = [set(re.findall(r"`(\w+)`", row)) for row in table]
    assert shown[: len(contract["layers"])] == [set(x.split(" : ")) for x in contract["layers"]]


def test_the_preflight_page_has_every_finding_with_its_severity() -> None:
    page = (ROOT / "docs" / "preflight.md").read_text()
    shown = dict(re.findall(r"^#### `(\w+)` \((\w+)\)$", page, flags=re.MULTILINE))
    assert shown == {code: severity.value for code, severity in SEVERITIES.items()}
    _, *sections = re.split(r"^#### ", page, flags=re.MULTILINE)
    assert [s for s in sections if not ("Example: " in s and "What to do: " in s)] == []
