"""Who may use a service, and what belongs to the caller and stays so (C4.5, C5.2)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import psycopg_pool
import pytest
from psycopg.rows import DictRow, TupleRow, dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from tenure import (
    AsyncJobSchedulerService,
    JobAcquireOptions,
    JobExecutionLease,
    JobLease,
    JobSchedulerService,
    JobServiceStateError,
)
from tests.support.proxy import FaultProxy
from tests.support.rows import execute, row_of
from tests.support.waiting import eventually

LEASE_MS = 900
LEASE_S = LEASE_MS / 1000


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, "lease_ms": LEASE_MS, **given})


def run_for_two_leases(node: JobSchedulerService, run_key: str) -> bool:
    """Hold a run so long in this process, by the service's own renewal."""

    def callback(lease: JobExecutionLease) -> bool:
        time.sleep(2 * LEASE_S)
        return lease.lost is None

    return node.run_exclusive(options(run_key), callback).result is True


class TestWhoMayUseAService:
    async def test_a_second_event_loop_gets_one_clear_error(
        self, async_service: AsyncJobSchedulerService, database_url: str
    ) -> None:
        """Each method says so; nothing is sent."""
        node = async_service
        assert (await node.acquire(options("first"))).acquired

        async def second(use: Callable[[], Any]) -> None:
            with pytest.raises(JobServiceStateError, match="another event loop"):
                await use()

        async def nothing() -> None:
            pytest.fail("the callback ran")

        lease = JobLease(uuid4(), uuid4())
        uses: list[Callable[[], Any]] = [
            lambda: node.acquire(options("second")),
            lambda: node.run_exclusive(options("second"), nothing),
            lambda: node.heartbeat(lease),
            lambda: node.complete(lease),
            lambda: node.fail(lease),
            lambda: node.release(lease),
            node.list_runs,
            node.check_schema,
            node.migrate,
        ]
        for use in uses:
            await asyncio.to_thread(asyncio.run, second(use))
        assert execute(database_url, 'SELECT count(*) FROM "job-scheduler"') == [(1,)]

    def test_a_closed_service_takes_no_more_runs(self, database_url: str) -> None:
        """C5.2: acquiring is refused with one clear error; what is under way may still be settled."""
        node = JobSchedulerService(database_url)
        won = node.acquire(options(lease_ms=60_000))
        assert won.acquired
        node.close()
        node.close()
        for use in (
            lambda: node.acquire(options("x")),
            lambda: node.run_exclusive(options("x"), lambda: None),
            node.list_runs,
            node.migrate,
        ):
            with pytest.raises(JobServiceStateError, match="closed"):
                use()
        assert node.heartbeat(won) is True
        assert node.complete(won) is True

    async def test_a_closed_async_service_takes_no_more_runs(self, database_url: str) -> None:
        """C5.2: as the blocking one."""
        node = AsyncJobSchedulerService(database_url)
        won = await node.acquire(options(lease_ms=60_000))
        assert won.acquired
        await node.close()
        await node.close()
        with pytest.raises(JobServiceStateError, match="closed"):
            await node.acquire(options("x"))
        assert await node.heartbeat(won) is True
        assert await node.complete(won) is True

    @pytest.fixture
    def made(self, monkeypatch: pytest.MonkeyPatch) -> list[ConnectionPool[Any]]:
        """The pools that are made, in their order."""
        made: list[ConnectionPool[Any]] = []
        original = psycopg_pool.ConnectionPool.__init__

        def spy(pool: ConnectionPool[Any], *given: Any, **named: Any) -> None:
            made.append(pool)
            original(pool, *given, **named)

        monkeypatch.setattr(psycopg_pool.ConnectionPool, "__init__", spy)
        return made

    def test_closed_in_the_middle_of_its_first_use_it_leaves_no_pool(
        self, database_url: str, made: list[ConnectionPool[Any]]
    ) -> None:
        """C11: the call that is under way comes to its end on a connection of its own."""
        with FaultProxy.in_front_of(database_url) as proxy, ThreadPoolExecutor(1) as pool:
            proxy.latency(0.1)
            node = JobSchedulerService(proxy.url(database_url))
            acquiring = pool.submit(node.acquire, options("x"))
            eventually(lambda: proxy.connections == 1)
            node.close()
            won = acquiring.result(20)
            assert won.acquired is True
            assert node.complete(won) is True
        assert [each for each in made if not each.closed] == []

    def test_threads_share_a_service_from_its_first_use(
        self, database_url: str, made: list[ConnectionPool[Any]]
    ) -> None:
        """16 threads that use it at once for the first time get one pool, closed with the service."""
        node, together = JobSchedulerService(database_url), threading.Barrier(16)

        def use(n: int) -> None:
            together.wait()
            node.acquire(options(str(n)))

        threads = [threading.Thread(target=use, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        node.close()
        left = [pool for pool in made if not pool.closed]
        for pool in left:
            pool.close()
        assert (len(made), left) == (1, [])


def _configured(connection: psycopg.Connection[DictRow]) -> None:
    connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    connection.prepare_threshold = 3


async def _configured_async(connection: psycopg.AsyncConnection[DictRow]) -> None:
    await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
    connection.prepare_threshold = 3


class TestWhatIsTheCallers:
    def test_a_pool_and_its_connections_are_left_as_they_were(self, database_url: str) -> None:
        """C4.5 (ShedLock#3683): not closed by us; autocommit, row factory and isolation level as its owner set them."""
        with ConnectionPool[psycopg.Connection[DictRow]](
            database_url, min_size=1, max_size=1, kwargs={"row_factory": dict_row}, configure=_configured, open=True
        ) as pool:
            with JobSchedulerService(pool) as node:
                won = node.acquire(options())
                assert won.acquired
                assert not node.acquire(options()).acquired
                assert node.heartbeat(won)
                assert node.complete(won)
                assert run_for_two_leases(node, "two")
                with pytest.raises(ValueError, match="mine"):
                    node.run_exclusive(options("three"), _raise)
            assert not pool.closed
            with pool.connection() as connection:
                assert connection.autocommit is False
                assert connection.row_factory is dict_row
                assert connection.isolation_level is psycopg.IsolationLevel.SERIALIZABLE
                assert connection.prepare_threshold == 3
                assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
                shown = connection.execute("SHOW transaction_isolation").fetchone()
                assert shown == {"transaction_isolation": "serializable"}
            stats = pool.get_stats()
            assert (stats["pool_size"], stats["pool_available"]) == (1, 1)
            assert stats.get("returns_bad", 0) == 0

    async def test_an_async_pool_and_its_connections_are_left_as_they_were(self, database_url: str) -> None:
        """C4.5: as the blocking one."""
        async with AsyncConnectionPool[psycopg.AsyncConnection[DictRow]](
            database_url,
            min_size=1,
            max_size=1,
            kwargs={"row_factory": dict_row},
            configure=_configured_async,
            open=False,
        ) as pool:
            async with AsyncJobSchedulerService(pool) as node:
                won = await node.acquire(options())
                assert won.acquired
                assert not (await node.acquire(options())).acquired
                assert await node.heartbeat(won)
                assert await node.complete(won)
            assert not pool.closed
            async with pool.connection() as connection:
                assert connection.autocommit is False
                assert connection.row_factory is dict_row
                assert connection.isolation_level is psycopg.IsolationLevel.SERIALIZABLE
                assert connection.prepare_threshold == 3
                assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            assert pool.get_stats().get("returns_bad", 0) == 0

    def test_a_pool_that_its_owner_closed_costs_no_run(self, database_url: str) -> None:
        """C5.2 (db-scheduler#365): a pool closed in mid-run; renewal goes on, and SUCCESS is recorded."""
        pool = ConnectionPool[psycopg.Connection[TupleRow]](database_url, min_size=1, max_size=2, open=True)
        with JobSchedulerService(pool) as node:

            def callback(lease: JobExecutionLease) -> bool:
                pool.close()
                time.sleep(2 * LEASE_S)
                return lease.lost is None

            assert node.run_exclusive(options(), callback).result is True
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"

    def test_an_open_transaction_of_the_callers_is_not_joined(
        self, service: JobSchedulerService, database_url: str
    ) -> None:
        """C4.5 (ShedLock#3683, #3577): what runs beside it commits by itself; the caller's may roll back."""
        execute(database_url, "CREATE TABLE orders (n int)")
        with psycopg.connect(database_url) as caller:
            caller.execute("INSERT INTO orders VALUES (1)")
            assert service.run_exclusive(options(), lambda: "done").result == "done"
            assert caller.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
            assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"
            caller.rollback()
        assert execute(database_url, "SELECT count(*) FROM orders") == [(0,)]
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"


def _raise() -> None:
    raise ValueError("mine")
