"""The site's generated pages: commands, Python names, Parquet columns, finding codes.

mkdocs calls `on_files` for each build, so that these pages are never stale.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.testing import CliRunner

import envbuild
from envbuild.cli.app import COMMANDS, app
from envbuild.preflight.checks import MEANINGS, SEVERITIES

FILES: dict[str, tuple[str, str]] = {
    "manifest/manifest.parquet": ("manifest", "ManifestRow"),
    "manifest/gold.parquet": ("manifest", "GoldResult"),
    "manifest/schedule.parquet": ("manifest", "ScheduleRow"),
    "corpus/NAME/databases.parquet": ("corpus", "DatabaseRow"),
    "corpus/NAME/tables.parquet": ("corpus", "TableRow"),
    "corpus/NAME/questions.parquet": ("corpus", "Question"),
    "corpus/NAME/rejects.parquet": ("corpus", "Reject"),
    "corpus/NAME/findings.parquet": ("preflight", "Finding"),
    "corpus/NAME/signal.parquet": ("signal", "SignalScore"),
    "corpus/NAME/leaks.parquet": ("leaks", "Leak"),
    "episodes/rewards.parquet": ("episode", "RewardBreakdown"),
    "episodes/evaluation.parquet": ("evaluation", "QuestionVerdict"),
    "episodes/literals.parquet": ("evaluation", "LiteralUse"),
}
"""Parquet file -> the record that its rows are."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages to the site."""
    pages = {"commands": commands, "python": python, "columns": columns, "findings": findings}
    for name, lines in pages.items():
        content = "\n".join(lines()) + "\n"
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def commands() -> Iterator[str]:
    """Every command's own help."""
    yield "# Commands\n\nEach command's `--help`, as it prints it.\n"
    runner = CliRunner(env={"COLUMNS": "90", "NO_COLOR": "1"})
    for group, entries in COMMANDS.items():
        yield f"## {group}\n"
        for name in (entry.partition(":")[2] for entry in entries):
            shown = runner.invoke(app, [name, "--help"]).stdout.strip()
            yield f"### {name}\n\n```text\n{shown}\n```\n"


def python() -> Iterator[str]:
    """The public names, from their docstrings."""
    yield "# Python\n\n`from envbuild import NAME`; everything else may change.\n"
    for name in sorted(envbuild.__all__):
        found = getattr(envbuild, name)
        where = getattr(found, "__module__", None)
        if where and where.startswith("envbuild") and name != "__version__":
            yield f"::: {where}.{found.__qualname__}\n"


def columns() -> Iterator[str]:
    """Every Parquet file's columns with what a record says of them."""
    yield "# Columns\n\nOne table a Parquet file. A type with `None` may be null.\n"
    for file, (module, name) in FILES.items():
        record: Any = getattr(importlib.import_module(f"envbuild.records.{module}"), name)
        said, hints = _field_comments(record), get_type_hints(record)
        yield f"## `{file}`\n\n{inspect.getdoc(record)}\n\n| column | type | |\n|---|---|---|"
        for field in msgspec.structs.fields(record):
            hint = hints[field.name]
            kind = hint.__name__ if isinstance(hint, type) else str(hint)
            cells = (f"`{field.name}`", kind.replace("envbuild.records.", ""))
            yield _table_row(*cells, said.get(field.name, ""))
        yield ""


def _field_comments(record: type) -> dict[str, str]:
    """Field -> the sentence under it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(record))).body[0]
    assert isinstance(tree, ast.ClassDef)
    said: dict[str, str] = {}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        match before, after:
            case ast.AnnAssign(target=ast.Name(id=field)), ast.Expr(value=ast.Constant(value=text)):
                said[field] = " ".join(str(text).split())
    return said


def findings() -> Iterator[str]:
    """Every code with its severity and its meaning."""
    yield "# Findings\n\nWhat each means; [Preflight](../preflight.md) says what to do about it.\n"
    yield "| code | severity | meaning |\n|---|---|---|"
    for code, severity in SEVERITIES.items():
        yield _table_row(f"`{code}`", severity.value, MEANINGS[code])


def _table_row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
