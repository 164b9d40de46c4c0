"""The two services, blocking and async, side by side: thin shells that send what operations decide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Self, TypeVar
from uuid import UUID

from tenure import schema
from tenure.attempts import JobAttempt
from tenure.callbacks import awaited_call, blocking_call
from tenure.clock import boot_s
from tenure.drivers import Administrator
from tenure.lease import (
    AsyncJobExecutionLease,
    JobAcquireResult,
    JobExecutionLease,
    JobLease,
    NotAcquiredReason,
    RunExclusiveResult,
)
from tenure.lookout import news, news_async, seconds_of
from tenure.options import JobAcquireOptions
from tenure.records import RunRecord
from tenure.runners import BlockingRunner, LoopRunner
from tenure.service_base import RELEASED, OnLost, check_on_lost
from tenure.shells import Data, Status
from tenure.statements import Table

T = TypeVar("T")

_SUCCESS, _FAIL = Status.SUCCESS, Status.FAIL
_OVER = (NotAcquiredReason.SUCCEEDED, NotAcquiredReason.REMOVED)


class JobSchedulerService(BlockingRunner):
    """Acquire, renew and settle runs from blocking code.

    `database` is a connection string or URL, a `psycopg_pool.ConnectionPool`, a SQLAlchemy `Engine` over psycopg, a
    Django connection (`django.db.connection`, `connections["alias"]`), or nothing for libpq's environment. A pool or
    engine that is given is never closed here; of Django, the settings are used, not its connection. Nothing is sent
    before the first call. Threads may share a service; a forked child may use it too, unless it was given a pool or an
    engine. `heartbeat_database`, of any of these kinds, is where renewal connects instead.

    Every method may raise `JobDatabaseError`, which says whether the database may have changed.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take no more runs and close what is ours; runs under way are still renewed and settled."""
        self._close_threads()
        self._driver.close()

    def migrate(self) -> list[str]:
        """Apply the migrations that are missing, in one transaction, and give their names (C9.1).

        Applying twice is harmless, and so are two nodes at once. Needs a role that may create.
        """
        self._check_open()
        return schema.apply(self._driver.administrator(), self._table)

    def check_schema(self) -> list[str]:
        """Say in sentences what is missing or different in the schema; an empty list means that all is well (C9.1)."""
        self._check_open()
        return schema.check(self._driver.administrator(), self._table)

    def examine(self, look: Callable[[Administrator, Table], T]) -> T:
        """Have a function look at the database over connections of its own, and give what it gives.

        For packages that look at more than the schema; `look` is given what opens a psycopg connection, as this
        service's are opened, and the table of runs.
        """
        self._check_open()
        return look(self._driver.administrator(), self._table)

    def acquire(self, options: JobAcquireOptions) -> JobAcquireResult:
        """Try to win a run: one statement, one round trip, win or lose (C4).

        A win must be renewed and settled by hand. On any error the run is not acquired; if the answer was lost and
        nobody can say who won, whatever this call holds is freed as soon as the database answers (C4.6).
        """
        return self.win(partial(self._acquisition, options))

    def heartbeat(self, lease: JobLease) -> bool:
        """Renew a lease by hand; `False` means that it is not ours any more (C5.1)."""
        self._check_process()
        sent_boot_s = boot_s()
        refused = self._perform(self._renewal(lease, sent_boot_s))
        return self._note_renewal(lease, refused, sent_boot_s)

    def complete(self, lease: JobLease, data: Data = None, *, connection: Any = None) -> bool:
        """Record SUCCESS, for ever; `True` once, `False` when ownership is gone (C6.1).

        `data` is a JSON object of at most 1 MiB; anything else raises `InvalidJobDataError` before any SQL. With
        `connection=` it becomes part of that connection's open transaction, to commit or roll back with the caller's
        rows, and `LostJobLeaseError` is raised instead of saying `False` (C7.2).
        """
        return self._settle_by_hand(lease, _SUCCESS, data, connection)

    def fail(self, lease: JobLease, data: Data = None, *, connection: Any = None) -> bool:
        """Record FAIL, which frees the run for another attempt; as `complete` otherwise (C6.1)."""
        return self._settle_by_hand(lease, _FAIL, data, connection)

    def release(self, lease: JobLease, data: Data = RELEASED, *, connection: Any = None) -> bool:
        """Give the run back for another attempt: `fail` under a kinder name (C6.1)."""
        return self.fail(lease, data, connection=connection)

    def checkpoint(self, lease: JobLease, data: Mapping[str, Any], *, connection: Any = None) -> None:
        """Say how far the work has come: a JSON object that the next attempt finds in `previous` (C7.6).

        As `JobExecutionLease.checkpoint`, for a lease held by hand.
        """
        self._save(lease, data, connection)

    def run_exclusive(
        self,
        options: JobAcquireOptions,
        callback: Callable[[JobExecutionLease], T] | Callable[[], T],
        *,
        on_lost: OnLost = "cancel",
        wait: timedelta | None = None,
    ) -> RunExclusiveResult[T]:
        """Run the callback if this node wins the run, renewing its lease meanwhile, and record how it ended.

        The callback takes the lease or nothing. A blocking callback cannot be stopped from outside, whatever `on_lost`
        says: it sees `lease.lost`, and `lease.check()` raises (C5.6). Its own exception comes out as it is, after FAIL
        was recorded (C6.3). Raises `LostJobLeaseError` if the row was taken before SUCCESS could be recorded (C6.5),
        and `OutcomeNotRecordedError` with the result if it could not be recorded by the local deadline (C6.4).

        With `wait`, a run that another node holds is waited for, and taken over if that node fails or dies; raises
        `WaitTimeoutError`, naming the holder, when the time is up (C8.1).
        """
        blocking_call(callback)
        check_on_lost(on_lost)
        won = self.acquire(options) if wait is None else self._acquire_in_time(options, wait)
        if won.acquired is False:
            return RunExclusiveResult(False, None, won)
        return RunExclusiveResult(True, self.run_acquired(won, callback, on_lost=on_lost))

    def wait(self, options: JobAcquireOptions, timeout: timedelta) -> dict[str, Any] | None:
        """Wait until the run succeeded, here or elsewhere, and give the data that it left (C8.1).

        All waiters of a service share one query a round. Raises `WaitTimeoutError`, naming the holder, and at once
        `JobDatabaseError` for what somebody must mend (C9.4); a database that is away is waited out. Changes nothing.
        """
        self._check_open()
        asked_s = seconds_of(timeout)
        return news(self._lookout, options, until_free=False, left_s=asked_s, asked_s=asked_s).data

    def list_runs(
        self, *, code: str | None = None, status: Status | None = None, outcome: str | None = None, limit: int = 50
    ) -> list[RunRecord]:
        """List runs as they stand, those whose lease began last first. Changes nothing.

        Each filter that is given must hold. `outcome` is one of `tenure.scheduling.Outcome`; a run whose status says it
        all counts as `succeeded` or `failed`.
        """
        self._check_open()
        return self._perform(self._listing(code, status, outcome, limit))

    def find_run(self, run: UUID | str) -> RunRecord | None:
        """Find a run by its id or its idempotency key; `None` if there is none. Changes nothing."""
        self._check_open()
        return self._perform(self._lookup(run))

    def list_attempts(self, run: UUID | str) -> list[JobAttempt]:
        """List a run's former attempts, the first one first, by the run's id or its idempotency key. Changes nothing.

        The attempt that is under way, or was the last, is the run itself: see `find_run`.
        """
        self._check_open()
        return self._perform(self._attempts(run))

    def _acquire_in_time(self, options: JobAcquireOptions, wait: timedelta) -> JobAcquireResult:
        """Acquire a run, waiting while another node holds it; a run that is done ends the wait."""
        asked_s = seconds_of(wait)
        until_boot_s = boot_s() + asked_s
        while True:
            result = self.acquire(options)
            if result.acquired is True or result.reason in _OVER:
                return result
            left_s = until_boot_s - boot_s()
            news(self._lookout, options, until_free=True, left_s=left_s, asked_s=asked_s)


class AsyncJobSchedulerService(LoopRunner):
    """Acquire, renew and settle runs from a loop; as `JobSchedulerService` otherwise.

    `database` is a connection string or URL, a `psycopg_pool.AsyncConnectionPool`, an `asyncpg.Pool`, a SQLAlchemy
    `AsyncEngine` over psycopg or asyncpg, a Django connection, or nothing for libpq's environment. A service belongs to
    the event loop that uses it first; another one gets a `JobServiceStateError`. Renewal runs in a thread of its own,
    so a callback that blocks the loop keeps its run; an asyncpg pool alone gives a thread no connection, so renewal
    runs on the loop there, unless `heartbeat_database` says where else to connect (C5.3).

    A cancelled call ends what it had sent before it raises `CancelledError`: no connection is left busy.
    """

    async def __aenter__(self) -> Self:
        self._check_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Take no more runs and close what is ours; runs under way are still renewed and settled."""
        self._close_threads()
        await self._driver.close()

    async def migrate(self) -> list[str]:
        """Apply the migrations that are missing and give their names; as the blocking `migrate` (C9.1)."""
        import asyncio

        self._check_open()
        return await asyncio.to_thread(schema.apply, await self._administrator(), self._table)

    async def check_schema(self) -> list[str]:
        """Say what is missing or different in the schema; as the blocking `check_schema` (C9.1)."""
        import asyncio

        self._check_open()
        return await asyncio.to_thread(schema.check, await self._administrator(), self._table)

    async def examine(self, look: Callable[[Administrator, Table], T]) -> T:
        """Have a function look at the database, in a thread; as the blocking `examine`."""
        import asyncio

        self._check_open()
        return await asyncio.to_thread(look, await self._administrator(), self._table)

    async def acquire(self, options: JobAcquireOptions) -> JobAcquireResult:
        """Try to win a run: one statement, one round trip, win or lose; as the blocking `acquire` (C4).

        Cancelling lets the statement end, then releases what it won (C4.6).
        """
        return await self.win(partial(self._acquisition, options))

    async def heartbeat(self, lease: JobLease) -> bool:
        """Renew a lease by hand; `False` means that it is not ours any more (C5.1)."""
        self._check_process()
        sent_boot_s = boot_s()
        refused = await self._uncut(self._renewal(lease, sent_boot_s))
        return self._note_renewal(lease, refused, sent_boot_s)

    async def complete(self, lease: JobLease, data: Data = None, *, connection: Any = None) -> bool:
        """Record SUCCESS, for ever; as the blocking `complete` (C6.1)."""
        return await self._settle_by_hand(lease, _SUCCESS, data, connection)

    async def fail(self, lease: JobLease, data: Data = None, *, connection: Any = None) -> bool:
        """Record FAIL, which frees the run for another attempt; as the blocking `fail` (C6.1)."""
        return await self._settle_by_hand(lease, _FAIL, data, connection)

    async def release(self, lease: JobLease, data: Data = RELEASED, *, connection: Any = None) -> bool:
        """Give the run back for another attempt: `fail` under a kinder name (C6.1)."""
        return await self.fail(lease, data, connection=connection)

    async def checkpoint(self, lease: JobLease, data: Mapping[str, Any], *, connection: Any = None) -> None:
        """Say how far the work has come; as the blocking `checkpoint` (C7.6)."""
        await self._save(lease, data, connection)

    async def run_exclusive(
        self,
        options: JobAcquireOptions,
        callback: Callable[[AsyncJobExecutionLease], Awaitable[T]] | Callable[[], Awaitable[T]],
        *,
        on_lost: OnLost = "cancel",
        wait: timedelta | None = None,
    ) -> RunExclusiveResult[T]:
        """Run the coroutine function if this node wins the run; as the blocking `run_exclusive`.

        The callback runs in the caller's own task. When the lease is lost it is cancelled and `LostJobLeaseError` comes
        out; `on_lost="continue"` leaves it alone (C5.6). Cancelling this call waits for the callback to unwind, records
        FAIL, then raises `CancelledError` (C6.6).
        """
        awaited_call(callback)
        check_on_lost(on_lost)
        won = await (self.acquire(options) if wait is None else self._acquire_in_time(options, wait))
        if won.acquired is False:
            return RunExclusiveResult(False, None, won)
        return RunExclusiveResult(True, await self.run_acquired(won, callback, on_lost=on_lost))

    async def wait(self, options: JobAcquireOptions, timeout: timedelta) -> dict[str, Any] | None:  # noqa: ASYNC109 - as the blocking one
        """Wait until the run succeeded, and give its data; as the blocking `wait` (C8.1)."""
        self._check_open()
        asked_s = seconds_of(timeout)
        return (await news_async(self._lookout, options, until_free=False, left_s=asked_s, asked_s=asked_s)).data

    async def list_runs(
        self, *, code: str | None = None, status: Status | None = None, outcome: str | None = None, limit: int = 50
    ) -> list[RunRecord]:
        """List runs as they stand, those whose lease began last first; as the blocking `list_runs`. Changes nothing."""
        self._check_open()
        return await self._uncut(self._listing(code, status, outcome, limit))

    async def find_run(self, run: UUID | str) -> RunRecord | None:
        """Find a run by its id or its idempotency key; `None` if there is none. Changes nothing."""
        self._check_open()
        return await self._uncut(self._lookup(run))

    async def list_attempts(self, run: UUID | str) -> list[JobAttempt]:
        """List a run's former attempts, the first one first; as the blocking `list_attempts`. Changes nothing."""
        self._check_open()
        return await self._uncut(self._attempts(run))

    async def _acquire_in_time(self, options: JobAcquireOptions, wait: timedelta) -> JobAcquireResult:
        """Acquire a run, waiting while another node holds it; a run that is done ends the wait."""
        asked_s = seconds_of(wait)
        until_boot_s = boot_s() + asked_s
        while True:
            result = await self.acquire(options)
            if result.acquired is True or result.reason in _OVER:
                return result
            left_s = until_boot_s - boot_s()
            await news_async(self._lookout, options, until_free=True, left_s=left_s, asked_s=asked_s)
