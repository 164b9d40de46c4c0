"""Which instant is meant by the database's clock: so long ago; `last`, `next`, or a time of day in a job's zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import click

from tenure import InvalidJobOptionsError, JobSchedulerService
from tenure.cli.options import Moment, read_instant
from tenure.clock import boot_s
from tenure.operating import ALIVE, WORDS, is_time_of_day, schedule_of, tick_meant
from tenure.scheduling import Schedule, operations
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.values import JobRecord

_HINT = "TICK"


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
    if text in WORDS or (times and is_time_of_day(text)):
        try:
            tick = tick_meant(text, job, clock_of(service))
        except InvalidJobOptionsError as error:
            raise click.BadParameter(f"{error} See: tenure next", param_hint=_HINT) from None
    else:
        tick = read_instant(text, _HINT)
    return Meant(tick=tick, job=job, schedule=_schedule(job))


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
