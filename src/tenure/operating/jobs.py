"""What is to be said of one job: its schedule, its next tick, what is late and what has failed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

from tenure.durations import parse_duration
from tenure.errors import InvalidJobOptionsError
from tenure.operating.states import RunState
from tenure.operating.values import JobOverview, LiveLease, RunGlance
from tenure.scheduling.cron import Cron
from tenure.scheduling.every import Every
from tenure.scheduling.schedule import Schedule
from tenure.scheduling.values import JobRecord

GRACE: Final = timedelta(minutes=1)
"""How late a tick, or a run that waits, may be started before it counts as overdue; a job's jitter comes on top."""

MOMENTS: Final = timedelta(seconds=5)
"""How long nodes may take to begin a tick before it is said to be late; a job's jitter comes on top."""

_MILLISECOND: Final = timedelta(milliseconds=1)


def schedule_of(job: JobRecord | None) -> Schedule | None:
    """Give a registered job's schedule, to count ticks by; `None` if it has none.

    Raises `InvalidScheduleError` for one that cannot be read here: a time zone that this machine does not know, say.
    """
    if job is None or job.schedule is None:
        return None
    return _schedule((job.policy or {}).get("kind", "cron"), job.schedule, job.timezone or "UTC")


@lru_cache(maxsize=10_000)
def _schedule(kind: str, text: str, timezone: str) -> Schedule:
    return Every(parse_duration(text)) if kind == Every.kind else Cron(text, timezone=timezone)


def grace_of(job: JobRecord | None) -> timedelta:
    """Say how late a tick of a job may be started before it counts as overdue."""
    return GRACE + _jitter(job)


def _jitter(job: JobRecord | None) -> timedelta:
    jitter_ms: Any = (job.policy or {}).get("jitter_ms") if job else None
    return jitter_ms * _MILLISECOND if isinstance(jitter_ms, int) else timedelta(0)


def judged(
    *,
    code: str,
    job: JobRecord | None,
    clock: datetime,
    recent: Sequence[RunGlance],
    last_success: RunGlance | None,
    running: Sequence[LiveLease],
    unfinished: Sequence[RunGlance],
    exhausted: int,
) -> JobOverview:
    """Say all that is to be said of a job, by the database's clock; `recent` comes newest first."""
    schedule, trouble = _read(job)
    undecided = _oldest_undecided(job, schedule, clock)
    return JobOverview(
        code=code,
        job=job,
        schedule=schedule,
        trouble=trouble,
        next_tick=schedule.next_after(clock) if schedule else None,
        recent=tuple(recent),
        last_success=last_success,
        running=tuple(running),
        unfinished=tuple(unfinished),
        exhausted=exhausted,
        failures_in_a_row=failures_in_a_row(recent),
        overdue_since=None if job and job.paused_at else _overdue_since(job, undecided, unfinished, running, clock),
        late_since=_late_since(job, undecided, unfinished, clock),
    )


def _read(job: JobRecord | None) -> tuple[Schedule | None, str | None]:
    try:
        return schedule_of(job), None
    except InvalidJobOptionsError as error:
        return None, str(error)


def failures_in_a_row(recent: Sequence[RunGlance]) -> int:
    """Count the runs that failed since one succeeded; those that never ran, or are under way, do not count."""
    since = takewhile(lambda run: run.state is not RunState.SUCCEEDED, recent)
    return sum(run.state.is_failure for run in since)


def _oldest_undecided(job: JobRecord | None, schedule: Schedule | None, clock: datetime) -> datetime | None:
    """Give the oldest tick that was due by now and that nobody has decided."""
    if job is None or schedule is None:
        return None
    tick = schedule.next_after(job.watermark)
    return tick if tick is not None and tick <= clock else None


def _overdue_since(
    job: JobRecord | None,
    undecided: datetime | None,
    unfinished: Sequence[RunGlance],
    running: Sequence[LiveLease],
    clock: datetime,
) -> datetime | None:
    grace = grace_of(job)
    due = [due_since(run) for run in unfinished if not (run.state is RunState.QUEUED and running)]
    # catching up on missed ticks waits for the run that is under way
    due += [undecided] if undecided is not None and not running else []
    return min((instant for instant in due if clock - instant > grace), default=None)


def due_since(run: RunGlance) -> datetime:
    """Say since when a run that is unfinished may be taken up."""
    if run.state is RunState.EXPIRED and run.lease_left is not None and run.lease_ms is not None:
        return run.modified_at + run.lease_ms * _MILLISECOND
    return run.retry_at or run.modified_at


def _late_since(
    job: JobRecord | None, undecided: datetime | None, unfinished: Sequence[RunGlance], clock: datetime
) -> datetime | None:
    ticks = [run.scheduled_at for run in unfinished if run.scheduled_at]
    ticks += [undecided] if undecided and clock - undecided > MOMENTS + _jitter(job) else []
    return min(ticks, default=None)
