"""Each operation of the scheduler as a value: the statement it sends and how its rows are read (C10). No I/O, no clock.

The service brings an attempt to its end: `service.perform(...)`, and `service.win(...)` for a claim or a retake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tenure.operations import Attempt
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
    TickClaim,
    Triggered,
    UnfinishedRuns,
)


def registration(
    statements: SchedulingStatements, node: NodeLife, jobs: Sequence[JobRegistration], *, now_boot_s: float
) -> Attempt[Heard]:
    """Make jobs and their node known; a newer registration of a code replaces an older one in place (C10.7)."""
    raise NotImplementedError


def beat(
    statements: SchedulingStatements,
    node: NodeLife,
    jobs: Mapping[str, str],
    clock_offset: timedelta | None,
    *,
    now_boot_s: float,
) -> Attempt[Heard]:
    """Say that a node lives, and hear how its jobs (code to fingerprint) stand: once a poll."""
    raise NotImplementedError


def claim(
    statements: SchedulingStatements,
    wanted: TickClaim,
    owner_token: UUID,
    owner: str,
    *,
    now_boot_s: float,
    clock: Callable[[], float],
) -> Attempt[Claimed]:
    """Decide a tick, and win its run if it is to run (C10.2, C10.5, C10.7)."""
    raise NotImplementedError


def decision(statements: SchedulingStatements, wanted: Decision, *, now_boot_s: float) -> Attempt[Decided]:
    """Decide many ticks that are not to run, each with a row that says why (C10.5)."""
    raise NotImplementedError


def unfinished(
    statements: SchedulingStatements, lease_ms_by_code: Mapping[str, int], *, now_boot_s: float, limit: int = 200
) -> Attempt[UnfinishedRuns]:
    """Find the runs of these jobs that died, or are due for a retry, or wait to be started (C10.4)."""
    raise NotImplementedError


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
    raise NotImplementedError


def trigger(
    statements: SchedulingStatements,
    code: str,
    run_key: str,
    scheduled_at: datetime | None,
    owner: str,
    owner_token: UUID,
    *,
    now_boot_s: float,
) -> Attempt[Triggered]:
    """Ask for a run by hand: whoever runs the job takes it up."""
    raise NotImplementedError


def pause(
    statements: SchedulingStatements, code: str, by: str, reason: str | None, *, now_boot_s: float
) -> Attempt[bool]:
    """Pause a job; `False` if it is not known."""
    raise NotImplementedError


def resume(statements: SchedulingStatements, code: str, *, now_boot_s: float) -> Attempt[bool]:
    """Resume a job; `False` if it is not known."""
    raise NotImplementedError


def forget_node(statements: SchedulingStatements, node: UUID, *, now_boot_s: float) -> Attempt[bool]:
    """Take a node that ends off the list."""
    raise NotImplementedError


def job_records(statements: SchedulingStatements, alive: timedelta, *, now_boot_s: float) -> Attempt[list[JobRecord]]:
    """List all jobs by code; a node counts as alive if it was heard of within that time."""
    raise NotImplementedError


def node_records(statements: SchedulingStatements, *, now_boot_s: float) -> Attempt[list[NodeRecord]]:
    """List all nodes, those heard of last first."""
    raise NotImplementedError


def prune(
    statements: SchedulingStatements,
    keep: timedelta,
    keep_failed: timedelta,
    *,
    now_boot_s: float,
    after: int = 0,
    limit: int = 1_000,
) -> Attempt[Pruned]:
    """Remove old runs, one batch; a removed tick stays decided (C10.7). Never an unfinished run, never an INITIAL one."""
    raise NotImplementedError
