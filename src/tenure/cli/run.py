"""`tenure run`: a command under a lease."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from tenure import (
    InvalidJobOptionsError,
    JobAcquireOptions,
    JobDatabaseError,
    JobExecutionLease,
    JobNotAcquired,
    JobSchedulerService,
    JobSchedulerType,
    LostJobLeaseError,
    NotAcquiredReason,
    OutcomeNotRecordedError,
)
from tenure.cli.child import Ended, Watch, run_child
from tenure.cli.connection import Command, Connection, connection_options
from tenure.cli.errors import ExitCode, say
from tenure.cli.output import when
from tenure.cli.signals import Signals
from tenure.durations import parse_duration

_LOOK_EVERY_S = 0.25
_LOOKS_A_LEASE = 80
"""A lease is trusted for 95 % of its length; a look each 1.25 % leaves time to stop before a rival may start."""


def _read_duration(_context: click.Context, _option: click.Parameter, text: str | None) -> timedelta | None:
    try:
        return None if text is None else parse_duration(text)
    except InvalidJobOptionsError as error:
        raise click.BadParameter(str(error)) from None


def _duration_option(name: str, help_text: str, default: str | None = None) -> Callable[[Command], Command]:
    return click.option(
        name, metavar="DURATION", callback=_read_duration, default=default, show_default=True, help=help_text
    )


@click.command(
    options_metavar="[OPTIONS]",
    epilog="""\b
The command's environment has TENURE_IDEMPOTENCY_KEY (the same for every
attempt), TENURE_FENCING_TOKEN (larger for each later lease), TENURE_ATTEMPT
and TENURE_RUN_KEY. Its stderr passes through; the last 4 KiB of it are kept
in the row with the exit code.

\b
Exit codes: the command's own, or
      0  the run is held or done elsewhere (see --skip-exit-code)
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
TERM, INT, HUP, QUIT, USR1 and USR2 are handed on to the command's process
group.""",
)
@click.argument("code")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@click.option("--run-key", metavar="KEY", help="What tells this run from the next, such as the hour it is for.")
@click.option("--initial", is_flag=True, help="Run once for ever, instead of once for each run key.")
@click.option("--name", metavar="TEXT", help="A name for people to read.")
@_duration_option("--lease", "How long a node that fell silent keeps the run.  [default: 15m]")
@_duration_option("--heartbeat", "How often to renew; 0 for never.  [default: 1m, at most a third of the lease]")
@_duration_option("--grace", "After a lost lease, the time from SIGTERM to SIGKILL.", default="10s")
@click.option(
    "--skip-exit-code",
    type=click.IntRange(0, 255),
    default=0,
    show_default=True,
    metavar="N",
    help="Exit code for a run that is held or done elsewhere.",
)
@connection_options
def run(
    *,
    connection: Connection,
    code: str,
    command: Sequence[str],
    run_key: str | None,
    initial: bool,
    name: str | None,
    lease: timedelta | None,
    heartbeat: timedelta | None,
    grace: timedelta,
    skip_exit_code: int,
) -> int:
    """Run a command if no other node runs it, or ran it, for this job and run key."""
    if initial == (run_key is not None):
        raise click.UsageError("Give either --run-key KEY or --initial.")
    options = JobAcquireOptions(
        code=code,
        type=JobSchedulerType.INITIAL if initial else JobSchedulerType.SCHEDULE,
        **_without_left_out(
            run_key=run_key, name=name, lease_ms=_milliseconds(lease), heartbeat_ms=_milliseconds(heartbeat)
        ),
    )
    signals = Signals()
    signals.listen()
    with connection.service() as service:
        return _Run(service, options, command, grace, signals).result(skip_exit_code)


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // timedelta(milliseconds=1)


def _without_left_out(**options: Any) -> dict[str, Any]:
    """Leave out what was not given: the library tells that from None (C2.4)."""
    return {name: value for name, value in options.items() if value is not None}


class _CommandFailedError(Exception):
    """Tell `run_exclusive` that the command failed when its exit code could not be recorded."""


@dataclass(slots=True)
class _Run:
    service: JobSchedulerService
    options: JobAcquireOptions
    command: Sequence[str]
    grace: timedelta
    signals: Signals
    exit_code: int = 0

    def result(self, skip_exit_code: int) -> int:
        """Run the command if the run is ours, and give the exit code of it all."""
        try:
            outcome = self.service.run_exclusive(self.options, self._work)
        except _CommandFailedError:
            return self.exit_code
        except LostJobLeaseError as error:
            say(f"The run is not ours any more ({error.reason.value}): how the command ended is not recorded.")
            return ExitCode.LEASE_LOST
        except OutcomeNotRecordedError as error:
            say(f"The command succeeded, but that could not be recorded: {error.__cause__}")
            say("When the lease has ended, another node runs it again.")
            return ExitCode.NOT_RECORDED
        if outcome.not_acquired is None:
            return self.exit_code
        say(f"Skipped: {self._title()} {why_not(outcome.not_acquired, datetime.now(UTC))}.")
        return skip_exit_code

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

        When SUCCESS cannot be recorded, `run_exclusive` tries once more without the data, and says what became of it.
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
        environment.pop("TENURE_RUN_KEY", None)
        environment["TENURE_IDEMPOTENCY_KEY"] = lease.idempotency_key
        environment["TENURE_FENCING_TOKEN"] = str(lease.fencing_token)
        environment["TENURE_ATTEMPT"] = str(lease.attempt)
        if self.options.run_key is not None:
            environment["TENURE_RUN_KEY"] = os.fsdecode(self.options.run_key.encode())  # UTF-8 in any locale
        return environment

    def _title(self) -> str:
        return self.options.code if self.options.run_key is None else f"{self.options.code} {self.options.run_key}"


def why_not(answer: JobNotAcquired, now: datetime) -> str:
    """Say in a clause why a run was not acquired (C4.4)."""
    holder = answer.holder or "another node"
    if answer.reason is NotAcquiredReason.SUCCEEDED:
        return f"was done at {when(answer.finished_at, now)} by {holder}, attempt {answer.attempt}"
    if answer.reason is NotAcquiredReason.RUNNING:
        return (
            f"is held by {holder} since {when(answer.since, now)}, attempt {answer.attempt}; "
            f"unless renewed, its lease expires at {when(answer.expires_at, now)}"
        )
    if answer.reason is NotAcquiredReason.REMOVED:
        return "was decided before: its row was removed, or the job was not known then"
    return "is just being taken by another node"
