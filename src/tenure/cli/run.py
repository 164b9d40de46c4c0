"""`tenure run`: a command under a lease."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tenure import (
    JobAcquired,
    JobAcquireOptions,
    JobAcquireResult,
    JobDatabaseError,
    JobExecutionLease,
    JobNotAcquired,
    JobSchedulerService,
    JobSchedulerType,
    LostJobLeaseError,
    OutcomeNotRecordedError,
)
from tenure.cli.child import Ended, Watch, run_child
from tenure.cli.connection import Connection, connection_options
from tenure.cli.errors import ExitCode, say
from tenure.cli.options import duration_option, instant_option, schedule_options
from tenure.cli.output import why_not
from tenure.cli.signals import Signals

if TYPE_CHECKING:
    from tenure.cli.ticks import Appointment, TickWanted
    from tenure.scheduling import Schedule

_LOOK_EVERY_S = 0.25
_LOOKS_A_LEASE = 80
"""A lease is trusted for 95 % of its length; a look each 1.25 % leaves time to stop before a rival may start."""


@click.command(
    options_metavar="[OPTIONS]",
    epilog="""\b
The command's environment has TENURE_IDEMPOTENCY_KEY (the same for every
attempt), TENURE_FENCING_TOKEN (larger for each later lease), TENURE_ATTEMPT,
TENURE_RUN_KEY and, of a tick, TENURE_SCHEDULED_AT (UTC). Its stderr passes
through; the last 4 KiB of it are kept in the row with the exit code.

\b
Exit codes: the command's own, or
      0  the run is held or done elsewhere, the tick is too late, or the job is
         paused (see --skip-exit-code)
      2  the command line or an option is wrong
     69  the database cannot be reached, is busy, or refused; nothing was run
     74  the command succeeded, but that could not be recorded: when the lease
         has ended, another node runs it again
     75  the lease was lost: the command was stopped, or ended too late
     77  the database role lacks a grant
     78  the schema is missing or old
    126  the command cannot be executed
    127  the command was not found
  128+N  the command was ended by signal N, or tenure was before it had begun

\b
From a crontab on many hosts, or a Kubernetes CronJob: give --cron (or --every)
and no --run-key. The tick is then the newest one by the database's clock, so
all hosts mean the same run, however late they ask; a host that is early by up
to --early means the coming one. --tick names it instead:
  tenure run report --cron '0 3 * * *' --timezone Europe/Paris -- report --all

\b
TERM, INT, HUP, QUIT, USR1 and USR2 are handed on to the command's process
group.""",
)
@click.argument("code")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@click.option("--run-key", metavar="KEY", help="What tells this run from the next, such as the hour it is for.")
@click.option("--initial", is_flag=True, help="Run once for ever, instead of once for each run key.")
@schedule_options
@instant_option("--tick", "The tick to run for, instead of the newest one; needs no schedule.")
@duration_option("--early", "How much before its tick a host may ask for it, at most 1m.  [default: 250ms]")
@duration_option("--max-lateness", "Run no tick that is older.  [default: 1d; no limit for --tick]")
@click.option("--name", metavar="TEXT", help="A name for people to read.")
@duration_option("--lease", "How long a node that fell silent keeps the run.  [default: 15m]")
@duration_option("--heartbeat", "How often to renew; 0 for never.  [default: 1m, at most a third of the lease]")
@duration_option("--grace", "After a lost lease, the time from SIGTERM to SIGKILL.", default="10s")
@click.option(
    "--skip-exit-code",
    type=click.IntRange(0, 255),
    default=0,
    show_default=True,
    metavar="N",
    help="Exit code for a run that is held or done elsewhere, too late or paused.",
)
@connection_options
def run(
    *,
    connection: Connection,
    code: str,
    command: Sequence[str],
    run_key: str | None,
    initial: bool,
    schedule: Schedule | None,
    tick: datetime | None,
    early: timedelta | None,
    max_lateness: timedelta | None,
    name: str | None,
    lease: timedelta | None,
    heartbeat: timedelta | None,
    grace: timedelta,
    skip_exit_code: int,
) -> int:
    """Run a command if no other node runs it, or ran it, for this job and run key, or tick."""
    wanted = _tick_wanted(schedule, tick, early, max_lateness)
    if [run_key is not None, initial, wanted is not None].count(True) != 1:
        raise click.UsageError(
            "Give one of --run-key KEY, --initial, --cron EXPRESSION, --every DURATION and --tick INSTANT."
        )
    options = partial(
        JobAcquireOptions,
        code=code,
        type=JobSchedulerType.INITIAL if initial else JobSchedulerType.SCHEDULE,
        **_without_left_out(name=name, lease_ms=_milliseconds(lease), heartbeat_ms=_milliseconds(heartbeat)),
    )
    checked = options(**_without_left_out(run_key="a tick" if wanted else run_key))
    signals = Signals()
    signals.listen()
    with connection.service() as service:
        if wanted is None:
            return _Run(service, checked, None, command, grace, signals).result(skip_exit_code)
        from tenure.cli.ticks import Appointment

        appointment = Appointment.make(service, wanted, checked.code)
        named = options(run_key=appointment.run_key)
        return _Run(service, named, appointment, command, grace, signals).result(skip_exit_code)


def _tick_wanted(
    schedule: Schedule | None, tick: datetime | None, early: timedelta | None, max_lateness: timedelta | None
) -> TickWanted | None:
    if schedule is None and tick is None:
        if early is not None or max_lateness is not None:
            raise click.UsageError("--early and --max-lateness are about a tick. Give --cron, --every or --tick, too.")
        return None
    from tenure.cli.ticks import TickWanted

    wanted = TickWanted(schedule=schedule, tick=tick, **_without_left_out(early=early, max_lateness=max_lateness))
    wanted.check()
    return wanted


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // timedelta(milliseconds=1)


def _without_left_out(**options: Any) -> dict[str, Any]:
    """Leave out what was not given: the library tells that from None (C2.4)."""
    return {name: value for name, value in options.items() if value is not None}


class _CommandFailedError(Exception):
    """Tell `run_acquired` that the command failed when its exit code could not be recorded."""


@dataclass(slots=True)
class _Run:
    service: JobSchedulerService
    options: JobAcquireOptions
    appointment: Appointment | None
    command: Sequence[str]
    grace: timedelta
    signals: Signals
    exit_code: int = 0

    def result(self, skip_exit_code: int) -> int:
        """Run the command if the run is ours, and give the exit code of it all."""
        if self.appointment and (clause := self.appointment.why_not_now(self.options)):
            return self._skipped(clause, skip_exit_code)
        won = self._acquire()
        if won.acquired is False:
            return self._skipped(self._why_lost(won), skip_exit_code)
        if self.appointment:
            self.appointment.say_if_late()
        return self._run(won)

    def _acquire(self) -> JobAcquireResult:
        return self.appointment.acquire(self.options) if self.appointment else self.service.acquire(self.options)

    def _why_lost(self, answer: JobNotAcquired) -> str:
        if self.appointment:
            return self.appointment.why_lost(answer, self.options)
        return why_not(answer, datetime.now(UTC))

    def _skipped(self, clause: str, skip_exit_code: int) -> int:
        say(f"Skipped: {self._title()} {clause}.")
        return skip_exit_code

    def _run(self, won: JobAcquired) -> int:
        try:
            self.service.run_acquired(won, self._work)
        except _CommandFailedError:
            return self.exit_code
        except LostJobLeaseError as error:
            say(f"The run is not ours any more ({error.reason.value}): how the command ended is not recorded.")
            return ExitCode.LEASE_LOST
        except OutcomeNotRecordedError as error:
            say(f"The command succeeded, but that could not be recorded: {error.__cause__}")
            say("When the lease has ended, another node runs it again.")
            return ExitCode.NOT_RECORDED
        return self.exit_code

    def _work(self, lease: JobExecutionLease) -> None:
        watch = Watch(
            lost=lambda: lease.lost,
            look_every_s=max(0.005, min(_LOOK_EVERY_S, self.options.lease_ms / 1000 / _LOOKS_A_LEASE)),
            grace=self.grace,
        )
        ended = run_child(self.command, self._environment(lease), watch, self.signals)
        self.exit_code = ended.exit_code
        if ended.lost:
            raise LostJobLeaseError(ended.lost)
        self._record(lease, ended)

    def _record(self, lease: JobExecutionLease, ended: Ended) -> None:
        """Record how the command ended.

        When SUCCESS cannot be recorded, `run_acquired` tries once more without the data, and says what became of it.
        """
        data = {"exitCode": ended.exit_code, "stderr": ended.stderr}
        if ended.exit_code == 0:
            with suppress(JobDatabaseError):
                self.service.complete(lease, data)
            return
        with suppress(JobDatabaseError):
            if self.service.fail(lease, data):
                return
            lease.check()
        raise _CommandFailedError(f"exit code {ended.exit_code}")

    def _environment(self, lease: JobExecutionLease) -> dict[str, str]:
        environment = {**os.environ}
        for left_by_another in ("TENURE_RUN_KEY", "TENURE_SCHEDULED_AT"):
            environment.pop(left_by_another, None)
        environment["TENURE_IDEMPOTENCY_KEY"] = lease.idempotency_key
        environment["TENURE_FENCING_TOKEN"] = str(lease.fencing_token)
        environment["TENURE_ATTEMPT"] = str(lease.attempt)
        if self.options.run_key is not None:
            environment["TENURE_RUN_KEY"] = os.fsdecode(self.options.run_key.encode())  # UTF-8 in any locale
        if self.appointment is not None:
            environment["TENURE_SCHEDULED_AT"] = self.appointment.run_key
        return environment

    def _title(self) -> str:
        return self.options.code if self.options.run_key is None else f"{self.options.code} {self.options.run_key}"
