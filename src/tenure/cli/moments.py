"""Which instant is meant by the database's clock: so long ago; `last`, `next`, or a time of day in a job's zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import click

from tenure import InvalidJobOptionsError, JobSchedulerService
from tenure.cli.options import Moment, read_instant
from tenure.clock import boot_s
from tenure.operating import ALIVE, schedule_of
from tenure.scheduling import Schedule, operations
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.values import JobRecord

_HINT = "TICK"
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """Hold the tick that is meant, and the job as it stands; `schedule` is None if it cannot be read here."""

    tick: datetime
    job: JobRecord | None
    schedule: Schedule | None


def find_tick(service: JobSchedulerService, code: str, text: str, *, times: bool) -> Meant:
    """Give the tick that is meant by the database's clock; a time of day only where it may mean the last such time."""
    statements = SchedulingStatements(service.table)
    jobs = service.perform(operations.job_records(statements, ALIVE, now_boot_s=boot_s()))
    job = next((job for job in jobs if job.code == code), None)
    schedule = _schedule(job)
    if text in ("last", "next") or (times and _TIME.fullmatch(text)):
        clock = clock_of(service)
        tick = _worded(text, schedule, clock) if text in ("last", "next") else _at_time(text, job, clock)
    else:
        tick = read_instant(text, _HINT)
    return Meant(tick=tick, job=job, schedule=schedule)


def clock_of(service: JobSchedulerService) -> datetime:
    """Ask the database for the time: this machine's own may be off."""
    return service.perform(operations.standing(SchedulingStatements(service.table), now_boot_s=boot_s())).clock


def instant_of(moment: Moment, clock: datetime, option: str) -> datetime:
    """Give an instant as it is, and a duration as so long before the clock."""
    if isinstance(moment, datetime):
        return moment
    try:
        return clock - moment
    except OverflowError:
        raise click.BadParameter("it is longer ago than there are dates.", param_hint=option) from None


def _schedule(job: JobRecord | None) -> Schedule | None:
    try:
        return schedule_of(job)
    except InvalidJobOptionsError:
        return None


def _worded(text: str, schedule: Schedule | None, clock: datetime) -> datetime:
    if schedule is None:
        raise click.BadParameter(
            f"{text!r} needs a job with a schedule that can be read here. Name an instant. See: tenure next",
            param_hint=_HINT,
        )
    tick = schedule.tick_at(clock, timedelta(0)) if text == "last" else schedule.next_after(clock)
    if tick is None:
        raise click.BadParameter("the schedule has no such tick.", param_hint=_HINT)
    return tick


def _at_time(text: str, job: JobRecord | None, clock: datetime) -> datetime:
    """Give the last time that clocks in the job's zone showed so."""
    match = _TIME.fullmatch(text)
    assert match, "it was looked at before"
    hour, minute, second = (int(part or 0) for part in match.groups())
    zone = _zone(job)
    here = clock.astimezone(zone)
    tick = datetime.combine(here.date(), time(hour, minute, second), zone)
    return (tick if tick <= clock else datetime.combine(here.date() - _DAY, tick.timetz())).astimezone(UTC)


def _zone(job: JobRecord | None) -> ZoneInfo:
    try:
        return ZoneInfo((job.timezone if job else None) or "UTC")
    except (KeyError, ValueError, OSError):
        raise click.BadParameter(
            "the job's time zone is not known here. Name an instant with its offset.", param_hint=_HINT
        ) from None
