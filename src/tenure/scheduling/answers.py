"""Read what the scheduler's statements answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeVar
from uuid import UUID

from tenure.lease import JobNotAcquired, NotAcquiredReason
from tenure.operations import Row, read_loss, read_win
from tenure.options import JobAcquireOptions, JobSchedulerStatus
from tenure.records import instant, instant_or_none
from tenure.scheduling.values import (
    Claimed,
    Decided,
    Heard,
    JobRecord,
    JobState,
    NodeRecord,
    Outcome,
    Replaced,
    Standing,
    Unfinished,
    UnfinishedRuns,
    Verdict,
)

R = TypeVar("R")

_NEVER_RAN: Final = (Outcome.PAUSED, Outcome.TOO_LATE, Outcome.OVERLAPPED, Outcome.QUEUED)
_TOLD: Final = (Verdict.LOST, Verdict.DECIDED)
"""The verdicts that stand on a row, which says more."""


def read_heard(rows: Sequence[Row]) -> Heard:
    """Read the answer to a registration or a beat: the clock, then a row for each job that is there."""
    jobs = [_state(row) for row in rows[1:]]
    replaced = [_replaced(row) for row in rows[1:] if len(row) > 6 and row[8] is not None]
    return Heard(clock=instant(rows[0][1]), jobs={job.code: job for job in jobs}, replaced=tuple(replaced))


def _state(row: Row) -> JobState:
    code, watermark_us, fingerprint, registered_us, registered_by, paused = row[:6]
    return JobState(
        code=code,
        watermark=instant(watermark_us),
        fingerprint=fingerprint,
        registered_at=instant_or_none(registered_us),
        registered_by=registered_by,
        paused=paused,
    )


def _replaced(row: Row) -> Replaced:
    schedule, timezone, fingerprint, registered_us, registered_by = row[6:]
    return Replaced(
        code=row[0],
        schedule=schedule,
        timezone=timezone,
        fingerprint=fingerprint,
        registered_at=instant_or_none(registered_us),
        registered_by=registered_by,
    )


def read_claimed(
    row: Row, options: JobAcquireOptions, owner_token: UUID, *, sent_boot_s: float, clock: Callable[[], float]
) -> Claimed:
    """Read the answer to a claim or a retake: as that of an acquire, with outcome, watermark and clock between."""
    verdict = _verdict(row)
    return Claimed(
        verdict=verdict,
        won=read_win(row, options, owner_token, sent_boot_s=sent_boot_s, clock=clock)
        if verdict is Verdict.WON
        else None,
        lost=_loss(verdict, row),
        watermark=instant_or_none(row[11]),
        clock=instant(row[12]),
    )


def _verdict(row: Row) -> Verdict:
    told, status, outcome = row[0], row[4], row[10]
    if told == "mine":
        if status == JobSchedulerStatus.RUNNING:
            return Verdict.WON
        return Verdict(outcome) if outcome in _NEVER_RAN else Verdict.LOST
    return Verdict.LOST if told == "not noted" else Verdict(told)


def _loss(verdict: Verdict, row: Row) -> JobNotAcquired | None:
    if verdict is Verdict.REMOVED:
        return JobNotAcquired(reason=NotAcquiredReason.REMOVED)
    return read_loss(row if row[1] is not None else None) if verdict in _TOLD else None


def read_decided(row: Row) -> Decided:
    """Read the answer to a decision."""
    verdict, written, watermark_us, clock_us = row
    return Decided(
        verdict=Verdict(verdict), written=written, watermark=instant_or_none(watermark_us), clock=instant(clock_us)
    )


def read_unfinished(rows: Sequence[Row]) -> UnfinishedRuns:
    """Read what is to be taken up: clock and next retry, then the runs."""
    first, *found = rows
    return UnfinishedRuns(
        clock=instant(first[3]), next_retry_at=instant_or_none(first[7]), runs=tuple(_unfinished(row) for row in found)
    )


def _unfinished(row: Row) -> Unfinished:
    code, lock_key, run_key, scheduled_us, attempt, died, outcome, _ = row
    return Unfinished(
        code=code,
        lock_key=lock_key,
        run_key=run_key,
        scheduled_at=instant(scheduled_us),
        attempt=attempt,
        died=died,
        outcome=outcome,
    )


def read_job(row: Row) -> JobRecord:
    """Read a row of the list of jobs."""
    code, schedule, timezone, fingerprint, policy, known_us, watermark_us, paused_us, by, reason, *registered = row
    registered_us, registered_by, nodes = registered
    alive: list[tuple[str, str]] = [(label, told) for label, told in json.loads(nodes or "[]")]
    return JobRecord(
        code=code,
        schedule=schedule,
        timezone=timezone,
        fingerprint=fingerprint,
        policy=json.loads(policy) if policy is not None else None,
        known_since=instant(known_us),
        watermark=instant(watermark_us),
        paused_at=instant_or_none(paused_us),
        paused_by=by,
        pause_reason=reason,
        registered_at=instant_or_none(registered_us),
        registered_by=registered_by,
        nodes=tuple(label for label, _ in alive),
        disagreeing=tuple(label for label, told in alive if told != fingerprint),
    )


def read_standing(row: Row) -> Standing:
    """Read what the clock shows, and how a job stands."""
    clock_us, known, paused_us, by, reason = row
    return Standing(
        clock=instant(clock_us),
        known=known,
        paused_at=instant_or_none(paused_us),
        paused_by=by,
        pause_reason=reason,
    )


def read_node(row: Row) -> NodeRecord:
    """Read a row of the list of nodes."""
    node, label, started_us, seen_us, silent_us, offset_ms, jobs = row
    return NodeRecord(
        node=UUID(node),
        label=label,
        started_at=instant(started_us),
        seen_at=instant(seen_us),
        silent_for=timedelta(microseconds=silent_us),
        clock_offset=None if offset_ms is None else timedelta(milliseconds=offset_ms),
        jobs=json.loads(jobs),
    )
