"""The layout: layers, no cycles, one home per third-party package."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "envbuild"
MODULES = sorted(ROOT.rglob("*.py"))

HOMES = {
    "sqlglot": {"query", "signal", "sql"},
    "networkx": {"schema", "generate"},
    "apsw": {"sql", "query", "signal", "generate"},
    "sqlite3": set(),
    "pyarrow": {"io", "corpora", "manifest", "materialize", "train"},
    "duckdb": {"io", "manifest"},
    "jinja2": {"io"},
    "datasets": {"corpora", "train"},
    "typer": {"cli"},
    "rich": {"cli"},
    "httpx": {"env", "train"},
    "ray": {"engine"},
    "scipy": {"evaluate", "signal", "sql"},
    "matplotlib": {"cli", "evaluate"},
    "trl": {"train"},
    "verl": {"train"},
    "skyrl_gym": {"train"},
    "verifiers": {"train"},
    "openenv": {"train"},
    "torch": {"train"},
    "transformers": {"train"},
}
"""Third-party packages, each where its subject is (DESIGN 4)."""
LONGEST = 800
HEAVY = (
    "pyarrow",
    "polars",
    "duckdb",
    "networkx",
    "sqlglot",
    "matplotlib",
    "scipy",
    "datasets",
    "apsw",
    "httpx",
    "ray",
)


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names += [module] + [f"{module}.{alias.name}" for alias in node.names]
    return names


def test_imports_go_one_way() -> None:
    """The layers stand in pyproject.toml; import-linter says which import breaks them."""
    linted = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
    )
    assert linted.returncode == 0, linted.stdout


def test_third_party_packages_have_one_home() -> None:
    for path in MODULES:
        for package in {name.split(".")[0] for name in imports_of(path)} & set(HOMES):
            assert part_of(path) in HOMES[package], f"{path}: {package} belongs in {HOMES[package]}"


def test_modules_hold_one_subject_and_print_nothing() -> None:
    for path in MODULES:
        text = path.read_text()
        assert len(text.splitlines()) <= LONGEST, f"{path}: more than one subject?"
        if part_of(path) != "cli":
            calls = [
                node
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
            ]
            assert not calls, f"{path}: print outside cli/"


def test_what_others_use_says_what_it_gives() -> None:
    missing = [
        f"{path}: {name}" for path in MODULES for name in undocumented(ast.parse(path.read_text()))
    ]
    assert not missing


def undocumented(node: ast.AST, inside: str = "") -> Iterator[str]:
    """Public functions, classes and methods without a docstring; a Protocol's members need none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If | ast.Try):
            yield from undocumented(child, inside)
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if child.name.startswith("_"):
            continue
        if not ast.get_docstring(child) and ast.unparse(child.body[-1]) != "...":
            yield f"{inside}{child.name}"
        if isinstance(child, ast.ClassDef):
            yield from undocumented(child, f"{child.name}.")


def test_modules_have_no_cycles() -> None:
    known = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in MODULES
    }
    graph = {
        name: {found for found in top_level_imports(path) if found in known and found != name}
        for name, path in known.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"import cycle: {' -> '.join((*trail, name))}"
        if name in done:
            return
        for other in sorted(graph[name]):
            visit(other, (*trail, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


def top_level_imports(path: Path) -> list[str]:
    """What a module imports when it is imported, not what its functions import later."""
    tree = ast.parse(path.read_text())
    late = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_types(node)
        for inner in ast.walk(node)
    }
    names = []
    for node in ast.walk(tree):
        if id(node) in late:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def _is_for_types(node: ast.AST) -> bool:
    """True for `if TYPE_CHECKING:`, which never runs."""
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


@pytest.mark.parametrize("statement", ["import envbuild", "import envbuild.cli.app"])
def test_help_loads_nothing_heavy(statement: str) -> None:
    program = f"{statement}; import sys; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []


def test_the_package_lists_what_it_offers() -> None:
    import envbuild

    assert set(envbuild.__all__) == set(dir(envbuild))
    for name in envbuild.__all__:
        assert getattr(envbuild, name) is not None


def test_the_examples_need_the_public_names_alone() -> None:
    for path in sorted((ROOT.parent / "pipelines" / "examples").glob("*.py")):
        own = {name for name in imports_of(path) if name.split(".")[0] == "envbuild"}
        assert all(name.count(".") <= 1 for name in own), f"{path}: {own}"
