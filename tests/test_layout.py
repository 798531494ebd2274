"""The house itself: links, import order, packaging lists."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ["configs", "knowledge", "search", "worktrees", "tools", "agents", "graph"]
FACE = "face"


def room_of(module: str) -> str | None:
    """The room a `nightlab.…` module belongs to; None for the package itself and for `nightlab.errors`."""
    parts = module.split(".")
    if parts[0] != "nightlab" or len(parts) == 1 or parts[1] == "errors":
        return None
    return parts[1] if parts[1] in ORDER else FACE


def imports_of(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            module = node.module or ""
            found |= {f"nightlab.{alias.name}" for alias in node.names} if module == "nightlab" else {module}
    return found


@pytest.mark.parametrize("room", ORDER)
def test_links_stand(room: str) -> None:
    link = ROOT / "src" / "nightlab" / room
    assert link.is_symlink(), f"{link} is missing: check the repository out with symbolic links (core.symlinks=true)"
    assert link.resolve() == (ROOT / room).resolve()


@pytest.mark.parametrize("room", ORDER)
def test_a_room_imports_only_from_rooms_before_it(room: str) -> None:
    allowed = set(ORDER[: ORDER.index(room) + 1])
    for file in (ROOT / room).rglob("*.py"):
        if "examples" in file.parts:
            continue
        for module in imports_of(file):
            target = room_of(module)
            assert target is None or target in allowed, f"{file.relative_to(ROOT)} imports {module}"


def test_search_does_no_io_and_knows_neither_graph_nor_git() -> None:
    banned = {"langgraph", "git", "sqlalchemy", "subprocess", "os", "pathlib", "httpx", "time", "random"}
    for file in (ROOT / "search").rglob("*.py"):
        roots = {module.split(".")[0] for module in imports_of(file)}
        assert not roots & banned, f"{file.relative_to(ROOT)} imports {roots & banned}"


def test_every_package_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {"nightlab"}
    for top in (*ORDER, "src/nightlab"):
        prefix = "nightlab" if top == "src/nightlab" else f"nightlab.{top}"
        for init in (ROOT / top).rglob("__init__.py"):
            inside = init.parent.relative_to(ROOT / top).parts
            found.add(".".join((prefix, *inside)))
    assert listed == found


def test_no_file_is_above_600_lines() -> None:
    files = [
        f for top in (*ORDER, "src/nightlab/cli", "src/nightlab/report", "tests") for f in (ROOT / top).rglob("*.py")
    ]
    long = {str(f.relative_to(ROOT)): n for f in files if (n := len(f.read_text().splitlines())) > 600}
    assert not long


def test_the_help_loads_nothing_heavy() -> None:
    heavy = [
        "git",
        "langgraph",
        "langchain_core",
        "langchain_openai",
        "matplotlib",
        "numpy",
        "openai",
        "pydantic",
        "pydoe",
        "scipy",
        "sqlalchemy",
        "yaml",
    ]
    code = (
        "import sys\nfrom nightlab.cli.app import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        f"sys.stderr.write(' '.join(name for name in {heavy!r} if name in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "demo" in done.stdout and "catalog" in done.stdout
    assert done.stderr == ""


def test_searching_alone_loads_neither_graph_nor_git() -> None:
    heavy = ["git", "langgraph", "matplotlib", "sqlalchemy"]
    code = f"import sys, nightlab.search.engine\nsys.stdout.write(' '.join(n for n in {heavy!r} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
