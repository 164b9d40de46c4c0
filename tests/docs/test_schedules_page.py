"""docs/reference/schedules.md: its example runs, its table of nights is true."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tenure.scheduling import Cron

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "schedules.md").read_text(encoding="utf-8")
NIGHTS = re.findall(r"^\| `(.+?)` \| (fixed|wildcard) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
PARIS = ZoneInfo("Europe/Paris")


def test_the_example_runs() -> None:
    """What is pasted works."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(block, "schedules.md", "exec"), {})


def ticks(schedule: Cron, month: int, day: int) -> str:
    start, end = (datetime(2026, month, day, hour, tzinfo=PARIS).astimezone(UTC) for hour in (1, 4))
    found = [tick.astimezone(PARIS) for tick in schedule.between(start - timedelta(microseconds=1), end, 99)]
    return ", ".join(f"{tick:%H:%M%z}".removesuffix("00") for tick in found) or "none"


@pytest.mark.parametrize("row", NIGHTS, ids=lambda row: row[0])
def test_the_table_of_nights_is_true(row: tuple[str, str, str, str]) -> None:
    """C10.3."""
    expression, kind, march, october = row
    schedule = Cron(expression, timezone="Europe/Paris")
    assert schedule.follows_elapsed_time == (kind == "wildcard")
    assert (ticks(schedule, 3, 29), ticks(schedule, 10, 25)) == (march, october)


def test_the_table_is_there() -> None:
    """A pattern that finds nothing would prove nothing."""
    assert len(NIGHTS) == 8
