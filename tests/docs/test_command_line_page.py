"""The page of the command line names what there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tenure.cli import tenure
from tenure.cli.errors import ExitCode

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "command-line.md").read_text()
CONTEXT = click.Context(tenure)


def verbs() -> list[str]:
    return tenure.list_commands(CONTEXT)


def row_of(verb: str) -> str:
    """Give the line of the table that begins with a verb, or has it after another one."""
    [row] = re.findall(rf"^\|[^|\n]*`{verb}\b.*$", PAGE, re.MULTILINE)
    return str(row)


@pytest.mark.parametrize("verb", verbs())
def test_each_verb_has_its_row(verb: str) -> None:
    """And the options that the row shows are those of the verb."""
    command = tenure.get_command(CONTEXT, verb)
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    shown = re.search(rf"`{verb}\b([^`]*)`", row_of(verb))
    assert shown
    assert set(re.findall(r"--[a-z-]+|(?<=\[)-n\b", shown[1])) <= known


@pytest.mark.parametrize("code", list(ExitCode))
def test_each_exit_code_has_its_row(code: ExitCode) -> None:
    """With the number that programs see."""
    assert re.search(rf"^\| {int(code)} \|", PAGE, re.MULTILINE)
