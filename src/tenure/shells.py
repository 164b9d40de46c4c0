"""How a service sends what operations decide, blocking and on a loop, side by side: try, settle, record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from inspect import isawaitable
from typing import Any, TypeVar
from uuid import UUID

from tenure import operations
from tenure.clock import boot_s, spread
from tenure.data import encode_data
from tenure.drivers import Administrator, AsyncDatabase, AsyncDriver, Driver, SyncDatabase, resolve, resolve_async
from tenure.endings import EndingOf
from tenure.errors import JobDatabaseError, JobServiceStateError, OutcomeNotRecordedError
from tenure.interruption import Finished, Looks, to_its_end
from tenure.lease import JobExecutionLease, JobLease
from tenure.operations import Answer, Attempt, Settled, win_in
from tenure.options import JobSchedulerStatus
from tenure.recording import ending_of, failure_to_record, needs_success
from tenure.service_base import (
    OTHER_LOOP,
    RELEASED,
    ROLLED_BACK,
    ServiceBase,
    logger,
    rows_async,
)

A = TypeVar("A", bound=Answer)
R = TypeVar("R")

Status = JobSchedulerStatus
Data = Mapping[str, Any] | None
_SUCCESS, _FAIL = Status.SUCCESS, Status.FAIL
NEEDS_BLOCKING = "JobSchedulerService needs a blocking connection. Use AsyncJobSchedulerService."


class BlockingShell(ServiceBase[Driver, SyncDatabase]):
    """Send, blocking."""

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
                pause_s = attempt.pause_after(error, boot_s(), spread())
            time.sleep(pause_s)

    def _settle_by_hand(self, lease: JobLease, status: Status, data: Data, connection: Any) -> bool:
        if connection is not None:
            guest, call = self._guest_call(lease, status, data, connection)
            if guest.is_async:
                raise TypeError(NEEDS_BLOCKING)
            return self._note_guest(lease, status, guest.rows(call))
        text = encode_data(data)
        self._check_process()
        return self._settle(lease, self._settlement(lease, status, text)).refused is None

    def _settle(self, lease: JobLease, settlement: Attempt[Settled]) -> Settled:
        with self._settling(lease):
            settled = self._perform(settlement)
            self._note_settled(lease, settled)
            return settled

    def _save(self, lease: JobLease, data: Mapping[str, Any], connection: Any) -> None:
        if connection is None:
            self._note_saved(lease, self._perform(self._saving(lease, data)))
            return
        guest, call = self._guest_saving(lease, data, connection)
        if guest.is_async:
            raise TypeError(NEEDS_BLOCKING)
        self._note_saved(lease, operations.why_refused(guest.rows(call)))

    def _guest_holds(self, lease: JobExecutionLease) -> bool:
        """Say whether a caller's transaction has settled the run, or still may (C7.2)."""
        if lease.hold is None or lease.hold.guest is None:
            return False
        end = self._perform(operations.look_after_guest(self._statements, lease, now_boot_s=boot_s()))
        return self._note_guest_end(lease.hold, end)

    def _settle_or_follow_guest(self, lease: JobExecutionLease, value: Any, ending: EndingOf | None) -> Settled:
        if lease.hold is None or lease.hold.guest is None:
            told, data = ending_of(ending, None, value)
            return self._settle(lease, self._settlement(lease, _SUCCESS, data, ending=told))
        if self._guest_holds(lease):
            return Settled(_SUCCESS, None)
        undone = OutcomeNotRecordedError(value)
        told, data = ending_of(ending, undone, None)
        self._settle(lease, self._settlement(lease, _FAIL, data or encode_data(ROLLED_BACK), ending=told))
        raise undone

    def _record_failure(self, lease: JobExecutionLease, error: BaseException, ending: EndingOf | None) -> None:
        """Record FAIL if the row is ours; whatever happens here, the callback's own exception comes out (C6.3)."""
        try:
            if (found := failure_to_record(lease, error)) is None or self._guest_holds(lease):
                return
            told, data = ending_of(ending, error, None)
            self._settle(lease, self._settlement(lease, _FAIL, data or found[0], found[1], told))
        except Exception as problem:  # noqa: BLE001 - it must not mask the callback's own exception
            logger.warning("The failure of run %s could not be recorded; its lease will expire: %s", lease.id, problem)

    def _record_success(self, lease: JobExecutionLease, value: Any, ending: EndingOf | None) -> None:
        if not needs_success(lease):
            return
        try:
            settled = self._settle_or_follow_guest(lease, value, ending)
        except JobDatabaseError as problem:
            raise OutcomeNotRecordedError(value) from problem
        settled.raise_if_refused()


class LoopShell(ServiceBase[AsyncDriver, AsyncDatabase]):
    """Send on the running loop, letting nothing cut short what was sent."""

    _looks: Looks | None = None

    def _make_driver(self) -> AsyncDriver:
        return resolve_async(self._database, self._table)

    def _start_afresh(self) -> None:
        self._looks = None
        super()._start_afresh()

    def _check_process(self) -> None:
        super()._check_process()
        self._check_loop()

    def _check_loop(self) -> Looks:
        import asyncio

        loop = asyncio.get_running_loop()
        if self._looks is None:
            self._looks = Looks(loop)
        elif self._looks.loop is not loop:
            raise JobServiceStateError(OTHER_LOOP)
        return self._looks

    async def _administrator(self) -> Administrator:
        """Give what opens a connection for schema work, over what has one."""
        if self._heartbeat_driver is None or not self._driver.stays_on_loop:
            return await self._driver.administrator()
        found = self._heartbeat_driver.administrator()
        return await found if isawaitable(found) else found

    async def _perform(self, attempt: Attempt[R]) -> R:
        import asyncio

        while True:
            sent_boot_s = boot_s()
            try:
                limit_s = attempt.limit_s(sent_boot_s)
                rows = await self._driver.fetch(attempt.call, limit_s=limit_s, fresh=attempt.failures > 0)
                return attempt.concluded(rows, sent_boot_s)
            except JobDatabaseError as error:
                pause_s = attempt.pause_after(error, boot_s(), spread())
            await asyncio.sleep(pause_s)

    async def _uncut(self, attempt: Attempt[R]) -> R:
        return (await to_its_end(self._perform(attempt))).result_unless_interrupted()

    async def _give_back(self, finished: Finished[A], owner_token: UUID) -> None:
        """Release what a cancelled acquire won; leave it to the keeper if that cannot be known or done."""
        try:
            if won := win_in(finished.result()):
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

    async def _save(self, lease: JobLease, data: Mapping[str, Any], connection: Any) -> None:
        if connection is None:
            self._note_saved(lease, await self._uncut(self._saving(lease, data)))
            return
        guest, call = self._guest_saving(lease, data, connection)
        self._note_saved(lease, operations.why_refused(await rows_async(guest, call)))

    async def _guest_holds(self, lease: JobExecutionLease) -> bool:
        """Say whether a caller's transaction has settled the run, or still may (C7.2)."""
        if lease.hold is None or lease.hold.guest is None:
            return False
        end = await self._perform(operations.look_after_guest(self._statements, lease, now_boot_s=boot_s()))
        return self._note_guest_end(lease.hold, end)

    async def _settle_or_follow_guest(self, lease: JobExecutionLease, value: Any, ending: EndingOf | None) -> Settled:
        if lease.hold is None or lease.hold.guest is None:
            told, data = ending_of(ending, None, value)
            return await self._settle(lease, self._settlement(lease, _SUCCESS, data, ending=told))
        if await self._guest_holds(lease):
            return Settled(_SUCCESS, None)
        undone = OutcomeNotRecordedError(value)
        told, data = ending_of(ending, undone, None)
        await self._settle(lease, self._settlement(lease, _FAIL, data or encode_data(ROLLED_BACK), ending=told))
        raise undone

    async def _record_failure(
        self, lease: JobExecutionLease, error: BaseException, ending: EndingOf | None
    ) -> BaseException | None:
        """Record FAIL if the row is ours, and give the cancellation that came meanwhile.

        Whatever happens here, the callback's own exception comes out (C6.3).
        """
        finished: Finished[Settled] | None = None
        try:
            if (found := failure_to_record(lease, error)) is None or await self._guest_holds(lease):
                return None
            told, data = ending_of(ending, error, None)
            settlement = self._settlement(lease, _FAIL, data or found[0], found[1], told)
            finished = await to_its_end(self._settle(lease, settlement))
            finished.result()
        except BaseException as problem:  # noqa: BLE001 - it must not mask the callback's own exception
            logger.warning("The failure of run %s could not be recorded; its lease will expire: %s", lease.id, problem)
        return finished.interruption if finished else None

    async def _record_success(self, lease: JobExecutionLease, value: Any, ending: EndingOf | None) -> None:
        if not needs_success(lease):
            return
        finished = await to_its_end(self._settle_or_follow_guest(lease, value, ending))
        try:
            settled = finished.result()
        except JobDatabaseError as problem:
            raise OutcomeNotRecordedError(value) from problem
        settled.raise_if_refused()
        if finished.interruption:
            raise finished.interruption
