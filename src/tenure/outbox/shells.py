"""How an outbox sends, claims, hands over and rests: blocking and on a loop, side by side."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar
from uuid import UUID, uuid4

from tenure.callbacks import UnawaitedError
from tenure.clock import boot_s, spread
from tenure.drivers import AsyncDatabase, AsyncDriver, Driver, SyncDatabase, resolve, resolve_async
from tenure.errors import JobDatabaseError, JobServiceStateError
from tenure.interruption import to_its_end
from tenure.operations import Attempt
from tenure.outbox.base import (
    REST_SLICE_S,
    OutboxBase,
    note_lost,
    note_recovery,
    outcome_of,
    overdue_outcome,
)
from tenure.outbox.batch import Batch
from tenure.outbox.messages import OutboxMessage, RelayRules
from tenure.outbox.pace import Pace
from tenure.service_base import OTHER_LOOP

R = TypeVar("R")

Halted = Callable[[], bool]


class BlockingShell(OutboxBase[Driver, SyncDatabase]):
    """Send, blocking."""

    def _make_driver(self) -> Driver:
        return resolve(self._database, self._table)

    def _round(self, publish: Callable[[OutboxMessage], None], rules: RelayRules, pace: Pace, halted: Halted) -> float:
        done = self._relay(publish, rules, halted)
        note_recovery(pace)
        if pace.keep_s is not None and pace.prunes(boot_s()):
            pace.pruned(self._perform(self._pruning(pace.keep_s), halted), boot_s(), spread())
        return pace.after_round(done.claimed, spread())

    def _relay(self, publish: Callable[[OutboxMessage], None], rules: RelayRules, halted: Halted) -> Batch:
        token = uuid4()
        try:
            batch = self._perform(self._claim(rules, token), halted)
            while (message := batch.current(boot_s())) is not None:
                outcome = overdue_outcome(message, rules)
                if outcome is None:
                    outcome = outcome_of(_error_of(publish, message), message, rules)
                self._perform(batch.settle(outcome, last=halted(), now_boot_s=boot_s()), halted)
        except JobDatabaseError:
            raise
        except BaseException:
            self._let_go(token)
            raise
        if batch.is_lost:
            note_lost(batch)
            self._let_go(token)
        return batch

    def _let_go(self, token: UUID) -> None:
        """Give back what is claimed; if that cannot be done now, others wait until the claim ends."""
        with suppress(JobDatabaseError):
            self._perform(self._giving_back(token))

    def _perform(self, attempt: Attempt[R], halted: Halted = lambda: False) -> R:
        while True:
            sent_boot_s = boot_s()
            try:
                limit_s = attempt.limit_s(sent_boot_s)
                rows = self._driver.fetch(attempt.call, limit_s=limit_s, fresh=attempt.failures > 0)
                return attempt.concluded(rows, sent_boot_s)
            except JobDatabaseError as error:
                pause_s = attempt.pause_after(error, boot_s(), spread())
                if halted():
                    raise
            rest(pause_s, halted)


class LoopShell(OutboxBase[AsyncDriver, AsyncDatabase]):
    """Send on the running loop, letting nothing cut short what was sent."""

    _loop: asyncio.AbstractEventLoop | None = None

    def _make_driver(self) -> AsyncDriver:
        return resolve_async(self._database, self._table)

    def _start_afresh(self) -> None:
        self._loop = None
        super()._start_afresh()

    def _check_process(self) -> None:
        super()._check_process()
        self._check_loop()

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise JobServiceStateError(OTHER_LOOP)

    async def _round(
        self, publish: Callable[[OutboxMessage], Awaitable[object]], rules: RelayRules, pace: Pace, halted: Halted
    ) -> float:
        done = await self._relay(publish, rules, halted)
        note_recovery(pace)
        if pace.keep_s is not None and pace.prunes(boot_s()):
            pace.pruned(await self._perform(self._pruning(pace.keep_s), halted), boot_s(), spread())
        return pace.after_round(done.claimed, spread())

    async def _relay(
        self, publish: Callable[[OutboxMessage], Awaitable[object]], rules: RelayRules, halted: Halted
    ) -> Batch:
        token = uuid4()
        try:
            batch = await self._perform(self._claim(rules, token), halted)
            while (message := batch.current(boot_s())) is not None:
                outcome = overdue_outcome(message, rules)
                if outcome is None:
                    outcome = outcome_of(await _error_of_async(publish, message), message, rules)
                await self._perform(batch.settle(outcome, last=halted(), now_boot_s=boot_s()), halted)
        except JobDatabaseError:
            raise
        except GeneratorExit:  # the loop is gone: nothing can be awaited any more
            raise
        except BaseException:
            await self._let_go(token)
            raise
        if batch.is_lost:
            note_lost(batch)
            await self._let_go(token)
        return batch

    async def _let_go(self, token: UUID) -> None:
        """Give back what is claimed, whatever cancels the caller meanwhile; else others wait until the claim ends."""
        finished = await to_its_end(self._perform(self._giving_back(token)))
        with suppress(JobDatabaseError):
            finished.result()
        if finished.interruption:
            raise finished.interruption

    async def _perform(self, attempt: Attempt[R], halted: Halted = lambda: False) -> R:
        """Try until it is done; a cancellation lets the statement under way end, and no other one begin."""
        while True:
            sent_boot_s = boot_s()
            limit_s = attempt.limit_s(sent_boot_s)
            fetching = self._driver.fetch(attempt.call, limit_s=limit_s, fresh=attempt.failures > 0)
            finished = await to_its_end(fetching)
            try:
                value = attempt.concluded(finished.result_unless_interrupted(), sent_boot_s)
            except JobDatabaseError as error:
                pause_s = attempt.pause_after(error, boot_s(), spread())
                if halted():
                    raise
            else:
                return value
            await rest_async(pause_s, halted)


def _error_of(publish: Callable[[OutboxMessage], None], message: OutboxMessage) -> Exception | None:
    try:
        publish(message)
    except UnawaitedError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it counts as an attempt, and is recorded
        return error
    return None


async def _error_of_async(
    publish: Callable[[OutboxMessage], Awaitable[object]], message: OutboxMessage
) -> Exception | None:
    try:
        await publish(message)
    except Exception as error:  # noqa: BLE001 - whatever it is, it counts as an attempt, and is recorded
        return error
    return None


def rest(pause_s: float, halted: Halted) -> None:
    """Sleep in slices, so that a signal handler need only set a flag."""
    until_s = time.monotonic() + pause_s
    while (left_s := until_s - time.monotonic()) > 0 and not halted():
        time.sleep(min(left_s, REST_SLICE_S))


async def rest_async(pause_s: float, halted: Halted) -> None:
    """Sleep likewise on the running loop."""
    until_s = time.monotonic() + pause_s
    while (left_s := until_s - time.monotonic()) > 0 and not halted():  # noqa: ASYNC110 - `halted` is no event
        await asyncio.sleep(min(left_s, REST_SLICE_S))
