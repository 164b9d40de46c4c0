"""`tenure pause`, `resume`, `trigger` and `prune`: what operators do with jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from tenure import InvalidJobOptionsError, JobAcquireOptions, JobSchedulerService
from tenure.cli.asking import action, ask, who
from tenure.cli.connection import Connection, connection_options
from tenure.cli.errors import ExitCode, plain, say
from tenure.cli.options import code_argument, duration_option, instant_option, reason_option
from tenure.cli.output import emit, emit_json, iso
from tenure.cli.ticks import not_a_tick
from tenure.clock import boot_s
from tenure.durations import format_duration
from tenure.operating import operations as operating
from tenure.scheduling import Retention, operations, run_key, schedule_from
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.values import JobRecord


@click.command(
    epilog="""\b
Example:
  tenure pause report --reason 'until the disk is larger'
Exit codes: 0 paused; 1 there is no such job."""
)
@code_argument()
@reason_option(required=True)
@connection_options
def pause(*, connection: Connection, code: str, reason: str) -> int:
    """Let no node start a run of a job, retries included; what runs goes on.

    Ticks that come meanwhile do not run later. Who and why is kept for those who look.
    """
    with connection.service() as service:
        done = ask(service, operating.pause, code, action(reason)).done
    return _told(code, "paused", done)


@click.command(
    epilog="""\b
Example:
  tenure resume report --reason 'the disk is larger'
Exit codes: 0 resumed; 1 there is no such job."""
)
@code_argument()
@reason_option(required=False)
@connection_options
def resume(*, connection: Connection, code: str, reason: str | None) -> int:
    """Let nodes start runs of a job again."""
    with connection.service() as service:
        done = ask(service, operating.resume, code, action(reason)).done
    return _told(code, "resumed", done)


@click.command(
    epilog="""\b
The run has a key of its own (manual:...), so the job's ticks stay as they
are: one that ran may be run again so. Whichever node runs the job takes it
up; of a paused job when it is resumed.

\b
Examples:
  tenure trigger report --reason 'for the auditors'
  tenure trigger report --at 2026-07-20T03:00:00Z
Exit codes: 0 asked for; 1 nothing was done, and why is said."""
)
@code_argument()
@instant_option("--at", "A tick of the job's schedule that the run stands for; left out, it stands for now.")
@reason_option(required=False)
@click.option("--anyway", is_flag=True, help="Also if no node that runs the job is alive: the run waits for one.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@connection_options
def trigger(
    *, connection: Connection, code: str, at: datetime | None, reason: str | None, anyway: bool, as_json: bool
) -> int:
    """Ask for a run of a job by hand, now."""
    with connection.service() as service:
        jobs = service.perform(
            operations.job_records(SchedulingStatements(service.table), operating.ALIVE, now_boot_s=boot_s())
        )
        job = next((job for job in jobs if job.code == code), None)
        if job is None or job.schedule is None:
            say(f"Nothing was asked for: no job {code} was ever registered. See: tenure next")
            return ExitCode.NEGATIVE
        if job.orphaned and not anyway:
            say(
                f"Nothing was asked for: no node that runs {code} was heard of for {format_duration(operating.ALIVE)}. "
                "Start one, or give --anyway to let the run wait for one."
            )
            return ExitCode.NEGATIVE
        return _trigger(service, job, at, reason, as_json=as_json)


def _trigger(
    service: JobSchedulerService, job: JobRecord, at: datetime | None, reason: str | None, *, as_json: bool
) -> int:
    if at is not None:
        statements = SchedulingStatements(service.table)
        _check_tick(job, at, service.perform(operations.standing(statements, now_boot_s=boot_s())).clock)
    told = ask(service, operating.trigger, job.code, action(reason), at=at)
    if not told.done or told.run is None or told.run.run_key is None:
        say(f"Nothing was asked for: the job {job.code} was removed just now.")
        return ExitCode.NEGATIVE
    run = JobAcquireOptions(code=job.code, run_key=told.run.run_key)
    if as_json:
        emit_json(
            {
                "code": run.code,
                "run_key": run.run_key,
                "idempotency_key": run.lock_key,
                "scheduled_at": iso(told.run.scheduled_at),
                "paused": job.paused_at is not None,
                "nodes": list(job.nodes),
            }
        )
        return ExitCode.OK
    emit(plain(f"{run.code}: asked for {run.run_key}") + f"\nLook at it: tenure show {run.lock_key}")
    if job.paused_at is not None:
        say(f"The job is paused by {job.paused_by}: the run waits until it is resumed.")
    return ExitCode.OK


@click.command(
    epilog="""\b
Examples:
  tenure prune
  tenure prune --keep 30d --keep-failed 180d"""
)
@duration_option("--keep", "Keep runs that succeeded, or did not run, this long.", default="90d")
@duration_option("--keep-failed", "Keep runs that used up their attempts this long.", default="365d")
@connection_options
def prune(*, connection: Connection, keep: timedelta, keep_failed: timedelta) -> int:
    """Remove old runs; what was removed never runs again (C10.7).

    Only runs that are named by a tick or were triggered by hand: no INITIAL run, no run that is to be taken up again,
    none with another kind of key. In batches, beside anything that runs. Schedulers do this by themselves once a day.
    """
    removing = Retention(keep=keep, keep_failed=keep_failed)
    with connection.service() as service:
        batches = removing.batches(SchedulingStatements(service.table))
        while (attempt := batches.next()) is not None:
            batches.note(service.perform(attempt))
    emit(f"{batches.removed:,} run{'' if batches.removed == 1 else 's'} removed")
    return ExitCode.OK


def _check_tick(job: JobRecord, at: datetime, clock: datetime) -> None:
    if at > clock:
        raise click.BadParameter(
            f"{run_key(at)} is still to come, in {format_duration(at - clock)}; the run would begin now.",
            param_hint="--at",
        )
    try:
        schedule = schedule_from(str((job.policy or {}).get("kind")), job.schedule or "", job.timezone)
    except InvalidJobOptionsError:
        return  # another release's, which this one cannot read
    if schedule.tick_at(at, timedelta(0)) != at:
        raise click.BadParameter(not_a_tick(schedule, at), param_hint="--at")


def _told(code: str, what: str, done: bool) -> int:
    if not done:
        say(f"Nothing was {what}: there is no job {code}. See: tenure next")
        return ExitCode.NEGATIVE
    emit(plain(f"{code}: {what} by {who()}"))
    return ExitCode.OK
