"""The two services, blocking and async, side by side: thin shells that send what operations decide."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar
from uuid import UUID, uuid4

from tenure import operations, schema
from tenure.callbacks import awaited_call, blocking_call
from tenure.clock import boot_s
from tenure.data import encode_data
from tenure.drivers import AsyncDatabase, AsyncDriver, Driver, SyncDatabase, resolve, resolve_async
from tenure.errors import JobDatabaseError, JobServiceStateError, LostJobLeaseError, OutcomeNotRecordedError
from tenure.interruption import Finished, Looks, LossWatch, to_its_end
from tenure.lease import JobAcquireResult, JobExecutionLease, JobLease, RunExclusiveResult
from tenure.operations import Attempt, Settled
from tenure.options import JobAcquireOptions, JobSchedulerStatus
from tenure.records import JobRun
from tenure.service_base import (
    OTHER_LOOP,
    RELEASED,
    ROLLED_BACK,
    OnLost,
    ServiceBase,
    check_on_lost,
    failure_to_record,
    logger,
    needs_success,
    rows_async,
)

T = TypeVar("T")
R = TypeVar("R")

Status = JobSchedulerStatus
Data = Mapping[str, Any] | None
_SUCCESS, _FAIL = Status.SUCCESS, Status.FAIL


class JobSchedulerService(ServiceBase[Driver, SyncDatabase]):
    """Acquire, renew and settle runs from blocking code.

    `database` is a connection string or URL, a `psycopg_pool.ConnectionPool`, or nothing for libpq's environment. A
    pool that is given is never closed here. Nothing is sent before the first call. Threads may share a service; a
    forked child may use it too, unless it was given a pool.

    Every method may raise `JobDatabaseError`, which says whether the database may have changed.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take no more runs and close what is ours; runs under way are still renewed and settled."""
        self._closed = True
        self._keeper.close()
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

    def acquire(self, options: JobAcquireOptions) -> JobAcquireResult:
        """Try to win a run: one statement, one round trip, win or lose (C4).

        A win must be renewed and settled by hand. On any error the run is not acquired; if the answer was lost and
        nobody can say who won, whatever this call holds is freed as soon as the database answers (C4.6).
        """
        self._check_open()
        owner_token = uuid4()
        attempt = self._acquisition(options, owner_token)
        with self._freeing_if_unsure(owner_token):
            return self._answered(owner_token, attempt, self._perform(attempt))

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

    def run_exclusive(
        self,
        options: JobAcquireOptions,
        callback: Callable[[JobExecutionLease], T] | Callable[[], T],
        *,
        on_lost: OnLost = "cancel",
    ) -> RunExclusiveResult[T]:
        """Run the callback if this node wins the run, renewing its lease meanwhile, and record how it ended.

        The callback takes the lease or nothing. A blocking callback cannot be stopped from outside, whatever `on_lost`
        says: it sees `lease.lost`, and `lease.check()` raises (C5.6). Its own exception comes out as it is, after FAIL
        was recorded (C6.3). Raises `LostJobLeaseError` if the row was taken before SUCCESS could be recorded (C6.5),
        and `OutcomeNotRecordedError` with the result if it could not be recorded by the local deadline (C6.4).
        """
        call = blocking_call(callback)
        check_on_lost(on_lost)
        won = self.acquire(options)
        if won.acquired is False:
            return RunExclusiveResult(False, None, won)
        lease, hold = self._held(won)
        keeper = self._keeper
        try:
            keeper.keep(lease, hold)
            value = call(lease)
        except BaseException as error:
            if keeper is self._keeper:
                keeper.let_go(lease)
                self._record_failure(lease, error)
            raise
        self._check_not_forked_since(keeper)
        keeper.let_go(lease)
        self._record_success(lease, value)
        return RunExclusiveResult(True, value)

    def list_runs(self, *, code: str | None = None, status: Status | None = None, limit: int = 50) -> list[JobRun]:
        """List runs as they stand, those whose lease began last first. Changes nothing."""
        self._check_open()
        return self._perform(self._listing(code, status, limit))

    def find_run(self, run: UUID | str) -> JobRun | None:
        """Find a run by its id or its idempotency key; `None` if there is none. Changes nothing."""
        self._check_open()
        return self._perform(self._lookup(run))

    def _make_driver(self) -> Driver:
        return resolve(self._database, self._table)

    def _perform(self, attempt: Attempt[R]) -> R:
        while True:
            sent_boot_s = boot_s()
            try:
                limit_s = attempt.limit_s(sent_boot_s)
                rows = self._driver.fetch(attempt.call, limit_s=limit_s, fresh=attempt.failures > 0)
                return attempt.concluded(rows, sent_boot_s)
            except JobDatabaseError as error:
                pause_s = attempt.pause_after(error, boot_s(), random.random())
            time.sleep(pause_s)

    def _settle_by_hand(self, lease: JobLease, status: Status, data: Data, connection: Any) -> bool:
        if connection is not None:
            guest, call = self._guest_call(lease, status, data, connection)
            if guest.is_async:
                raise TypeError("JobSchedulerService needs a blocking connection. Use AsyncJobSchedulerService.")
            return self._note_guest(lease, status, guest.rows(call))
        text = encode_data(data)
        self._check_process()
        return self._settle(lease, self._settlement(lease, status, text)).refused is None

    def _settle(self, lease: JobLease, settlement: Attempt[Settled]) -> Settled:
        with self._settling(lease):
            settled = self._perform(settlement)
            self._note_settled(lease, settled)
            return settled

    def _guest_holds(self, lease: JobExecutionLease) -> bool:
        """Say whether a caller's transaction has settled the run, or still may (C7.2)."""
        if lease.hold is None or lease.hold.guest is None:
            return False
        end = self._perform(operations.look_after_guest(self._statements, lease, now_boot_s=boot_s()))
        return self._note_guest_end(lease.hold, end)

    def _settle_or_follow_guest(self, lease: JobExecutionLease, value: Any) -> Settled:
        if lease.hold is None or lease.hold.guest is None:
            return self._settle(lease, self._settlement(lease, _SUCCESS, None))
        if self._guest_holds(lease):
            return Settled(_SUCCESS, None)
        self._settle(lease, self._settlement(lease, _FAIL, encode_data(ROLLED_BACK)))
        raise OutcomeNotRecordedError(value)

    def _record_failure(self, lease: JobExecutionLease, error: BaseException) -> None:
        """Record FAIL if the row is ours; whatever happens here, the callback's own exception comes out (C6.3)."""
        try:
            if (found := failure_to_record(lease, error)) is None or self._guest_holds(lease):
                return
            self._settle(lease, self._settlement(lease, _FAIL, *found))
        except Exception as problem:  # noqa: BLE001 - it must not mask the callback's own exception
            logger.warning("The failure of run %s could not be recorded; its lease will expire: %s", lease.id, problem)

    def _record_success(self, lease: JobExecutionLease, value: Any) -> None:
        if not needs_success(lease):
            return
        try:
            settled = self._settle_or_follow_guest(lease, value)
        except JobDatabaseError as problem:
            raise OutcomeNotRecordedError(value) from problem
        settled.raise_if_refused()


class AsyncJobSchedulerService(ServiceBase[AsyncDriver, AsyncDatabase]):
    """Acquire, renew and settle runs from a loop; as `JobSchedulerService` otherwise.

    `database` is a connection string or URL, a `psycopg_pool.AsyncConnectionPool`, or nothing for libpq's environment.
    A service belongs to the event loop that uses it first; another one gets a `JobServiceStateError`. Renewal runs in
    a thread of its own, so a callback that blocks the loop keeps its run (C5.3).

    A cancelled call ends what it had sent before it raises `CancelledError`: no connection is left busy.
    """

    _looks: Looks | None = None

    async def __aenter__(self) -> Self:
        self._check_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Take no more runs and close what is ours; runs under way are still renewed and settled."""
        self._closed = True
        self._keeper.close()
        await self._driver.close()

    async def migrate(self) -> list[str]:
        """Apply the migrations that are missing and give their names; as the blocking `migrate` (C9.1)."""
        self._check_open()
        return await asyncio.to_thread(schema.apply, await self._driver.administrator(), self._table)

    async def check_schema(self) -> list[str]:
        """Say what is missing or different in the schema; as the blocking `check_schema` (C9.1)."""
        self._check_open()
        return await asyncio.to_thread(schema.check, await self._driver.administrator(), self._table)

    async def acquire(self, options: JobAcquireOptions) -> JobAcquireResult:
        """Try to win a run: one statement, one round trip, win or lose; as the blocking `acquire` (C4).

        Cancelling lets the statement end, then releases what it won (C4.6).
        """
        self._check_open()
        owner_token = uuid4()
        attempt = self._acquisition(options, owner_token)
        finished = await to_its_end(self._perform(attempt))
        if finished.interruption:
            await to_its_end(self._give_back(finished, owner_token))
            raise finished.interruption
        with self._freeing_if_unsure(owner_token):
            return self._answered(owner_token, attempt, finished.result())

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

    async def run_exclusive(
        self,
        options: JobAcquireOptions,
        callback: Callable[[JobExecutionLease], Awaitable[T]] | Callable[[], Awaitable[T]],
        *,
        on_lost: OnLost = "cancel",
    ) -> RunExclusiveResult[T]:
        """Run the coroutine function if this node wins the run; as the blocking `run_exclusive`.

        The callback runs in the caller's own task. When the lease is lost it is cancelled and `LostJobLeaseError` comes
        out; `on_lost="continue"` leaves it alone (C5.6). Cancelling this call waits for the callback to unwind, records
        FAIL, then raises `CancelledError` (C6.6).
        """
        call = awaited_call(callback)
        check_on_lost(on_lost)
        won = await self.acquire(options)
        if won.acquired is False:
            return RunExclusiveResult(False, None, won)
        lease, hold = self._held(won)
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
                interruption = await self._record_failure(lease, error)
            if watch.cancelled_it and hold.lost_reason:
                raise interruption or LostJobLeaseError(hold.lost_reason) from error
            raise
        self._check_not_forked_since(keeper)
        keeper.let_go(lease)
        await self._record_success(lease, value)
        return RunExclusiveResult(True, value)

    async def list_runs(
        self, *, code: str | None = None, status: Status | None = None, limit: int = 50
    ) -> list[JobRun]:
        """List runs as they stand, those whose lease began last first. Changes nothing."""
        self._check_open()
        return await self._uncut(self._listing(code, status, limit))

    async def find_run(self, run: UUID | str) -> JobRun | None:
        """Find a run by its id or its idempotency key; `None` if there is none. Changes nothing."""
        self._check_open()
        return await self._uncut(self._lookup(run))

    def _make_driver(self) -> AsyncDriver:
        return resolve_async(self._database, self._table)

    def _start_afresh(self) -> None:
        self._looks = None
        super()._start_afresh()

    def _check_process(self) -> None:
        super()._check_process()
        self._check_loop()

    def _check_loop(self) -> Looks:
        loop = asyncio.get_running_loop()
        if self._looks is None:
            self._looks = Looks(loop)
        elif self._looks.loop is not loop:
            raise JobServiceStateError(OTHER_LOOP)
        return self._looks

    async def _perform(self, attempt: Attempt[R]) -> R:
        while True:
            sent_boot_s = boot_s()
            try:
                limit_s = attempt.limit_s(sent_boot_s)
                rows = await self._driver.fetch(attempt.call, limit_s=limit_s, fresh=attempt.failures > 0)
                return attempt.concluded(rows, sent_boot_s)
            except JobDatabaseError as error:
                pause_s = attempt.pause_after(error, boot_s(), random.random())
            await asyncio.sleep(pause_s)

    async def _uncut(self, attempt: Attempt[R]) -> R:
        return (await to_its_end(self._perform(attempt))).result_unless_interrupted()

    async def _give_back(self, finished: Finished[JobAcquireResult], owner_token: UUID) -> None:
        """Release what a cancelled acquire won; leave it to the keeper if that cannot be known or done."""
        try:
            won = finished.result()
            if won.acquired is True:
                await self._settle(won, self._settlement(won, _FAIL, encode_data(RELEASED)))
        except BaseException:  # noqa: BLE001 - the caller's cancellation comes out, nothing else
            self._keeper.disown(owner_token)

    async def _settle_by_hand(self, lease: JobLease, status: Status, data: Data, connection: Any) -> bool:
        if connection is not None:
            guest, call = self._guest_call(lease, status, data, connection)
            return self._note_guest(lease, status, await rows_async(guest, call))
        text = encode_data(data)
        self._check_process()
        finished = await to_its_end(self._settle(lease, self._settlement(lease, status, text)))
        return finished.result_unless_interrupted().refused is None

    async def _settle(self, lease: JobLease, settlement: Attempt[Settled]) -> Settled:
        with self._settling(lease):
            settled = await self._perform(settlement)
            self._note_settled(lease, settled)
            return settled

    async def _guest_holds(self, lease: JobExecutionLease) -> bool:
        """Say whether a caller's transaction has settled the run, or still may (C7.2)."""
        if lease.hold is None or lease.hold.guest is None:
            return False
        end = await self._perform(operations.look_after_guest(self._statements, lease, now_boot_s=boot_s()))
        return self._note_guest_end(lease.hold, end)

    async def _settle_or_follow_guest(self, lease: JobExecutionLease, value: Any) -> Settled:
        if lease.hold is None or lease.hold.guest is None:
            return await self._settle(lease, self._settlement(lease, _SUCCESS, None))
        if await self._guest_holds(lease):
            return Settled(_SUCCESS, None)
        await self._settle(lease, self._settlement(lease, _FAIL, encode_data(ROLLED_BACK)))
        raise OutcomeNotRecordedError(value)

    async def _record_failure(self, lease: JobExecutionLease, error: BaseException) -> BaseException | None:
        """Record FAIL if the row is ours, and give the cancellation that came meanwhile.

        Whatever happens here, the callback's own exception comes out (C6.3).
        """
        finished: Finished[Settled] | None = None
        try:
            if (found := failure_to_record(lease, error)) is None or await self._guest_holds(lease):
                return None
            finished = await to_its_end(self._settle(lease, self._settlement(lease, _FAIL, *found)))
            finished.result()
        except BaseException as problem:  # noqa: BLE001 - it must not mask the callback's own exception
            logger.warning("The failure of run %s could not be recorded; its lease will expire: %s", lease.id, problem)
        return finished.interruption if finished else None

    async def _record_success(self, lease: JobExecutionLease, value: Any) -> None:
        if not needs_success(lease):
            return
        finished = await to_its_end(self._settle_or_follow_guest(lease, value))
        try:
            settled = finished.result()
        except JobDatabaseError as problem:
            raise OutcomeNotRecordedError(value) from problem
        settled.raise_if_refused()
        if finished.interruption:
            raise finished.interruption
