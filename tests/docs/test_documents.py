"""The documents: what they show runs, what they name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROMISES = [ROOT / "docs" / "explanation" / name for name in ("lease.md", "scheduling.md")]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", range(len(python_blocks(ROOT / "README.md"))))
def test_the_readmes_code_runs(block: int, database_url: str) -> None:
    """What a newcomer pastes works, on a real database."""
    code = python_blocks(ROOT / "README.md")[block]
    exec(compile(code, "README.md", "exec"), {"database_url": database_url})


async def test_the_applications_of_the_fastapi_page_start(database_url: str) -> None:
    """Each block is an application, or goes on from the one before."""
    built: dict[str, Any] = {"database_url": database_url}
    for block in python_blocks(ROOT / "docs" / "how-to" / "fastapi.md"):
        exec(compile(block, "fastapi.md", "exec"), built)
        async with built["app"].router.lifespan_context(built["app"]):
            assert built["jobs"].healthy()


def test_the_service_of_the_scheduling_page_can_be_built(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks are one module; what they register is what the page speaks of."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    page = ROOT / "docs" / "how-to" / "scheduling.md"
    built: dict[str, Any] = {"__name__": "service"}
    exec(compile("\n".join(python_blocks(page)), page.name, "exec"), built)
    assert [job.code for job in built["scheduler"].jobs] == ["tenure.prune", "tidy-up", "sync-orders", "bill"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """A link to a file of the project names one that is there."""
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def named_tests(page: Path) -> list[tuple[str, str | None]]:
    return re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", page.read_text())


@pytest.mark.parametrize("page", PROMISES, ids=lambda page: page.name)
def test_each_promise_names_a_test_that_is_there(page: Path) -> None:
    """The page promises nothing that no test stands behind."""
    named = named_tests(page)
    assert len(named) > 30
    for path, function in named:
        assert (ROOT / path).exists(), path
        assert not function or function in functions_of(ROOT / path), f"{path}::{function}"


@pytest.mark.parametrize("page", PROMISES, ids=lambda page: page.name)
def test_each_promise_has_a_test_beside_it(page: Path) -> None:
    """Every row of its tables ends with a test."""
    headings = ("| Promise", "| Failure", "| What")
    lines = page.read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(headings)]
    assert len(rows) > 30
    for row in rows:
        assert re.search(r"`tests/[^`]+`", row), row


def functions_of(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_system_packages_are_the_same_everywhere() -> None:
    """CONTRIBUTING lists what `.ci/run` installs."""
    installed = re.search(r"^packages=\((.*)\)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    listed = re.search(r"^apt-get install (.*)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert installed
    assert listed
    assert installed[1].split() == listed[1].split()


def test_the_changelog_keeps_its_form() -> None:
    """Keep a Changelog: an Unreleased section with known headings."""
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in text
    headings = set(re.findall(r"^### (\w+)", text, re.MULTILINE))
    assert headings <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
