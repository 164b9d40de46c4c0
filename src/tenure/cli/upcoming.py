"""`tenure next`: when jobs are due next, by the database's clock; or a schedule, to try it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import click

from tenure import InvalidJobOptionsError
from tenure.cli.connection import Connection, connection_options
from tenure.cli.errors import ExitCode, plain, say
from tenure.cli.options import code_argument, schedule_options
from tenure.cli.output import NOTHING, emit, emit_json, emit_table, iso, when
from tenure.clock import boot_s
from tenure.durations import format_duration
from tenure.operating import ALIVE
from tenure.scheduling import Schedule, operations, schedule_from
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.values import JobRecord

_MOST_TICKS = 1_000
_OF_ONE = 10
_OF_EACH = 1
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """Hold what is known of one job's next ticks; `problem` says why there are none."""

    job: JobRecord | None
    schedule: Schedule | None
    ticks: Sequence[datetime]
    problem: str | None = None

    @property
    def first(self) -> datetime:
        """Give the first tick, to sort by."""
        return self.ticks[0] if self.ticks else _END_OF_TIME


@click.command(
    epilog="""\b
Without CODE: the next tick of every job that was ever registered; with CODE,
its next ten. By the database's clock. To try an expression out, which needs
no database:
  tenure next --cron '0 3 * * MON-FRI' --timezone Europe/Paris -n 5

A job is orphaned when no node that runs it was heard of for a minute."""
)
@code_argument(required=False)
@click.option(
    "-n",
    "count",
    type=click.IntRange(1, _MOST_TICKS),
    help="How many ticks of each job.  [default: 10 of one job, 1 of each]",
)
@schedule_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array: one object a job, with its ticks.")
@connection_options
def next(
    *, connection: Connection, code: str | None, count: int | None, schedule: Schedule | None, as_json: bool
) -> int:
    """Show when jobs are due next: in UTC, in the job's zone, here, and how long until."""
    if schedule is not None and code is not None:
        raise click.UsageError("Give a CODE, or a schedule to try out, not both.")
    if schedule is not None:
        now = datetime.now(UTC)
        found = [_upcoming(None, schedule, now, count or _OF_ONE)]
    else:
        now, jobs = _look(connection)
        wanted = [job for job in jobs if code is None or job.code == code]
        if code is not None and not wanted:
            say(f"There is no job {code}. {_known(jobs)}")
            return ExitCode.NEGATIVE
        found = [_of_job(job, now, count or (_OF_EACH if code is None else _OF_ONE)) for job in wanted]
        found.sort(key=lambda each: each.first)
    if as_json:
        emit_json([_as_json(each, now) for each in found])
    else:
        _emit(found, now)
    return ExitCode.OK


def _look(connection: Connection) -> tuple[datetime, list[JobRecord]]:
    with connection.service() as service:
        statements = SchedulingStatements(service.table)
        jobs = service.perform(operations.job_records(statements, ALIVE, now_boot_s=boot_s()))
        return service.perform(operations.standing(statements, now_boot_s=boot_s())).clock, jobs


def _known(jobs: Sequence[JobRecord]) -> str:
    if not jobs:
        return "None was registered yet: a scheduler does that when it starts."
    return f"Known: {', '.join(job.code for job in jobs)}."


def _of_job(job: JobRecord, now: datetime, count: int) -> Upcoming:
    if job.schedule is None or job.policy is None:
        return Upcoming(job=job, schedule=None, ticks=(), problem="never registered: known by its removed runs alone")
    try:
        schedule = schedule_from(str(job.policy.get("kind")), job.schedule, job.timezone)
    except InvalidJobOptionsError as error:
        return Upcoming(job=job, schedule=None, ticks=(), problem=str(error).partition("\n")[0])
    # what is decided does not come again, such as a tick that was claimed a little early
    return _upcoming(job, schedule, max(now, job.watermark), count)


def _upcoming(job: JobRecord | None, schedule: Schedule, after: datetime, count: int) -> Upcoming:
    return Upcoming(job=job, schedule=schedule, ticks=schedule.between(after, _END_OF_TIME, count))


def _emit(found: Sequence[Upcoming], now: datetime) -> None:
    if len(found) == 1:
        emit(plain(_title(found[0])))
    rows = [row for each in found for row in _rows(each, now)]
    if not rows:
        return emit("No job was registered yet: a scheduler does that when it starts.")
    titles = ("CODE", "UTC", "ZONE", "HERE", "IN", "NOTE")
    left_out = {0} if len(found) == 1 else set[int]()
    if not any(row[-1] != NOTHING for row in rows):
        left_out.add(len(titles) - 1)
    return emit_table(
        [tuple(plain(cell) for n, cell in enumerate(row) if n not in left_out) for row in [titles, *rows]]
    )


def _title(one: Upcoming) -> str:
    words = one.schedule.describe() if one.schedule else NOTHING
    return f"{one.job.code}: {words}" if one.job else words


def _rows(each: Upcoming, now: datetime) -> list[tuple[str, ...]]:
    code = each.job.code if each.job else NOTHING
    note = _note(each, now)
    if not each.ticks or each.schedule is None:
        return [(code, NOTHING, NOTHING, NOTHING, NOTHING, note)]
    zone = ZoneInfo(each.schedule.timezone)
    return [
        (
            code,
            f"{tick:%a %Y-%m-%d %H:%M:%SZ}",
            _local(tick.astimezone(zone)),
            _local(tick.astimezone()),
            format_duration(tick - now),
            note,
        )
        for tick in each.ticks
    ]


def _local(tick: datetime) -> str:
    return f"{tick:%a} {tick.replace(tzinfo=None).isoformat(sep=' ', timespec='seconds')}{tick:%z}"


def _note(each: Upcoming, now: datetime) -> str:
    """Say why a tick may not run, or that there is none."""
    job, notes = each.job, [each.problem] if each.problem else []
    if job is not None and job.schedule is not None:
        if job.paused_at is not None:
            reason = f": {job.pause_reason}" if job.pause_reason else ""
            notes.append(f"paused since {when(job.paused_at, now)} by {job.paused_by}{reason}")
        if job.orphaned:
            notes.append("orphaned: no node runs it")
        if job.disagreeing:
            notes.append(f"another schedule on {', '.join(job.disagreeing)}")
    if not (each.ticks or each.problem):
        notes.append("no further tick")
    return "; ".join(notes) or NOTHING


def _as_json(each: Upcoming, now: datetime) -> dict[str, Any]:
    job, schedule = each.job, each.schedule
    zone = ZoneInfo(schedule.timezone) if schedule else UTC
    return {
        "code": job.code if job else None,
        "kind": schedule.kind if schedule else None,
        "schedule": schedule.text if schedule else None,
        "timezone": schedule.timezone if schedule else None,
        "words": schedule.describe() if schedule else None,
        "problem": each.problem,
        "paused_at": iso(job.paused_at) if job else None,
        "paused_by": job.paused_by if job and job.paused_at else None,
        "pause_reason": job.pause_reason if job and job.paused_at else None,
        "nodes": list(job.nodes) if job else [],
        "disagreeing": list(job.disagreeing) if job else [],
        "now": iso(now),
        "ticks": [
            {
                "utc": iso(tick),
                "zone": tick.astimezone(zone).isoformat(timespec="milliseconds"),
                "here": tick.astimezone().isoformat(timespec="milliseconds"),
                "in_ms": (tick - now) // timedelta(milliseconds=1),
            }
            for tick in each.ticks
        ],
    }
