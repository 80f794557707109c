"""The episodes page in a browser: list, pane and address always name one episode."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from envbuild.env.rollout import render_episodes
from envbuild.records.episode import EndedBy, Episode

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PROBE = """<script>(async()=>{
const seen=[],wait=()=>new Promise(r=>setTimeout(r,20));
const note=async()=>{await wait();const on=[...document.querySelectorAll("#list .on")];
 seen.push([decodeURIComponent(location.hash),on.map(b=>b.dataset.id).join(),
  document.querySelector("#one .soft").textContent.split(" · ")[0],$("count").textContent])};
const press=async(key,times=1)=>{while(times--){
 document.body.dispatchEvent(new KeyboardEvent("keydown",{key,bubbles:true}));await wait()}};
const set=(id,value)=>{$(id).value=value;$(id).dispatchEvent(new Event("input"))};
STEPS
document.body.insertAdjacentHTML("beforeend","<pre id=seen>"+JSON.stringify(seen)+"</pre>")
})()</script>"""


def seen(folder: Path, steps: str) -> list[tuple[str, str]]:
    """After each `note()`: the one episode that is shown, and what is counted."""
    if BROWSER is None:
        pytest.skip("no chromium to open the page in")
    episodes = [
        Episode(
            episode_id=f"r% {n:03}/0",
            row_id=f"r% {n:03}",
            ended_by=EndedBy.NO_ANSWER if n % 2 else EndedBy.FINAL_TURN,
        )
        for n in range(250)
    ]
    page = folder / "page.html"
    html = render_episodes("many", episodes, rows={}, rewards={})
    page.write_text(html.replace("</body>", PROBE.replace("STEPS", steps) + "</body>"))
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}"]
    command += ["--virtual-time-budget=20000", "--dump-dom", f"file://{page}"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    listed = re.search(r'<pre id="seen">(.*?)</pre>', found.stdout)
    assert listed, "the page's script ended early"
    shown = []
    for named, marked, pane, count in json.loads(listed[1]):
        if marked:
            assert named == f"#{marked}" and pane == marked
        else:
            assert (named, pane) == ("", "No episode matches.")
        shown.append((marked, count))
    return shown


def test_a_filter_moves_the_pane_and_keys_move_from_there(tmp_path: Path) -> None:
    steps = """
    await note();await press("j");await note();await press("j",2);await press("k");await note();
    set("ended","no_answer");await press("j");await note();
    set("ended","final_turn");await note();await press("j");await note();
    set("search","nowhere");await note();await press("j");await note();
    set("search","");await note();
    location.hash="#100%";await note();
    location.hash="#r%25%20240%2F0";await note();"""
    half, every = "125 of 250", "250 of 250"
    assert seen(tmp_path, steps) == [
        ("r% 000/0", every),
        ("r% 001/0", every),
        ("r% 002/0", every),
        ("r% 003/0", half),  # j from 001, which the filter put in place of 002
        ("r% 000/0", half),
        ("r% 002/0", half),
        ("", "0 of 250"),
        ("", "0 of 250"),
        ("r% 000/0", half),
        ("r% 000/0", half),  # no episode's address
        ("r% 240/0", half),
    ]
