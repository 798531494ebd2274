"""The documents are true: links lead somewhere, the commands they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from nightlab.cli.app import app

ROOT = Path(__file__).parent.parent
DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "configs").rglob("*.md")])


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.split("#")[0]).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_documents_exist(page: Path) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for line in re.findall(r"^nightlab ([a-z]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        assert line in commands, f"{page.name} names `nightlab {line}`"


def test_the_readme_names_the_two_commands_and_the_makefile_has_them() -> None:
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert re.search(rf"^make {target}\b", readme, flags=re.MULTILINE)
        assert re.search(rf"^{target}: ", makefile, flags=re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_no_document_names_an_undone_thing() -> None:
    for page in DOCS:
        assert "TODO" not in page.read_text(encoding="utf-8"), page
