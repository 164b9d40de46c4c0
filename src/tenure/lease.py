"""Leases, and the answers of `acquire` and `run_exclusive`.

A `JobLease` is what settles a run: its id and the owner token of this acquisition. What this process knows about a
lease while it holds it (until when it may be trusted, whether it was lost, whether it was settled) is its `Hold`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias, TypeVar, overload
from uuid import UUID

from tenure.attempts import PreviousAttempt
from tenure.errors import LostJobLeaseError
from tenure.options import JobSchedulerStatus
from tenure.trust import TrustWindow

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")


class LostReason(StrEnum):
    """Say why a lease was lost (C5.5)."""

    TAKEN_OVER = "taken over"
    """Another node holds the run, or held it since."""
    UNREACHABLE = "unreachable"
    """No renewal succeeded before the local deadline: the server, or the row, could not be reached."""
    EXPIRED = "expired"
    """Renewal was off and the local deadline passed."""
    RELEASED = "released"
    """An operator has released the run, or somebody else recorded it as failed under our token."""
    ROW_GONE = "row gone"
    """The row was deleted; another node may run it again."""


_NOT_HEARD = (None, LostReason.UNREACHABLE, LostReason.EXPIRED)


class NotAcquiredReason(StrEnum):
    """Say why a run was not acquired (C4.4)."""

    RUNNING = "running"
    """Another node holds a live lease."""
    SUCCEEDED = "succeeded"
    """The run is done, for ever."""
    CONTENDED = "contended"
    """It was free, but another node was just taking it, or a transaction holds its row."""
    REMOVED = "removed"
    """Its tick was decided before, and the row was removed, or the job was not known then (C10.7)."""


class Hold:
    """Keep what this process knows about a lease it holds.

    Fields are written one at a time and never back: a lease that was lost stays lost (its reason may become more
    exact), one that was settled stays settled, so that any thread may look without a lock.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "checkpoint",
        "guard",
        "guest",
        "heartbeat_s",
        "lost_reason",
        "on_change",
        "settled",
        "settling",
        "window",
    )

    def __init__(self, window: TrustWindow, heartbeat_s: float, clock: Callable[[], float]) -> None:
        self.window = window
        self.heartbeat_s = heartbeat_s
        self.lost_reason: LostReason | None = None
        self.settling = False
        self.settled: JobSchedulerStatus | None = None
        self.guest: JobSchedulerStatus | None = None
        """What a caller's transaction, whose end is not known yet, has recorded (C5.7)."""
        self.guard: Callable[[Any], Any] | None = None
        self.checkpoint: Callable[..., Any] | None = None
        self.on_change: Callable[[], None] | None = None
        self._clock = clock

    def look(self) -> LostReason | None:
        """Say whether and why the lease is lost, by what is known now; no thread has to run for it."""
        if not (self.lost_reason or self.settled or self._awaits_guest()) and self.window.is_over(self._clock()):
            self.lost_reason = LostReason.UNREACHABLE if self.heartbeat_s else LostReason.EXPIRED
        return self.lost_reason

    def renewed(self, sent_boot_s: float) -> None:
        """Take note of a renewal that succeeded; one that came after the deadline does not bring the lease back."""
        if self.look() is None:
            self.guest = None  # the row could be renewed: that transaction was rolled back
            self.window = self.window.renewed(sent_boot_s)

    def rejected(self, reason: LostReason) -> None:
        """Take note that the row is not ours any more, which is better to know than that it was out of reach."""
        if self.lost_reason in _NOT_HEARD and self.settled is None and not self.settling:
            self.lost_reason = reason
            if self.on_change:
                self.on_change()

    def was_settled(self, status: JobSchedulerStatus) -> None:
        """Take note that the run is settled under our token."""
        self.settled = status

    def _awaits_guest(self) -> bool:
        """Say whether the end of a caller's transaction will be heard of: by renewal alone (C5.7)."""
        return self.guest is not None and self.heartbeat_s > 0

    def remaining_s(self) -> float:
        """Give the seconds until the local deadline; none while a caller's transaction holds the row."""
        if self._awaits_guest():
            return math.inf
        return self.window.remaining_s(self._clock())


class JobLease:
    """Name one hold on one run: enough to renew and to settle it, from any process.

    Build it by hand from an id and an owner token that were kept elsewhere. The token is the key to the run: it is in
    no `repr`, and belongs in no log.
    """

    __slots__ = ("_hold", "_id", "_owner_token")

    def __init__(self, id: UUID | str, owner_token: UUID | str) -> None:
        self._id = id if isinstance(id, UUID) else UUID(id)
        self._owner_token = owner_token if isinstance(owner_token, UUID) else UUID(owner_token)
        self._hold: Hold | None = None

    @property
    def hold(self) -> Hold | None:
        """Give what this process knows about the lease; `None` for one made by hand. For tenure itself."""
        return self._hold

    @property
    def id(self) -> UUID:
        """Give the id of the run's row."""
        return self._id

    @property
    def owner_token(self) -> UUID:
        """Give the secret of this acquisition."""
        return self._owner_token

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JobLease):
            return NotImplemented
        return (self.id, self.owner_token) == (other.id, other.owner_token)

    def __hash__(self) -> int:
        return hash((self.id, self.owner_token))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={str(self.id)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return JobLease, (self.id, self.owner_token)


class _WonLease(JobLease):
    """Share what a win tells, between `JobAcquired` and `JobExecutionLease`."""

    __slots__ = ("_attempt", "_fencing_token", "_idempotency_key", "_previous")

    def held(self, hold: Hold | None) -> Self:
        """Attach what this process knows about the lease."""
        self._hold = hold
        return self

    def __init__(
        self,
        id: UUID,
        owner_token: UUID,
        idempotency_key: str,
        fencing_token: int,
        attempt: int,
        *,
        previous: PreviousAttempt | None = None,
    ) -> None:
        super().__init__(id, owner_token)
        self._idempotency_key = idempotency_key
        self._fencing_token = fencing_token
        self._attempt = attempt
        self._previous = previous

    @property
    def idempotency_key(self) -> str:
        """Give the lock key: the same for every attempt at this run, on every node."""
        return self._idempotency_key

    @property
    def fencing_token(self) -> int:
        """Give a number that only grows: a store that refuses smaller ones refuses former owners."""
        return self._fencing_token

    @property
    def attempt(self) -> int:
        """Give 1 for the first lease of the run, 2 for the second, and so on."""
        return self._attempt

    @property
    def previous(self) -> PreviousAttempt | None:
        """Give how the attempt before this one ended, and how far it came; `None` for the first (C7.6).

        As it was when this lease was won: a checkpoint of this attempt does not show here.
        """
        return self._previous

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(id={str(self.id)!r}, idempotency_key={self.idempotency_key!r}, "
            f"fencing_token={self.fencing_token}, attempt={self.attempt})"
        )


class JobAcquired(_WonLease):
    """Say that this caller holds the run now; it is a `JobLease`, to be renewed and settled by hand (C4.3)."""

    __slots__ = ()

    acquired: Literal[True] = True


class JobExecutionLease(_WonLease):
    """Give a callback its lease: who it is for the outside world, and whether it may still go on."""

    __slots__ = ()

    @classmethod
    def of(cls, won: JobAcquired) -> Self:
        """Give the lease that a callback sees for a run that was won."""
        known = (won.id, won.owner_token, won.idempotency_key, won.fencing_token, won.attempt)
        return cls(*known, previous=won.previous).held(won.hold)

    @property
    def lost(self) -> LostReason | None:
        """Say why the lease is lost, or `None` while it may be trusted (C5.5). Reads a clock, asks nobody."""
        return self._hold.look() if self._hold else None

    def check(self) -> None:
        """Go on, or raise: call it before each step that must not happen twice.

        Raises `LostJobLeaseError` once the lease is lost (C5.6); asks no database.
        """
        if reason := self.lost:
            raise LostJobLeaseError(reason)

    @overload
    def guard(self, connection: psycopg.Connection[Any]) -> None: ...
    @overload
    def guard(self, connection: psycopg.AsyncConnection[Any]) -> Awaitable[None]: ...
    @overload
    def guard(self, connection: Any) -> Any: ...
    def guard(self, connection: Any) -> Any:
        """Keep the run ours until the caller's transaction ends, expired or not (C7.3).

        `connection` is one of psycopg, asyncpg, SQLAlchemy (a session, too) or Django, with a transaction open; await
        the call if it is an async one. Our own renewals are not blocked. Nothing is committed, rolled back or set.

        Raises `LostJobLeaseError` if the run is not ours any more, `JobServiceStateError` outside a transaction, where
        it would guard nothing, and otherwise whatever the connection's own driver raises.
        """
        assert self._hold is not None
        assert self._hold.guard is not None, "a callback's lease can guard"
        return self._hold.guard(connection)

    def checkpoint(self, data: Mapping[str, Any], *, connection: Any = None) -> Any:
        """Say how far the work has come: a JSON object that the next attempt finds in `lease.previous` (C7.6).

        It replaces the last one. With `connection=` it becomes part of that connection's open transaction, to commit or
        roll back with the caller's rows, and guards the run until that ends. Under `AsyncJobSchedulerService`, `await`
        it, whatever the connection is; annotate the callback's lease as `AsyncJobExecutionLease` to have that checked.

        Raises `LostJobLeaseError` if the run is not ours any more, `InvalidJobDataError` before any SQL for data that
        cannot be stored, `JobServiceStateError` if `connection` has no transaction open, and `JobDatabaseError` if it
        could not be saved in 5 s; sending it again is harmless. With `connection=`, the driver's own errors.
        """
        assert self._hold is not None
        assert self._hold.checkpoint is not None, "a callback's lease can save checkpoints"
        return self._hold.checkpoint(data, connection=connection)


class AsyncJobExecutionLease(JobExecutionLease):
    """Give a coroutine function its lease: a `JobExecutionLease` whose checkpoints are awaited."""

    __slots__ = ()

    def checkpoint(self, data: Mapping[str, Any], *, connection: Any = None) -> Coroutine[Any, Any, None]:
        """Say how far the work has come; as `JobExecutionLease.checkpoint`, to be awaited (C7.6)."""
        saving: Coroutine[Any, Any, None] = super().checkpoint(data, connection=connection)
        return saving


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNotAcquired:
    """Say that this caller must not run, and why (C4.4). In a dead heat the details are `None`."""

    acquired: Literal[False] = False
    reason: NotAcquiredReason
    holder: str | None = None
    attempt: int | None = None
    since: datetime | None = None
    """When the lease that holds the run began."""
    expires_at: datetime | None = None
    """When that lease ends unless it is renewed; `None` if the run is done."""
    finished_at: datetime | None = None
    """When the run was done; `None` if it is not."""


JobAcquireResult: TypeAlias = JobAcquired | JobNotAcquired


@dataclass(frozen=True, slots=True)
class RunExclusiveResult(Generic[T]):
    """Say whether the callback ran here, and what it returned."""

    acquired: bool
    result: T | None = None
    not_acquired: JobNotAcquired | None = None
    """Why it did not run here; `None` if it did."""
