"""Which tick a word means by the database's clock: `last`, `next`, or a time of day in the job's zone. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from tenure.errors import InvalidJobOptionsError
from tenure.operating.jobs import schedule_of
from tenure.scheduling.schedule import Schedule
from tenure.scheduling.values import JobRecord

WORDS: Final = ("last", "next")

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_DAY = timedelta(days=1)


def is_time_of_day(text: str) -> bool:
    """Say whether a text is a time of day, as 03:00."""
    return _TIME.fullmatch(text) is not None


def tick_meant(text: str, job: JobRecord | None, clock: datetime) -> datetime:
    """Give the tick that is meant by one of `WORDS`, or by a time of day: the last time that it was so.

    Raises `InvalidJobOptionsError` if the job's schedule or zone cannot be read here.
    """
    match = _TIME.fullmatch(text)
    return _worded(text, job, clock) if match is None else _last_time(match, job, clock)


def _worded(text: str, job: JobRecord | None, clock: datetime) -> datetime:
    schedule = _schedule(job)
    if schedule is None or text not in WORDS:
        raise InvalidJobOptionsError(f"{text!r} needs a job with a schedule that can be read here. Name an instant.")
    tick = schedule.tick_at(clock, timedelta(0)) if text == "last" else schedule.next_after(clock)
    if tick is None:
        raise InvalidJobOptionsError(f"The job's schedule has no {text} tick. Name an instant.")
    return tick


def _schedule(job: JobRecord | None) -> Schedule | None:
    try:
        return schedule_of(job)
    except InvalidJobOptionsError:
        return None


def _last_time(match: re.Match[str], job: JobRecord | None, clock: datetime) -> datetime:
    zone = _zone(job)
    hour, minute, second = (int(part or 0) for part in match.groups())
    today = clock.astimezone(zone).date()
    tick = datetime.combine(today, time(hour, minute, second), zone)
    return (tick if tick <= clock else datetime.combine(today - _DAY, tick.timetz())).astimezone(UTC)


def _zone(job: JobRecord | None) -> ZoneInfo:
    name = (job.timezone if job else None) or "UTC"
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidJobOptionsError(
            f"The job's time zone, {name}, is not known here. Name an instant with its offset."
        ) from None
