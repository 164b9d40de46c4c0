"""Which tick people mean who are woken at night: a time of day, `last`, `next`; by the database's clock (C10.2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tenure import InvalidJobOptionsError
from tenure.operating import is_time_of_day, tick_meant
from tests.operating.test_why import JOB

NEW_YORK = replace(JOB, timezone="America/New_York")


@pytest.mark.parametrize(
    ("text", "clock", "meant"),
    [
        ("03:00", "2026-07-20T07:30", "2026-07-20T07:00"),
        ("03:00", "2026-07-20T07:00", "2026-07-20T07:00"),
        ("03:00", "2026-07-20T06:59", "2026-07-19T07:00"),
        ("3:00", "2026-07-20T02:00", "2026-07-19T07:00"),
        ("23:59:59", "2026-07-20T02:00", "2026-07-19T03:59:59"),
        ("01:30", "2026-11-01T12:00", "2026-11-01T05:30"),
        ("03:00", "2026-03-09T06:00", "2026-03-08T07:00"),
    ],
)
def test_a_time_of_day_is_the_last_one_on_the_jobs_clocks(text: str, clock: str, meant: str) -> None:
    """In its zone, yesterday's if today's is still to come; of an hour that comes twice the first."""
    assert is_time_of_day(text)
    assert tick_meant(text, NEW_YORK, utc(clock)) == utc(meant)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_last_and_next_are_by_the_schedule() -> None:
    """Each side of the clock; a tick of this instant is the last one."""
    at = utc("2026-07-20T03:00")
    assert tick_meant("last", JOB, at) == at
    assert tick_meant("next", JOB, at) == utc("2026-07-21T03:00")


def test_of_an_unknown_job_a_time_is_utc_and_words_mean_nothing() -> None:
    """C11: it says what to name instead."""
    assert tick_meant("03:00", None, utc("2026-07-20T07:30")) == utc("2026-07-20T03:00")
    with pytest.raises(InvalidJobOptionsError, match=r"'last' needs a job with a schedule .* Name an instant"):
        tick_meant("last", None, utc("2026-07-20T07:30"))


@pytest.mark.parametrize("text", ["24:00", "3", "03:60", "3:0", "03:00Z", "\u0660\u0663:\u0660\u0660", "", "noon"])
def test_what_is_no_time_of_day(text: str) -> None:
    """It is read as an instant then, or refused."""
    assert not is_time_of_day(text)


def test_a_zone_that_is_not_known_here_is_said() -> None:
    """C11: with what to name instead."""
    with pytest.raises(InvalidJobOptionsError, match=r"Mars/Olympus, is not known here. Name an instant with its"):
        tick_meant("03:00", replace(JOB, timezone="Mars/Olympus"), utc("2026-07-20T07:30"))
