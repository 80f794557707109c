"""The notebook runs from its first cell to its plot, in a fresh folder."""

import os
import sys
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="the notebook's runner comes with '.[dev]'")
import nbformat  # noqa: E402

NOTEBOOK = Path(__file__).parent.parent.parent / "docs" / "tour.ipynb"


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    runner = nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}})
    done = runner.execute()
    outputs = [output for cell in done.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    earned = next(o["data"]["text/plain"] for o in outputs if "'right'" in str(o.get("data")))
    assert "('tiny', 'forgets books'): 3.0" in earned
    assert "('large', 'forgets books'): 3.0" not in earned
