"""What a job's callback is given: which tick it runs for, and its lease."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tenure.attempts import PreviousAttempt
from tenure.errors import JobTimeoutError, LostJobLeaseError
from tenure.lease import JobExecutionLease, LostReason

MANUAL: Final = "manual:"
"""How the run keys of runs begin that somebody asked for by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Say what a run is for."""

    code: str
    run_key: str | None
    scheduled_at: datetime | None
    """The tick; `None` for an INITIAL job."""
    is_catch_up: bool = False

    @property
    def is_manual(self) -> bool:
        """Say whether somebody asked for the run by hand."""
        return bool(self.run_key and self.run_key.startswith(MANUAL))


class JobRun:
    """Give a callback its run: which tick it is for, which attempt, and its lease.

    `AsyncJobRun` is the same for a coroutine function.
    """

    def __init__(
        self,
        occasion: Occasion,
        lease: JobExecutionLease,
        complete: Callable[..., Any],
        clock: Callable[[], float],
        timeout_s: float | None,
    ) -> None:
        self._occasion = occasion
        self._lease = lease
        self._complete = complete
        self._clock = clock
        self._timeout_s = timeout_s
        self._until_s = None if timeout_s is None else clock() + timeout_s
        self.stopping = False
        """Whether the node shuts down: end soon, or the run is released when the time of grace is over (C10.8)."""
        self._released = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.code!r} at {self.scheduled_at}, attempt {self.attempt}>"

    @property
    def code(self) -> str:
        """Give the job's code."""
        return self._occasion.code

    @property
    def scheduled_at(self) -> datetime | None:
        """Give the tick, in UTC; when it was asked for, of a run by hand; `None` for an INITIAL job."""
        return self._occasion.scheduled_at

    @property
    def is_catch_up(self) -> bool:
        """Say whether the tick was missed at its time: a minute late, or not the newest one."""
        return self._occasion.is_catch_up

    @property
    def is_manual(self) -> bool:
        """Say whether somebody asked for this run by hand."""
        return self._occasion.is_manual

    @property
    def attempt(self) -> int:
        """Give 1 for the first attempt at this tick, 2 for the second, and so on."""
        return self._lease.attempt

    @property
    def idempotency_key(self) -> str:
        """Give the key that every attempt at this tick shares, on every node: for who drops repeats."""
        return self._lease.idempotency_key

    @property
    def fencing_token(self) -> int:
        """Give a number that only grows: a store that refuses smaller ones refuses former owners."""
        return self._lease.fencing_token

    @property
    def previous(self) -> PreviousAttempt | None:
        """Say how the attempt before this one ended, and its checkpoint; `None` for the first (C7.6)."""
        return self._lease.previous

    @property
    def lost(self) -> LostReason | None:
        """Say why the lease is lost, or `None` while it may be trusted (C5.5)."""
        return LostReason.RELEASED if self._released else self._lease.lost

    def check(self) -> None:
        """Go on, or raise: call it before each step that must not happen twice.

        Raises `LostJobLeaseError` once the lease is lost, and `JobTimeoutError` once the job's time is up.
        """
        if reason := self.lost:
            raise LostJobLeaseError(reason)
        if self._until_s is not None and self._timeout_s is not None and self._clock() >= self._until_s:
            raise JobTimeoutError(self._timeout_s)

    def note_released(self) -> None:
        """Take note that the run was given back for another node to retry, while the callback goes on."""
        self._released = True

    def guard(self, connection: Any) -> Any:
        """Keep the run ours until the caller's open transaction ends (C7.3); as `lease.guard`.

        Raises `LostJobLeaseError` if it is not ours any more. Over an async connection, `await` what it gives.
        """
        lease: Any = self._lease  # its overloads tell kinds of connections apart, which nobody knows here
        return lease.guard(connection)

    def checkpoint(self, data: Mapping[str, Any], *, connection: Any = None) -> Any:
        """Store how far the callback came, a JSON object, for the next attempt at this tick (C7.6).

        As `lease.checkpoint`: with `connection`, together with the rows of the caller's open transaction. Raises
        `LostJobLeaseError` if the run is not ours any more, and `InvalidJobDataError` before any SQL.
        """
        return self._lease.checkpoint(data, connection=connection)

    def complete(self, connection: Any, data: Mapping[str, Any] | None = None) -> Any:
        """Record SUCCESS in the caller's open transaction, together with its rows (C7.2); give `True`.

        The effect of a tick that is written so happens once, whatever dies. What the callback returns afterwards is not
        kept, `data` is. Raises `LostJobLeaseError` if the run is not ours any more, and `InvalidJobDataError` before
        any SQL.
        """
        return self._complete(self._lease, data, connection=connection)


class AsyncJobRun(JobRun):
    """Give a coroutine function its run: as `JobRun`, but await `checkpoint` and `complete`."""

    def checkpoint(self, data: Mapping[str, Any], *, connection: Any = None) -> Coroutine[Any, Any, None]:
        """Store how far the callback came; as `JobRun.checkpoint` (C7.6)."""
        saved: Coroutine[Any, Any, None] = self._lease.checkpoint(data, connection=connection)
        return saved

    def complete(self, connection: Any, data: Mapping[str, Any] | None = None) -> Awaitable[bool]:
        """Record SUCCESS in the caller's open transaction; as `JobRun.complete` (C7.2)."""
        done: Awaitable[bool] = self._complete(self._lease, data, connection=connection)
        return done
