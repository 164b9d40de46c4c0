"""How a run stands, in one word: what its status, its outcome and its lease say together. Pure."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

from tenure.options import JobSchedulerStatus
from tenure.scheduling.values import Outcome


class RunState(StrEnum):
    """Say how a run stands; the values are fit to be shown."""

    RUNNING = "running"
    """Under a live lease."""
    EXPIRED = "lease expired"
    """Its node has died, or is cut off: another one takes the run up by itself."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """It raised, and is retried from its `retry_at` on."""
    TIMED_OUT = "timed out"
    """It took longer than its job allows; retried as any failure."""
    RELEASED = "released"
    """Its node shut down, or an operator released it; taken up again at once."""
    RETRIED = "retried"
    """An operator asked for another attempt; taken up at once."""
    EXHAUSTED = "exhausted"
    """It has used up its attempts: nobody takes it up by itself."""
    SKIPPED = "skipped"
    """It was missed, or an operator gave it up."""
    TOO_LATE = "too late"
    OVERLAPPED = "overlapped"
    PAUSED = "paused"
    QUEUED = "queued"
    """It waits for another run of its job to end."""
    TRIGGERED = "triggered"
    """Somebody asked for it by hand; it waits for a node."""

    @property
    def is_over(self) -> bool:
        """Say whether nobody does anything about the run by itself any more."""
        return self in _OVER

    @property
    def waits(self) -> bool:
        """Say whether the run waits to be taken up by some node."""
        return not self.is_over and self is not RunState.RUNNING

    @property
    def never_ran(self) -> bool:
        """Say whether the tick was decided without a run."""
        return self in _NEVER_RAN

    @property
    def is_failure(self) -> bool:
        """Say whether an attempt ended badly: what is counted as failures in a row."""
        return self in _FAILURES


_NEVER_RAN: Final = frozenset({RunState.SKIPPED, RunState.TOO_LATE, RunState.OVERLAPPED, RunState.PAUSED})
_OVER: Final = _NEVER_RAN | {RunState.SUCCEEDED, RunState.EXHAUSTED}
_FAILURES: Final = frozenset({RunState.FAILED, RunState.TIMED_OUT, RunState.EXHAUSTED, RunState.EXPIRED})
_BY_OUTCOME: Final = {outcome.value: RunState(outcome.value) for outcome in Outcome}


def state_of(status: JobSchedulerStatus, outcome: str | None, lease_left: timedelta | None) -> RunState:
    """Give a run's state; a running lease of unknown length (`None`: a NestJS node's) counts as live."""
    if status is JobSchedulerStatus.RUNNING:
        expired = lease_left is not None and lease_left < timedelta(0)
        return RunState.EXPIRED if expired else RunState.RUNNING
    plain = RunState.SUCCEEDED if status is JobSchedulerStatus.SUCCESS else RunState.FAILED
    return _BY_OUTCOME.get(outcome or "", plain)
