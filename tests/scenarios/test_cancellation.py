"""Cancelling a run, at any await, with a loss or without, hides nothing and leaves nothing over (C5.6, C6.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from tenure import (
    AsyncJobSchedulerService,
    JobAcquireOptions,
    JobExecutionLease,
    JobSchedulerService,
    LostJobLeaseError,
    LostReason,
)
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, execute, row_of
from tests.support.waiting import eventually_async

OPTIONS = JobAcquireOptions(code="job", run_key="r", lease_ms=10_000, heartbeat_ms=200)
EXPIRING = JobAcquireOptions(code="job", run_key="r", lease_ms=500, heartbeat_ms=0)


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, "lease_ms": 60_000, **given})


@pytest.fixture
def proxy(database_url: str) -> Iterator[FaultProxy]:
    with FaultProxy.in_front_of(database_url) as running:
        yield running


@pytest.fixture
async def far_async_service(proxy: FaultProxy, database_url: str) -> AsyncIterator[AsyncJobSchedulerService]:
    """An async service behind the proxy, whose pool has a connection."""
    async with AsyncJobSchedulerService(proxy.url(database_url)) as made:
        await made.list_runs()
        yield made


def status_of(url: str, key: str) -> str | None:
    rows = execute(url, f'SELECT status::text FROM {TABLE} WHERE "lockKey" = %s', key)
    return str(rows[0][0]) if rows else None


class TestCancelling:
    async def test_it_waits_for_the_callback_to_unwind(
        self, async_service: AsyncJobSchedulerService, database_url: str
    ) -> None:
        """C6.6: a finally block with awaits runs to its end before FAIL is recorded and CancelledError comes out."""
        seen: list[str] = []
        started = asyncio.Event()

        async def callback(lease: JobExecutionLease) -> None:
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                for _ in range(3):
                    await asyncio.sleep(0.05)
                seen.append(row_of(database_url, lease.id)["status"])

        task = asyncio.create_task(async_service.run_exclusive(options(), callback))
        await started.wait()
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert seen == ["RUNNING"]
        row = row_of(database_url, options().lock_key)
        assert row["status"] == "FAIL"
        assert row["data"]["error"].startswith("CancelledError")

    async def test_a_cancellation_while_success_is_recorded_comes_out(
        self, far_async_service: AsyncJobSchedulerService, proxy: FaultProxy, database_url: str
    ) -> None:
        """C6.4, C6.6: the callback had succeeded, so the row says SUCCESS; the caller is cancelled all the same."""

        async def callback() -> None:
            proxy.latency(0.2)

        task = asyncio.create_task(far_async_service.run_exclusive(options(), callback))
        await eventually_async(lambda: proxy.latency_s > 0)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert status_of(database_url, options().lock_key) == "SUCCESS"

    async def test_at_every_await(self, database_url: str) -> None:
        """C6.6 (psycopg#543, asyncpg#537): cancelled after any number of turns of the loop, nothing is left over.

        No row stays RUNNING, and every connection of the pool is idle again.
        """
        pool: AsyncConnectionPool[psycopg.AsyncConnection[TupleRow]]
        async with AsyncConnectionPool(database_url, min_size=2, max_size=2, open=False) as pool:
            await pool.wait()
            async with AsyncJobSchedulerService(pool) as node:
                cancelled = ended = turns = 0
                while ended < 5 and turns < 4_000:
                    turns += 1 + turns // 20
                    task = asyncio.create_task(node.run_exclusive(options(str(turns)), _three_awaits))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    task.cancel()
                    try:
                        await task
                        ended += 1
                    except asyncio.CancelledError:
                        cancelled += 1
                assert cancelled >= 30
                left = f"SELECT count(*) FROM {TABLE} WHERE status = 'RUNNING'"
                await eventually_async(lambda: execute(database_url, left) == [(0,)])
            stats = pool.get_stats()
            assert (stats["pool_size"], stats["pool_available"], stats.get("requests_waiting", 0)) == (2, 2, 0)
            async with pool.connection() as one, pool.connection() as two:
                for connection in (one, two):
                    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        statuses = dict(execute(database_url, f"SELECT status::text, count(*) FROM {TABLE} GROUP BY 1"))
        assert statuses["FAIL"] >= 10
        assert statuses["SUCCESS"] >= 5


async def _three_awaits() -> None:
    try:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
    finally:
        await asyncio.sleep(0)


class TestOuterCancellation:
    """C5.6, C6.6: a loss cancels as `asyncio.timeout` does, and hides nobody else's cancellation."""

    async def test_a_cancellation_together_with_a_loss_comes_out(
        self, async_service: AsyncJobSchedulerService, rival: JobSchedulerService
    ) -> None:
        """CancelledError is not turned into LostJobLeaseError, and stays counted."""
        task = asyncio.current_task()
        assert task is not None

        async def callback(lease: JobExecutionLease) -> None:
            assert rival.release(lease)
            assert not await async_service.heartbeat(lease)
            task.cancel()
            await asyncio.sleep(5)

        with pytest.raises(asyncio.CancelledError):
            await async_service.run_exclusive(OPTIONS, callback)
        assert task.cancelling() == 1
        assert task.uncancel() == 0

    async def test_a_timeout_together_with_a_loss_is_a_timeout(
        self, async_service: AsyncJobSchedulerService, rival: JobSchedulerService
    ) -> None:
        """An `asyncio.timeout` around it that fires in the same turn of the loop raises TimeoutError."""
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        async def callback(lease: JobExecutionLease) -> None:
            assert rival.release(lease)
            assert not await async_service.heartbeat(lease)
            limit.reschedule(loop.time())
            await asyncio.sleep(5)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                await async_service.run_exclusive(OPTIONS, callback)
        assert task.cancelling() == 0

    async def test_a_cancellation_while_the_loss_is_recorded_comes_out(
        self, async_service: AsyncJobSchedulerService, database_url: str
    ) -> None:
        """The lease was lost, the callback has unwound, FAIL is being tried on a locked row; then the caller is
        cancelled: CancelledError, or the caller's `TaskGroup` and shutdown would wait in vain."""
        unwound = asyncio.Event()

        async def callback(lease: JobExecutionLease) -> None:
            await asyncio.to_thread(holder.execute, f'SELECT FROM {TABLE} WHERE "id" = %s FOR UPDATE', [lease.id])
            try:
                await asyncio.sleep(5)
            finally:
                unwound.set()

        with psycopg.connect(database_url) as holder:
            task = asyncio.create_task(async_service.run_exclusive(EXPIRING, callback))
            await unwound.wait()
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            holder.rollback()

    async def test_timeouts_still_work_after_a_loss(self, async_service: AsyncJobSchedulerService) -> None:
        """In the same task: a loss within an `asyncio.timeout`, a timeout that fires, then a run that is stopped."""
        task = asyncio.current_task()
        assert task is not None

        async def endless() -> None:
            await asyncio.sleep(60)

        with pytest.raises(LostJobLeaseError):
            async with asyncio.timeout(30):
                await async_service.run_exclusive(EXPIRING, endless)
        assert task.cancelling() == 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.sleep(5)
        again = JobAcquireOptions(code="job", run_key="again")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await async_service.run_exclusive(again, endless)
        assert task.cancelling() == 0

    async def test_one_run_within_another(
        self, async_service: AsyncJobSchedulerService, rival: JobSchedulerService
    ) -> None:
        """The outer lease is lost while the inner one is not: the inner run is cancelled and failed, the outer one
        reports its loss."""
        task = asyncio.current_task()
        assert task is not None
        inner_options = JobAcquireOptions(code="job", run_key="inner")

        async def inner() -> None:
            await asyncio.sleep(60)

        async def outer() -> None:
            await async_service.run_exclusive(inner_options, inner)

        with pytest.raises(LostJobLeaseError) as caught:
            await async_service.run_exclusive(EXPIRING, outer)
        assert caught.value.reason is LostReason.EXPIRED
        assert task.cancelling() == 0
        assert rival.acquire(inner_options).acquired
