"""What the table says of a run, for people and programs that look on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tenure.attempts import JobAttempt, PreviousAttempt
from tenure.identity import storable_text
from tenure.options import JobSchedulerStatus, JobSchedulerType

LIST_LIMIT: Final = 10_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_INSTANT = datetime.min.replace(tzinfo=UTC)
_LAST_INSTANT = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Say which runs are wanted: those for which everything holds that is given, at most `limit`.

    A run whose status says it all has the outcome `succeeded` or `failed`. Raises `ValueError` for what no run can be.
    """

    code: str | None = None
    status: JobSchedulerStatus | None = None
    outcome: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= LIST_LIMIT:
            raise ValueError(f"limit must be 1 to {LIST_LIMIT:,}, not {self.limit}.")
        for name in ("code", "outcome"):
            if (value := getattr(self, name)) is not None:
                storable_text(name, value)
        if self.status is not None:
            object.__setattr__(self, "status", JobSchedulerStatus(self.status))


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
    checkpoint: dict[str, Any] | None = None
    """How far the run came, as whichever attempt said last; it stays when the run is done, and goes with its row."""
    checkpointed_at: datetime | None = None
    scheduled_at: datetime | None = None
    """The tick that the run stands for; `None` if no scheduler has had to do with it."""
    outcome: str | None = None
    """How it ended in detail, or what it waits for; `None` if the status says it all."""
    retry_at: datetime | None = None
    """When a failed run may be taken up again by itself; `None` for at once."""

    @property
    def progress(self) -> tuple[int, int] | None:
        """Give how much is done, and of how much, if the checkpoint says so: `{"done": 3, "of": 10}`, or more."""
        done, of = (self.checkpoint or {}).get("done"), (self.checkpoint or {}).get("of")
        if type(done) is not int or type(of) is not int or done < 0 or of < 1:
            return None
        return done, of


def read_run(row: tuple[Any, ...]) -> RunRecord:
    """Read a row of `${run_columns}`."""
    run_id, key, code, run_key, name, kind, status, attempt, fencing_token, owner, lease_ms, data, *times = row
    created_us, started_us, modified_us, finished_us, age_us, *further, checkpoint, saved_us = times
    scheduled_us, outcome, retry_us = further
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
        data=_object(data),
        created_at=instant(created_us),
        started_at=instant_or_none(started_us),
        modified_at=instant(modified_us),
        finished_at=instant_or_none(finished_us),
        lease_left=lease_left(lease_ms, age_us) if running else None,
        checkpoint=_object(checkpoint),
        checkpointed_at=instant_or_none(saved_us),
        scheduled_at=instant_or_none(scheduled_us),
        outcome=outcome,
        retry_at=instant_or_none(retry_us),
    )


def read_attempt(row: tuple[Any, ...]) -> JobAttempt:
    """Read a row of `${attempt_columns}`."""
    attempt, status, fencing_token, owner, lease_ms, started_us, ended_us, data = row
    return JobAttempt(
        attempt=attempt,
        status=JobSchedulerStatus(status),
        holder=owner,
        fencing_token=fencing_token,
        lease_ms=lease_ms,
        started_at=instant_or_none(started_us),
        ended_at=instant_or_none(ended_us),
        data=_object(data),
    )


def read_previous(text: str | None) -> PreviousAttempt | None:
    """Read what `${previous_function}` gives; `None` for a first attempt."""
    if text is None:
        return None
    found = json.loads(text)
    instants = [instant_or_none(found.pop(name)) for name in ("started_us", "ended_us", "saved_us")]
    status = JobSchedulerStatus(found.pop("status"))
    started, ended, saved = instants
    return PreviousAttempt(**found, status=status, started_at=started, ended_at=ended, checkpointed_at=saved)


def instant(microseconds: int) -> datetime:
    """Give an aware UTC instant; one beyond the calendar becomes its first or its last."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST_INSTANT if microseconds > 0 else _FIRST_INSTANT


def instant_or_none(microseconds: int | None) -> datetime | None:
    """Give an aware UTC instant, if there is one."""
    return None if microseconds is None else instant(microseconds)


def _object(text: str | None) -> dict[str, Any] | None:
    return None if text is None else json.loads(text)


def lease_left(lease_ms: int | None, age_us: int) -> timedelta | None:
    """Give what is left of a lease that was renewed so long ago; `None` if its length is not known."""
    if lease_ms is None:
        return None
    try:
        return timedelta(milliseconds=lease_ms) - timedelta(microseconds=age_us)
    except OverflowError:
        return timedelta.max if age_us < 0 else timedelta.min
