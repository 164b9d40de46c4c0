"""The scheduler's page names every setting, rule, outcome and event, and no other."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

from tenure.scheduling import AsyncScheduler, Outcome, Scheduler, events

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "scheduler.md").read_text()


def named_in(heading: str) -> set[str]:
    """Give the first cells of the tables of one section, without what their calls are given."""
    section = PAGE.split(f"## {heading}")[1].split("\n## ")[0]
    cells = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    return {name.partition("(")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_each_setting_and_method_of_a_scheduler() -> None:
    """Of both, which have the same."""
    settings = set(inspect.signature(Scheduler).parameters) - {"jobs"}
    assert settings == set(inspect.signature(AsyncScheduler).parameters) - {"jobs"}
    methods = {name for name, _ in inspect.getmembers(Scheduler, inspect.isfunction) if not name.startswith("_")}
    assert named_in("`AsyncScheduler(jobs") == settings | methods | {"with", "async with"}


def test_each_rule_of_a_job() -> None:
    """With the parameters of the decorator."""
    assert named_in("`job(code") == set(inspect.signature(Scheduler.job).parameters) - {"self"}


def test_each_outcome() -> None:
    """As it stands in the rows."""
    assert named_in("Outcomes") == {outcome.value for outcome in Outcome}


def test_each_event() -> None:
    """All that a listener may be given."""
    assert named_in("Events") == {event.__name__ for event in get_args(events.Event)}
