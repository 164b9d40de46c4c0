"""Either outbox behind one face, with a plain `publish`, so that a scenario is told once for both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol

from tenure.outbox import AsyncOutbox, DeadOutboxMessage, Outbox, OutboxMessage
from tests.support.rows import execute

OUTBOX = '"public"."job-scheduler_outbox"'
Publish = Callable[[OutboxMessage], object]


class Box(Protocol):
    """Either outbox, called from a coroutine."""

    async def enqueue(self, key: str, type: str = "mail", payload: Any = None, **keywords: Any) -> bool: ...
    async def relay(self, publish: Publish, **keywords: Any) -> int: ...
    async def run(self, publish: Publish, until: asyncio.Event, **keywords: Any) -> None: ...
    async def dead(self) -> list[DeadOutboxMessage]: ...
    async def call(self, name: str, *values: Any) -> Any: ...
    async def close(self) -> None: ...


class BlockingBox:
    def __init__(self, database: Any, **keywords: Any) -> None:
        self.box = Outbox(database, **keywords)

    async def enqueue(self, key: str, type: str = "mail", payload: Any = None, **keywords: Any) -> bool:
        return await asyncio.to_thread(self.box.enqueue_once, key, type, payload or {}, **keywords)

    async def relay(self, publish: Publish, **keywords: Any) -> int:
        return await asyncio.to_thread(self.box.relay, publish, **keywords)

    async def run(self, publish: Publish, until: asyncio.Event, **keywords: Any) -> None:
        stop = threading.Event()
        running = asyncio.create_task(asyncio.to_thread(self.box.run, publish, stop=stop, **keywords))
        waiting = asyncio.create_task(until.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        waiting.cancel()
        await running

    async def dead(self) -> list[DeadOutboxMessage]:
        return await asyncio.to_thread(self.box.dead)

    async def call(self, name: str, *values: Any) -> Any:
        return await asyncio.to_thread(getattr(self.box, name), *values)

    async def close(self) -> None:
        await asyncio.to_thread(self.box.close)


class LoopBox:
    def __init__(self, database: Any, **keywords: Any) -> None:
        self.box = AsyncOutbox(database, **keywords)

    async def enqueue(self, key: str, type: str = "mail", payload: Any = None, **keywords: Any) -> bool:
        return await self.box.enqueue_once(key, type, payload or {}, **keywords)

    async def relay(self, publish: Publish, **keywords: Any) -> int:
        return await self.box.relay(_awaited(publish), **keywords)

    async def run(self, publish: Publish, until: asyncio.Event, **keywords: Any) -> None:
        await self.box.run(_awaited(publish), stop=until, **keywords)

    async def dead(self) -> list[DeadOutboxMessage]:
        return await self.box.dead()

    async def call(self, name: str, *values: Any) -> Any:
        return await getattr(self.box, name)(*values)

    async def close(self) -> None:
        await self.box.close()


MakeBox = Callable[[Any], Box]


def _awaited(publish: Publish) -> Callable[[OutboxMessage], Any]:
    async def published(message: OutboxMessage) -> None:
        publish(message)
        await asyncio.sleep(0)

    return published


def rows(url: str) -> list[tuple[Any, ...]]:
    """Give key, attempt, whether it is done and whether it is dead, in the order of the ids."""
    return execute(
        url,
        f'SELECT "idempotencyKey", "attempt", "doneAt" IS NOT NULL, "deadAt" IS NOT NULL FROM {OUTBOX} ORDER BY "id"',
    )


def make_due(url: str) -> None:
    """End every pause, as if it had passed."""
    execute(url, f'UPDATE {OUTBOX} SET "dueAt" = clock_timestamp()')


def end_claims(url: str) -> None:
    """End every claim, as if its time had passed."""
    execute(url, f'UPDATE {OUTBOX} SET "claimedUntil" = clock_timestamp() WHERE "claimedUntil" IS NOT NULL')
