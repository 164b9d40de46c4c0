"""Each operation of the scheduler as a value: the statement it sends and how its rows are read (C10). No I/O, no clock.

The service brings an attempt to its end: `service.perform(...)`, and `service.win(...)` for a claim or a retake.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tenure.errors import InvalidJobOptionsError
from tenure.lease import JobAcquireResult
from tenure.operations import ACQUIRE_LIMIT_S, CALL_LIMIT_S, Attempt, Call, LookAgainError, Row, Try, acquisition
from tenure.options import JobAcquireOptions, JobSchedulerType
from tenure.records import instant_or_none
from tenure.scheduling import answers
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.values import (
    Claimed,
    Decided,
    Decision,
    Heard,
    JobRecord,
    JobRegistration,
    NodeLife,
    NodeRecord,
    Pruned,
    Retake,
    Standing,
    TickClaim,
    Triggered,
    UnfinishedRuns,
    Verdict,
)
from tenure.statements import Statements

_MILLISECOND = timedelta(milliseconds=1)
_UNFINISHED_OF_EACH_JOB = 20
_LOOKS = 3
"""How often a claim is sent again to write its tick into a row that somebody else made, before that is left."""


def registration(
    statements: SchedulingStatements, node: NodeLife, jobs: Sequence[JobRegistration], *, now_boot_s: float
) -> Attempt[Heard]:
    """Make jobs and their node known; a newer registration of a code replaces an older one in place (C10.7).

    A new job's watermark is now, so it never runs for the past. `replaced` tells what this call has replaced.
    """
    call = Call.of(
        statements.register,
        codes=[job.code for job in jobs],
        schedules=[job.schedule for job in jobs],
        timezones=[job.timezone for job in jobs],
        fingerprints=[job.fingerprint for job in jobs],
        policies=[_json(job.policy) for job in jobs],
        node=node.node,
        label=node.label,
        jobs=_json({job.code: job.fingerprint for job in jobs}),
    )

    def conclude(rows: Sequence[Row], _: Try) -> Heard:
        heard = answers.read_heard(rows)
        if len(heard.jobs) < len({job.code for job in jobs}):
            raise LookAgainError()  # another node was just registering the same job
        return heard

    return Attempt(call, conclude, until_boot_s=now_boot_s + ACQUIRE_LIMIT_S, insists=False)


def beat(
    statements: SchedulingStatements,
    node: NodeLife,
    jobs: Mapping[str, str],
    clock_offset: timedelta | None,
    *,
    now_boot_s: float,
) -> Attempt[Heard]:
    """Say that a node lives, and hear how its jobs (code to fingerprint) stand: once a poll."""
    call = Call.of(
        statements.beat,
        node=node.node,
        label=node.label,
        offset_ms=None if clock_offset is None else _ms(clock_offset),
        jobs=_json(jobs),
        codes=list(jobs),
    )
    return _asking(call, answers.read_heard, now_boot_s)


def claim(
    statements: SchedulingStatements,
    wanted: TickClaim,
    owner_token: UUID,
    owner: str,
    *,
    now_boot_s: float,
    clock: Callable[[], float],
) -> Attempt[Claimed]:
    """Decide a tick, and win its run if it is to run (C10.2, C10.5, C10.7).

    Sent twice, it is decided once: a row that bears our owner token says what the first try came to.
    """
    call = Call.of(
        statements.claim,
        **_naming(wanted.options, owner_token, owner),
        name=wanted.options.name,
        run_key=wanted.options.run_key,
        tick=wanted.tick,
        previous_tick=wanted.previous_tick,
        fingerprint=wanted.fingerprint,
        tolerance_ms=_ms(wanted.tolerance),
        max_lateness_ms=None if wanted.max_lateness is None else _ms(wanted.max_lateness),
        overlap=wanted.overlap,
        catch_up=wanted.catch_up,
    )
    return _winning(call, wanted.options, owner_token, now_boot_s, clock)


def retake(
    statements: SchedulingStatements,
    wanted: Retake,
    owner_token: UUID,
    owner: str,
    *,
    now_boot_s: float,
    clock: Callable[[], float],
) -> Attempt[Claimed]:
    """Take an unfinished run up again, or write that its attempts are used up (C10.4)."""
    call = Call.of(
        statements.retake,
        **_naming(wanted.options, owner_token, owner),
        max_attempts=wanted.max_attempts,
        overlap=wanted.overlap,
    )
    return _winning(call, wanted.options, owner_token, now_boot_s, clock)


def decision(statements: SchedulingStatements, wanted: Decision, *, now_boot_s: float) -> Attempt[Decided]:
    """Decide many ticks that are not to run, each with a row that says why (C10.5)."""
    if not wanted.ticks and wanted.moves_to is None:
        raise InvalidJobOptionsError("A decision needs ticks, or where the watermark is to go. Give one of them.")
    moves_to = wanted.moves_to or max(wanted.ticks.values())
    runs = [JobAcquireOptions(code=wanted.code, run_key=run_key) for run_key in wanted.ticks]
    call = Call.of(
        statements.decide,
        code=runs[0].code if runs else wanted.code,
        fingerprint=wanted.fingerprint,
        watermark=wanted.watermark,
        moves_to=moves_to,
        lock_keys=[run.lock_key for run in runs],
        run_keys=[run.run_key for run in runs],
        ticks=list(wanted.ticks.values()),
        outcome=wanted.outcome.value,
    )

    def conclude(rows: Sequence[Row], this: Try) -> Decided:
        decided = answers.read_decided(rows[0])
        if this.uncertain and decided.verdict is Verdict.DECIDED and decided.watermark == moves_to:
            return answers.read_decided(("won", len(runs), *rows[0][2:]))  # by an earlier try, whose answer was lost
        return decided

    return Attempt(call, conclude, until_boot_s=now_boot_s + ACQUIRE_LIMIT_S, insists=False)


def unfinished(
    statements: SchedulingStatements, lease_ms_by_code: Mapping[str, int], *, now_boot_s: float, limit: int = 200
) -> Attempt[UnfinishedRuns]:
    """Find the runs of these jobs that died, or are due for a retry, or wait to be started (C10.4).

    Oldest first for each job, and a few of each. A lease of unknown length is judged by the job's own.
    """
    call = Call.of(
        statements.unfinished,
        codes=list(lease_ms_by_code),
        lease_lengths_ms=list(lease_ms_by_code.values()),
        each=_UNFINISHED_OF_EACH_JOB,
        limit=limit,
    )
    return _asking(call, answers.read_unfinished, now_boot_s)


def trigger(
    statements: SchedulingStatements,
    code: str,
    run_key: str,
    scheduled_at: datetime | None,
    *,
    owner_token: UUID,
    now_boot_s: float,
) -> Attempt[Triggered]:
    """Ask for a run by hand: whoever runs the job takes it up. `owner_token` is new for each call."""
    run = JobAcquireOptions(code=code, run_key=run_key)
    call = Call.of(
        statements.trigger_run,
        code=run.code,
        lock_key=run.lock_key,
        run_key=run.run_key,
        owner_token=owner_token,
        scheduled_at=scheduled_at,
    )

    def read(rows: Sequence[Row]) -> Triggered:
        known, new, scheduled_us = rows[0]
        return Triggered(known=known, new=bool(new), scheduled_at=instant_or_none(scheduled_us))

    return _asking(call, read, now_boot_s)


def pause(
    statements: SchedulingStatements, code: str, by: str, reason: str | None, *, now_boot_s: float
) -> Attempt[bool]:
    """Pause a job, known or not registered any more; `False` if there is none of that code."""
    return _asking(Call.of(statements.pause, code=code, by=by, reason=reason), bool, now_boot_s)


def resume(
    statements: SchedulingStatements, code: str, by: str | None = None, reason: str | None = None, *, now_boot_s: float
) -> Attempt[bool]:
    """Resume a job, and keep by whom and why; `False` if there is none of that code."""
    return _asking(Call.of(statements.resume, code=code, by=by, reason=reason), bool, now_boot_s)


def standing(statements: SchedulingStatements, code: str | None = None, *, now_boot_s: float) -> Attempt[Standing]:
    """Hear the database's clock, and whether the job of that code is paused (C10.2)."""
    return _asking(Call.of(statements.stand, code=code), lambda rows: answers.read_standing(rows[0]), now_boot_s)


def tick_acquisition(
    statements: SchedulingStatements,
    options: JobAcquireOptions,
    tick: datetime,
    owner_token: UUID,
    owner: str,
    *,
    now_boot_s: float,
    clock: Callable[[], float],
) -> Attempt[JobAcquireResult]:
    """Try to win the run of a tick of a job that need not be registered: an acquire that writes the tick down.

    Unlike a claim it knows no watermark but that of removed rows, no overlap and no pause: whoever asks has decided.
    """
    return acquisition(
        Statements(statements.table), options, owner_token, owner,
        scheduled_at=tick, now_boot_s=now_boot_s, clock=clock,
    )  # fmt: skip


def forget_node(statements: SchedulingStatements, node: UUID, *, now_boot_s: float) -> Attempt[bool]:
    """Take a node that ends off the list; `False` if it was not there."""
    return _asking(Call.of(statements.forget_node, node=node), bool, now_boot_s)


def job_records(statements: SchedulingStatements, alive: timedelta, *, now_boot_s: float) -> Attempt[list[JobRecord]]:
    """List all jobs by code; a node counts as alive if it was heard of within that time."""
    call = Call.of(statements.list_jobs, alive_ms=_ms(alive))
    return _asking(call, lambda rows: [answers.read_job(row) for row in rows], now_boot_s)


def node_records(statements: SchedulingStatements, *, now_boot_s: float) -> Attempt[list[NodeRecord]]:
    """List all nodes, those heard of last first."""
    return _asking(Call.of(statements.list_nodes), lambda rows: [answers.read_node(row) for row in rows], now_boot_s)


def prune(
    statements: SchedulingStatements,
    keep: timedelta,
    keep_failed: timedelta,
    *,
    now_boot_s: float,
    after: int = 0,
    limit: int = 1_000,
) -> Attempt[Pruned]:
    """Remove old runs, one batch; a removed tick stays decided (C10.7).

    Only runs that are named by a tick or were triggered by hand: never an INITIAL one, never one that is unfinished.
    A batch looks at `limit` runs, in the order in which their leases began. The first one also forgets silent nodes.
    """
    call = Call.of(statements.prune, keep_ms=_ms(keep), keep_failed_ms=_ms(keep_failed), after=after, limit=limit)

    def read(rows: Sequence[Row]) -> Pruned:
        removed, last, more = rows[0]
        return Pruned(removed=removed, after=last, more=more)

    return _asking(call, read, now_boot_s)


def _winning(
    call: Call, options: JobAcquireOptions, owner_token: UUID, now_boot_s: float, clock: Callable[[], float]
) -> Attempt[Claimed]:
    looks = iter(range(_LOOKS))

    def conclude(rows: Sequence[Row], this: Try) -> Claimed:
        verdict = rows[0][0]
        if verdict == "contended" and this.uncertain:
            raise LookAgainError()  # what contends may be our own first try
        if verdict == "not noted" and next(looks, None) is not None:
            raise LookAgainError()
        sent_boot_s = now_boot_s if verdict == "mine" else this.sent_boot_s
        return answers.read_claimed(rows[0], options, owner_token, sent_boot_s=sent_boot_s, clock=clock)

    return Attempt(call, conclude, until_boot_s=now_boot_s + ACQUIRE_LIMIT_S, insists=False)


def _naming(options: JobAcquireOptions, owner_token: UUID, owner: str) -> dict[str, object]:
    if options.type is not JobSchedulerType.SCHEDULE:
        raise InvalidJobOptionsError("Only a SCHEDULE run has a tick. Use acquire for an INITIAL one.")
    return {
        "lock_key": options.lock_key,
        "code": options.code,
        "lease_ms": options.lease_ms,
        "owner_token": owner_token,
        "owner": owner,
    }


def _asking(call: Call, read: Callable[[Sequence[Row]], answers.R], now_boot_s: float) -> Attempt[answers.R]:
    return Attempt(call, lambda rows, _: read(rows), until_boot_s=now_boot_s + CALL_LIMIT_S, insists=False)


def _ms(duration: timedelta) -> int:
    return duration // _MILLISECOND


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(dict(value), ensure_ascii=True, allow_nan=False, sort_keys=True)
