"""The two outboxes, blocking and async, side by side: their public methods."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Self

from tenure.callbacks import awaited_publish, blocking_publish
from tenure.clock import boot_s
from tenure.errors import JobDatabaseError
from tenure.outbox import calls
from tenure.outbox.base import pace_of, pause_after
from tenure.outbox.messages import (
    DEFAULT_CLAIM,
    DEFAULT_KEEP,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_POLL,
    DEFAULT_RETRY_FIRST,
    DEFAULT_RETRY_MOST,
    DeadOutboxMessage,
    OutboxMessage,
    RelayRules,
    seconds,
)
from tenure.outbox.shells import BlockingShell, LoopShell, rest, rest_async
from tenure.service_base import open_guest, rows_async


class Outbox(BlockingShell):
    """Put messages in the caller's transaction, and hand them on, from blocking code (C7.4).

    `database`, `schema` and `table` are those of a `JobSchedulerService`; the messages are in `<table>_outbox`. Nothing
    is sent before the first call, and no thread is started. Threads may share an outbox; a forked child may use it
    too, unless it was given a pool.

    Every method may raise `JobDatabaseError`, which says whether the database may have changed.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Have `run` come to its end, and close what is ours."""
        self._closed = True
        self._driver.close()

    def enqueue_once(
        self, idempotency_key: str, type: str, payload: Mapping[str, Any], *, connection: Any = None
    ) -> bool:
        """Insert one message for a key: `True` if it is new, `False` if the key is there already, sent or not.

        With `connection=` it becomes part of that connection's open transaction, to commit or roll back with the
        caller's rows. If another transaction has inserted the key and is still open, this waits for its end. A key is
        known until its message is pruned. `payload` is a JSON object of at most 1 MiB, the key 1 to 512 characters, the
        type 1 to 256; anything else raises `InvalidJobDataError` or `InvalidJobIdentityOptionsError` before any SQL.
        """
        call = self._enqueueing(idempotency_key, type, payload)
        if connection is None:
            self._check_open()
            return self._perform(calls.enqueue(call, now_boot_s=boot_s()))
        self._check_process()
        guest = open_guest(connection)
        if guest.is_async:
            raise TypeError("Outbox needs a blocking connection. Use AsyncOutbox.")
        return calls.was_new(guest.rows(call))

    def relay(
        self,
        publish: Callable[[OutboxMessage], object],
        *,
        batch: int = 100,
        claim: timedelta = DEFAULT_CLAIM,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry_first: timedelta = DEFAULT_RETRY_FIRST,
        retry_most: timedelta = DEFAULT_RETRY_MOST,
    ) -> int:
        """Hand at most `batch` unsent messages to `publish`, each at least once, and say how many were sent.

        Of one type, one message at a time, in order. No transaction is open meanwhile. A message whose publish raises
        is tried again, first after `retry_first`, at last every `retry_most`; it holds up its type, and no other, until
        it is sent, or given up after `max_attempts`. A relay that has died, or is with one message for longer than
        `claim`, is succeeded by another. What is no `Exception`, such as `KeyboardInterrupt`, comes out, and the batch
        is given back.
        """
        rules = RelayRules.of(batch, claim, max_attempts, retry_first, retry_most)
        self._check_open()
        return self._relay(blocking_publish(publish), rules, lambda: False).sent

    def run(
        self,
        publish: Callable[[OutboxMessage], object],
        *,
        stop: threading.Event | None = None,
        poll: timedelta = DEFAULT_POLL,
        keep: timedelta | None = DEFAULT_KEEP,
        batch: int = 100,
        claim: timedelta = DEFAULT_CLAIM,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry_first: timedelta = DEFAULT_RETRY_FIRST,
        retry_most: timedelta = DEFAULT_RETRY_MOST,
    ) -> None:
        """Relay until `stop` is set or the outbox is closed; as `relay` otherwise.

        It looks at least once a `poll`, waits while the database is away, and prunes about once a minute what was sent
        before `keep` (never if that is `None`). It stops after the message in hand. Raises what waiting does not mend,
        such as a missing table.
        """
        rules = RelayRules.of(batch, claim, max_attempts, retry_first, retry_most)
        pace, call = pace_of(poll, keep), blocking_publish(publish)
        self._check_open()

        def halted() -> bool:
            return self._closed or (stop is not None and stop.is_set())

        while not halted():
            try:
                pause_s = self._round(call, rules, pace, halted)
            except JobDatabaseError as error:
                if halted():
                    return
                pause_s = pause_after(pace, error)
            rest(pause_s, halted)

    def dead(self, limit: int = 100) -> list[DeadOutboxMessage]:
        """List the messages that were given up, oldest first. Changes nothing."""
        return self._perform(self._listing(limit))

    def retry(self, message_id: int) -> bool:
        """Hand a message that was given up to the relays again, with all of its attempts; `False` if it is not dead.

        Later messages of its type may have been sent meanwhile.
        """
        return self._perform(self._reviving(message_id))

    def discard(self, message_id: int) -> bool:
        """Never send a message that was given up; `False` if it is not dead. Its key is known until it is pruned."""
        return self._perform(self._discarding(message_id))

    def prune(self, keep: timedelta = DEFAULT_KEEP) -> int:
        """Delete what was sent or discarded longer ago than `keep`, and say how much that was.

        A key that was pruned is new again: keep rows for longer than anybody may repeat an `enqueue_once`.
        """
        keep_s, deleted = seconds("keep", keep), 0
        self._check_open()
        while True:
            deleted += (found := self._perform(self._pruning(keep_s)))
            if found < calls.PRUNE_CHUNK:
                return deleted


class AsyncOutbox(LoopShell):
    """Put messages in the caller's transaction, and hand them on, from a loop; as `Outbox` otherwise.

    An outbox belongs to the event loop that uses it first; another one gets a `JobServiceStateError`. A cancelled call
    ends the statement that it had sent before it raises `CancelledError`: no connection is left busy.
    """

    async def __aenter__(self) -> Self:
        self._check_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Have `run` come to its end, and close what is ours."""
        self._closed = True
        await self._driver.close()

    async def enqueue_once(
        self, idempotency_key: str, type: str, payload: Mapping[str, Any], *, connection: Any = None
    ) -> bool:
        """Insert one message for a key, and say whether it is new; as the blocking `enqueue_once`."""
        call = self._enqueueing(idempotency_key, type, payload)
        if connection is None:
            self._check_open()
            return await self._perform(calls.enqueue(call, now_boot_s=boot_s()))
        self._check_process()
        return calls.was_new(await rows_async(open_guest(connection), call))

    async def relay(
        self,
        publish: Callable[[OutboxMessage], Awaitable[object]],
        *,
        batch: int = 100,
        claim: timedelta = DEFAULT_CLAIM,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry_first: timedelta = DEFAULT_RETRY_FIRST,
        retry_most: timedelta = DEFAULT_RETRY_MOST,
    ) -> int:
        """Hand at most `batch` unsent messages to a coroutine function; as the blocking `relay`.

        Cancelling it gives the batch back, then raises `CancelledError`.
        """
        rules = RelayRules.of(batch, claim, max_attempts, retry_first, retry_most)
        self._check_open()
        return (await self._relay(awaited_publish(publish), rules, lambda: False)).sent

    async def run(
        self,
        publish: Callable[[OutboxMessage], Awaitable[object]],
        *,
        stop: asyncio.Event | None = None,
        poll: timedelta = DEFAULT_POLL,
        keep: timedelta | None = DEFAULT_KEEP,
        batch: int = 100,
        claim: timedelta = DEFAULT_CLAIM,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry_first: timedelta = DEFAULT_RETRY_FIRST,
        retry_most: timedelta = DEFAULT_RETRY_MOST,
    ) -> None:
        """Relay until `stop` is set, the outbox is closed or the task is cancelled; as the blocking `run`."""
        rules = RelayRules.of(batch, claim, max_attempts, retry_first, retry_most)
        pace, call = pace_of(poll, keep), awaited_publish(publish)
        self._check_open()

        def halted() -> bool:
            return self._closed or (stop is not None and stop.is_set())

        while not halted():
            try:
                pause_s = await self._round(call, rules, pace, halted)
            except JobDatabaseError as error:
                if halted():
                    return
                pause_s = pause_after(pace, error)
            await rest_async(pause_s, halted)

    async def dead(self, limit: int = 100) -> list[DeadOutboxMessage]:
        """List the messages that were given up, oldest first. Changes nothing."""
        return await self._perform(self._listing(limit))

    async def retry(self, message_id: int) -> bool:
        """Hand a message that was given up to the relays again; as the blocking `retry`."""
        return await self._perform(self._reviving(message_id))

    async def discard(self, message_id: int) -> bool:
        """Never send a message that was given up; as the blocking `discard`."""
        return await self._perform(self._discarding(message_id))

    async def prune(self, keep: timedelta = DEFAULT_KEEP) -> int:
        """Delete what was sent or discarded longer ago than `keep`; as the blocking `prune`."""
        keep_s, deleted = seconds("keep", keep), 0
        self._check_open()
        while True:
            deleted += (found := await self._perform(self._pruning(keep_s)))
            if found < calls.PRUNE_CHUNK:
                return deleted
