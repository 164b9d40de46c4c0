"""What a node does next about a job: pure, from the job, its watermark and the database's clock (C10.2, C10.5)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tenure.scheduling.instants import MICROSECOND
from tenure.scheduling.jobs import Job
from tenure.scheduling.values import Outcome

ON_TIME: Final = timedelta(minutes=1)
"""A tick that starts within this time, and its job's jitter, is no catch-up: a failover has not missed it."""
ROWS_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing is due; `until` is the next tick, or `None` if there is none any more."""

    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide:
    """These ticks will not run, and each is to get a row that says why: all of one outcome, oldest first."""

    outcome: Outcome
    ticks: tuple[datetime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """This tick is to run, if the database agrees."""

    tick: datetime
    previous: datetime | None
    catch_up: bool


Step = Wait | Decide | Claim


def next_step(job: Job, watermark: datetime, now: datetime) -> Step:
    """Say what is to be done first; when it is done, ask again with the watermark that came of it.

    `now` is the database's clock, or what this node takes it for: a claim that comes too early is refused there.
    """
    newest = job.schedule.tick_at(now)
    if newest is None or newest <= watermark:
        return Wait(until=job.schedule.next_after(watermark))
    wanted = _oldest_wanted(job, newest, watermark, now)
    if missed := _missed(job, watermark, newest if wanted is None else wanted - MICROSECOND):
        return _decision(job, missed, now)
    assert wanted is not None, "what is due is wanted or missed"
    catch_up = wanted != newest or _is_missed(job, wanted, now)
    return Claim(tick=wanted, previous=job.schedule.previous(wanted), catch_up=catch_up)


def is_late(job: Job, tick: datetime, now: datetime) -> bool:
    """Say whether a tick is later than its job allows."""
    return job.max_lateness is not None and now - tick > job.max_lateness


def _is_missed(job: Job, tick: datetime, now: datetime) -> bool:
    return now - tick > ON_TIME + job.jitter


def _oldest_wanted(job: Job, newest: datetime, watermark: datetime, now: datetime) -> datetime | None:
    """Give the first of the due ticks that are to run; they are the newest ones, one after the other."""
    if is_late(job, newest, now) or (job.catch_up == "skip" and _is_missed(job, newest, now)):
        return None
    if job.catch_up != "all":
        return newest
    wanted = newest
    for _ in range(job.catch_up_limit - 1):
        before = job.schedule.previous(wanted)
        if before is None or before <= watermark or is_late(job, before, now):
            break
        wanted = before
    return wanted


def _missed(job: Job, watermark: datetime, until: datetime) -> list[datetime]:
    return job.schedule.between(watermark, until, ROWS_AT_ONCE)


def _decision(job: Job, missed: list[datetime], now: datetime) -> Decide:
    """Decide the oldest of them: those that are too late come first."""
    late = [tick for tick in missed if is_late(job, tick, now)]
    if late:
        return Decide(outcome=Outcome.TOO_LATE, ticks=tuple(late))
    return Decide(outcome=Outcome.SKIPPED, ticks=tuple(missed))
