"""Winning a run and running it, blocking and on a loop, side by side: what `acquire` and `run_exclusive` stand on.

What comes with statements of its own, such as the scheduler, stands on the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID, uuid4

from tenure.callbacks import awaited_call, blocking_call
from tenure.endings import EndingOf
from tenure.errors import LostJobLeaseError
from tenure.interruption import LossWatch, to_its_end
from tenure.lease import AsyncJobExecutionLease, JobAcquired, JobExecutionLease
from tenure.operations import Answer, Attempt
from tenure.service_base import OnLost, check_on_lost
from tenure.shells import BlockingShell, LoopShell

A = TypeVar("A", bound=Answer)
R = TypeVar("R")
T = TypeVar("T")


class BlockingRunner(BlockingShell):
    """Win and run, blocking."""

    def perform(self, attempt: Attempt[R]) -> R:
        """Bring an operation to its end: for packages that come with statements of their own on the same tables.

        Raises `JobDatabaseError`, which says whether the database may have changed.
        """
        self._check_open()
        return self._perform(attempt)

    def win(self, attempt_for: Callable[[UUID, str], Attempt[A]]) -> A:
        """Bring to its end an operation that may win a run: `attempt_for` makes it for a new owner token and our label.

        As `acquire`: on any error nothing is won, and what an answer that was lost may have won is freed (C4.6).
        """
        self._check_open()
        owner_token = uuid4()
        attempt = attempt_for(owner_token, self.owner_label)
        with self._freeing_if_unsure(owner_token):
            return self._answered(owner_token, attempt, self._perform(attempt))

    def run_acquired(
        self,
        won: JobAcquired,
        callback: Callable[[JobExecutionLease], T] | Callable[[], T],
        *,
        on_lost: OnLost = "cancel",
        ending: EndingOf | None = None,
    ) -> T:
        """Run the callback under a lease that this service has won, renewing it, and record how it ended.

        What `run_exclusive` does once it has won, errors included. `ending` says what to record beside the status; an
        ending that cannot be told or stored costs the detail, never the outcome.
        """
        call = blocking_call(callback)
        check_on_lost(on_lost)
        lease, hold = self._held(won, JobExecutionLease, self._save)
        keeper = self._keeper
        try:
            keeper.keep(lease, hold)
            value = call(lease)
        except BaseException as error:
            if keeper is self._keeper:
                keeper.let_go(lease)
                self._record_failure(lease, error, ending)
            raise
        self._check_not_forked_since(keeper)
        keeper.let_go(lease)
        self._record_success(lease, value, ending)
        return value


class LoopRunner(LoopShell):
    """Win and run, on a loop."""

    async def perform(self, attempt: Attempt[R]) -> R:
        """Bring an operation to its end; as the blocking `perform`. Cancelling lets end what was sent."""
        self._check_open()
        return await self._uncut(attempt)

    async def win(self, attempt_for: Callable[[UUID, str], Attempt[A]]) -> A:
        """Bring to its end an operation that may win a run; as the blocking `win`.

        Cancelling lets it end, then releases what it won (C4.6).
        """
        self._check_open()
        owner_token = uuid4()
        attempt = attempt_for(owner_token, self.owner_label)
        finished = await to_its_end(self._perform(attempt))
        if finished.interruption:
            await to_its_end(self._give_back(finished, owner_token))
            raise finished.interruption
        with self._freeing_if_unsure(owner_token):
            return self._answered(owner_token, attempt, finished.result())

    async def run_acquired(
        self,
        won: JobAcquired,
        callback: Callable[[AsyncJobExecutionLease], Awaitable[T]] | Callable[[], Awaitable[T]],
        *,
        on_lost: OnLost = "cancel",
        ending: EndingOf | None = None,
    ) -> T:
        """Run the coroutine function under a lease that this service has won; as the blocking `run_acquired`.

        In the caller's own task; losing the lease and cancelling do what they do in `run_exclusive` (C5.6, C6.6).
        """
        call = awaited_call(callback)
        check_on_lost(on_lost)
        lease, hold = self._held(won, AsyncJobExecutionLease, self._save)
        keeper = self._keeper
        watch = LossWatch(hold, self._check_loop(), cancels=on_lost == "cancel")
        try:
            keeper.keep(lease, hold)
            with watch:
                value = await call(lease)
        except GeneratorExit:
            keeper.let_go(lease)
            keeper.disown(lease.owner_token)
            raise
        except BaseException as error:
            interruption: BaseException | None = None
            if keeper is self._keeper:
                keeper.let_go(lease)
                interruption = await self._record_failure(lease, error, ending)
            if watch.cancelled_it and hold.lost_reason:
                raise interruption or LostJobLeaseError(hold.lost_reason) from error
            raise
        self._check_not_forked_since(keeper)
        keeper.let_go(lease)
        await self._record_success(lease, value, ending)
        return value
