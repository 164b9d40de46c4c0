"""What is remembered of a run's former attempts, as values (C7.6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenure.options import JobSchedulerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAttempt:
    """Show one attempt at a run as it stood when the next one took the run over. It holds no owner token."""

    attempt: int
    status: JobSchedulerStatus
    """`FAIL` if it said so (`fail`, `release`, an exception); `RUNNING` if it never said anything: see `died`."""
    holder: str | None
    """The label of the node that held the run; `None` for a NestJS node."""
    fencing_token: int | None
    lease_ms: int | None
    started_at: datetime | None
    ended_at: datetime | None
    """When it said that it had failed; when it was last heard of if it died."""
    data: dict[str, Any] | None
    """What it left when it failed, such as `{"error": ...}`; `None` if it died."""

    @property
    def died(self) -> bool:
        """Say whether its lease ran out without a word: killed, frozen, cut off. What it did last is not known."""
        return self.status is JobSchedulerStatus.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousAttempt(JobAttempt):
    """Show the attempt before this one, and how far the run had come.

    `checkpoint` is the last one that any attempt saved. `None` says that none ever did: an effect that is announced by
    a checkpoint first was then never begun. Otherwise it may have happened.
    """

    checkpoint: dict[str, Any] | None
    checkpointed_at: datetime | None
