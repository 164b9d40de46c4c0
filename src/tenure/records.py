"""What the table says of a run, for people and programs that look on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tenure.options import JobSchedulerStatus, JobSchedulerType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_INSTANT = datetime.min.replace(tzinfo=UTC)
_LAST_INSTANT = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Show one run as it stood when it was read. It holds no owner token: looking on gives no power over a run."""

    id: UUID
    idempotency_key: str
    code: str
    run_key: str | None
    """`None` for an `INITIAL` run, and for a run that only NestJS nodes have seen."""
    name: str | None
    type: JobSchedulerType
    status: JobSchedulerStatus
    attempt: int
    fencing_token: int
    holder: str | None
    """The label of the node that holds the run, or held it last."""
    lease_ms: int | None
    """The holder's lease length; `None` if a NestJS node holds it."""
    data: dict[str, Any] | None
    """What the last attempt that ended left; while a later attempt runs, still that."""
    created_at: datetime
    started_at: datetime | None
    """When the last lease began."""
    modified_at: datetime
    """When the row was last renewed or settled."""
    finished_at: datetime | None
    lease_left: timedelta | None
    """What was left of a running lease when the row was read; negative if it had expired, `None` if none runs."""


def read_run(row: tuple[Any, ...]) -> RunRecord:
    """Read a row of `${run_columns}`."""
    run_id, key, code, run_key, name, kind, status, attempt, fencing_token, owner, lease_ms, data, *times = row
    created_us, started_us, modified_us, finished_us, age_us = times
    running = status == JobSchedulerStatus.RUNNING
    return RunRecord(
        id=UUID(run_id),
        idempotency_key=key,
        code=code,
        run_key=run_key,
        name=name,
        type=JobSchedulerType(kind),
        status=JobSchedulerStatus(status),
        attempt=attempt,
        fencing_token=fencing_token,
        holder=owner,
        lease_ms=lease_ms,
        data=json.loads(data) if data is not None else None,
        created_at=instant(created_us),
        started_at=instant_or_none(started_us),
        modified_at=instant(modified_us),
        finished_at=instant_or_none(finished_us),
        lease_left=_left(lease_ms, age_us) if running else None,
    )


def instant(microseconds: int) -> datetime:
    """Give an aware UTC instant; one beyond the calendar becomes its first or its last."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST_INSTANT if microseconds > 0 else _FIRST_INSTANT


def instant_or_none(microseconds: int | None) -> datetime | None:
    """Give an aware UTC instant, if there is one."""
    return None if microseconds is None else instant(microseconds)


def _left(lease_ms: int | None, age_us: int) -> timedelta | None:
    if lease_ms is None:
        return None
    try:
        return timedelta(milliseconds=lease_ms) - timedelta(microseconds=age_us)
    except OverflowError:
        return timedelta.max if age_us < 0 else timedelta.min
