"""Every page on a phone, 400 pixels wide, light and dark: nothing is cut, nothing runs off."""

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import app
from envbuild.testing.server import PolicyServer

PAGES = ["preflight", "evaluation", "comparison", "episodes", "leaks"]
CHROMIUM = shutil.which("chromium")
_LOOK = """<!doctype html><title>unseen</title><iframe id="f" width="400" height="900" src="PAGE">
</iframe><script>addEventListener("load", () => {
  const inside = document.getElementById("f").contentDocument, view = inside.defaultView;
  const cut = [...inside.querySelectorAll("body *")].filter(e => {
    const style = view.getComputedStyle(e);
    return e.scrollWidth > e.clientWidth + 1 && style.display !== "inline"
      && ["hidden", "clip"].includes(style.overflowX) && style.textOverflow !== "ellipsis";
  }).map(e => e.tagName + "." + e.className);
  const dark = view.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.title = [dark, inside.documentElement.scrollWidth, inside.documentElement.clientWidth,
    inside.body.innerText.trim().length > 100, cut.join(" ")].join("|");
})</script>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's preflight.html, and every other page of a noisy and a right policy on it."""
    place = tmp_path_factory.mktemp("pages")
    runner, demo = CliRunner(), place / "demo"
    manifest, episodes, right = demo / "manifest", place / "noisy", place / "oracle"
    log = place / "log.jsonl"
    log.write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 1.5}\n')
    with PolicyServer(manifest_of(runner, demo)) as base_url:
        for command in (
            *(
                [
                    *("rollout", str(manifest), "--base-url", base_url, "--model", folder.name),
                    *("--rows", "20", "--episodes", "2", "--out", str(folder)),
                ]
                for folder in (episodes, right)
            ),
            ["score", str(episodes)],
            [
                *("evaluate", str(episodes), "--html", str(place / "evaluation.html")),
                *("--training-log", str(log)),
            ],
            ["evaluate", str(right)],
            ["compare", str(episodes), str(right), "--html", str(place / "comparison.html")],
            ["view", str(episodes), "--html", str(place / "episodes.html")],
            [*("leaks", str(demo / "corpus"), "--against", str(manifest)), "--out", str(place)],
        ):
            assert runner.invoke(app, command).exit_code in (0, 1), command
    shutil.copy(demo / "preflight.html", place)
    return place


def manifest_of(runner: CliRunner, demo: Path) -> Path:
    assert runner.invoke(app, ["demo", "--out", str(demo), "--quiet"]).exit_code == 0
    return demo / "manifest"


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_a_phone(page: str, dark: bool, pages: Path) -> None:
    look = pages / f"look-{page}.html"
    look.write_text(_LOOK.replace("PAGE", f"{page}.html"))
    drawn = subprocess.run(
        [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *("--allow-file-access-from-files", "--virtual-time-budget=5000"),
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            look.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    title = html.unescape(re.search(r"<title>([^<]*)", drawn.stdout)[1])  # type: ignore[index]
    shown, wide, room, filled, cut = title.split("|")
    assert shown == ("dark" if dark else "light")
    assert int(wide) <= int(room) and filled == "true" and cut == ""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_loads_nothing_from_outside(page: str, pages: Path) -> None:
    text = (pages / f"{page}.html").read_text()
    assert re.findall(r"(?:src|href)=[\"']?https?:|url\(\s*[\"']?https?:|@import", text) == []
