"""Which tick a command line stands for: the one that was given, or the schedule's by the database's clock (C10.2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import click

from tenure import (
    JobAcquireOptions,
    JobAcquireResult,
    JobNotAcquired,
    JobSchedulerService,
    JobSchedulerStatus,
    NotAcquiredReason,
)
from tenure.cli.errors import say
from tenure.cli.output import when, why_not
from tenure.clock import boot_s
from tenure.durations import format_duration
from tenure.scheduling import EARLY_TOLERANCE, Schedule, operations, run_key
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.values import Standing

DEFAULT_MAX_LATENESS = timedelta(days=1)
MOST_EARLY = timedelta(minutes=1)
NOTEWORTHY = timedelta(minutes=1)
"""A tick that begins later than this is said to be late; one that is nearer than this was asked for too early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickWanted:
    """Say which tick is wanted: `tick` itself, else the newest one of `schedule`; at least one of the two is there.

    - `early`: how far ahead of the database's clock a tick may be.
    - `max_lateness`: how far behind; `None` is no limit for a tick that was given, else a day.
    """

    schedule: Schedule | None
    tick: datetime | None
    early: timedelta = EARLY_TOLERANCE
    max_lateness: timedelta | None = None

    def check(self) -> None:
        """Refuse what no clock can mend, before anything is sent."""
        if self.early > MOST_EARLY:
            raise click.BadParameter(f"it must be 0 to {format_duration(MOST_EARLY)}.", param_hint="--early")
        if self.schedule and self.tick and self.schedule.tick_at(self.tick, timedelta(0)) != self.tick:
            raise click.BadParameter(not_a_tick(self.schedule, self.tick), param_hint="--tick")

    def at(self, clock: datetime) -> datetime:
        """Give the tick that is meant when the database's clock shows that."""
        tick = self.tick or (self.schedule.tick_at(clock, self.early) if self.schedule else None)
        if tick is None:
            raise click.UsageError("The schedule has had no tick until now.")
        if tick - clock > self.early:
            raise click.BadParameter(
                f"{run_key(tick)} is {format_duration(tick - clock)} ahead of the database's clock, and --early is "
                f"{format_duration(self.early)}. Ask again at its time.",
                param_hint="--tick",
            )
        return tick

    def limit(self) -> timedelta | None:
        """Give how late a tick may begin."""
        if self.max_lateness is None and self.tick is None:
            return DEFAULT_MAX_LATENESS
        return self.max_lateness


def not_a_tick(schedule: Schedule, instant: datetime) -> str:
    """Say that an instant is none of the schedule's ticks, and which are near."""
    near = (schedule.previous(instant), schedule.next_after(instant))
    shown = " and ".join(run_key(tick) for tick in near if tick)
    return f"{run_key(instant)} is no tick of {schedule.describe()!r}. The nearest are {shown}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Appointment:
    """Hold the tick that a command line stands for, now that the database has told the time."""

    service: JobSchedulerService
    wanted: TickWanted
    standing: Standing
    tick: datetime

    @classmethod
    def make(cls, service: JobSchedulerService, wanted: TickWanted, code: str) -> Appointment:
        """Hear the time and how the job stands, and choose the tick."""
        statements = SchedulingStatements(service.table)
        standing = service.perform(operations.standing(statements, code, now_boot_s=boot_s()))
        return cls(service=service, wanted=wanted, standing=standing, tick=wanted.at(standing.clock))

    @property
    def run_key(self) -> str:
        """Name the run of the tick, as every node does (C10.1)."""
        return run_key(self.tick)

    def acquire(self, options: JobAcquireOptions) -> JobAcquireResult:
        """Try to win the run, and write its tick down."""
        statements = SchedulingStatements(self.service.table)
        return self.service.win(
            lambda token, owner: operations.tick_acquisition(
                statements, options, self.tick, token, owner, now_boot_s=boot_s(), clock=boot_s
            )
        )

    def why_not_now(self, options: JobAcquireOptions) -> str | None:
        """Say in a clause why the tick is not to be asked for: its job is paused, or it is too late."""
        clock = self.standing.clock
        if self.standing.paused_at is not None:
            reason = f": {self.standing.pause_reason}" if self.standing.pause_reason else ""
            return f"is paused since {when(self.standing.paused_at, clock)} by {self.standing.paused_by}{reason}"
        limit = self.wanted.limit()
        if limit is None or clock - self.tick <= limit:
            return None
        run = self.service.find_run(options.lock_key)
        if run is not None and run.status is JobSchedulerStatus.SUCCESS:
            return f"was done at {when(run.finished_at, clock)}" + self._next()
        late = f"is not done and {format_duration(clock - self.tick)} late"
        return f"{late}, --max-lateness is {format_duration(limit)}" + self._next()

    def why_lost(self, answer: JobNotAcquired, options: JobAcquireOptions) -> str:
        """Say in a clause why the run was not won, and when the next tick is."""
        if answer.reason is NotAcquiredReason.SUCCEEDED and answer.attempt == 0:
            return f"does not run: see tenure show {options.lock_key}" + self._next()
        return why_not(answer, self.standing.clock) + self._next()

    def say_if_late(self) -> None:
        """Say that an old tick is run: whoever asks by hand may not have meant it."""
        late = self.standing.clock - self.tick
        if late > NOTEWORTHY:
            say(f"Running {self.run_key}, whose time was {format_duration(late)} ago.")

    def _next(self) -> str:
        clock, schedule = self.standing.clock, self.wanted.schedule
        following = schedule.next_after(max(self.tick, clock)) if schedule else None
        if following is None:
            return ""
        said = f"; the next tick is at {when(following, clock)}"
        if self.wanted.tick is None and following - clock < NOTEWORTHY < following - self.tick:
            said += f", beyond --early ({format_duration(self.wanted.early)})"
        return said
