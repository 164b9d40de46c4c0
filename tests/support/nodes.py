"""Either service behind one face, so that a scenario is told once for both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from tenure import (
    AsyncJobSchedulerService,
    JobAcquired,
    JobAcquireOptions,
    JobExecutionLease,
    JobLease,
    JobSchedulerService,
    RunExclusiveResult,
)


class Node(Protocol):
    """Either service, with plain callbacks, called from a coroutine."""

    async def acquire(self, wanted: JobAcquireOptions) -> JobAcquired: ...
    async def settle(self, how: str, lease: JobLease, data: Any = None) -> bool: ...
    async def run(
        self, wanted: JobAcquireOptions, callback: Callable[[JobExecutionLease], Any]
    ) -> RunExclusiveResult[Any]: ...
    async def close(self) -> None: ...


class BlockingNode:
    def __init__(self, database: Any) -> None:
        self.service = JobSchedulerService(database, owner_label="node-a")

    async def acquire(self, wanted: JobAcquireOptions) -> JobAcquired:
        won = await asyncio.to_thread(self.service.acquire, wanted)
        assert won.acquired
        return won

    async def settle(self, how: str, lease: JobLease, data: Any = None) -> bool:
        done = await asyncio.to_thread(getattr(self.service, how), lease, data)
        assert isinstance(done, bool)
        return done

    async def run(
        self, wanted: JobAcquireOptions, callback: Callable[[JobExecutionLease], Any]
    ) -> RunExclusiveResult[Any]:
        def work() -> RunExclusiveResult[Any] | BaseException:
            try:
                return self.service.run_exclusive(wanted, callback)
            except BaseException as error:
                return error

        ended = await asyncio.to_thread(work)
        if isinstance(ended, BaseException):
            raise ended
        return ended

    async def close(self) -> None:
        await asyncio.to_thread(self.service.close)


class AsyncNode:
    def __init__(self, database: Any) -> None:
        self.service = AsyncJobSchedulerService(database, owner_label="node-a")

    async def acquire(self, wanted: JobAcquireOptions) -> JobAcquired:
        won = await self.service.acquire(wanted)
        assert won.acquired
        return won

    async def settle(self, how: str, lease: JobLease, data: Any = None) -> bool:
        done = await getattr(self.service, how)(lease, data)
        assert isinstance(done, bool)
        return done

    async def run(
        self, wanted: JobAcquireOptions, callback: Callable[[JobExecutionLease], Any]
    ) -> RunExclusiveResult[Any]:
        async def awaited(lease: JobExecutionLease) -> Any:
            return callback(lease)

        return await self.service.run_exclusive(wanted, awaited)

    async def close(self) -> None:
        await self.service.close()


MakeNode = Callable[[Any], Node]
