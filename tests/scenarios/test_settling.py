"""A run is settled once and truthfully, whatever cuts in (C6.1 to C6.5), through both services."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from tenure import (
    JobAcquireOptions,
    JobExecutionLease,
    JobSchedulerService,
    NotAcquiredReason,
    OutcomeNotRecordedError,
)
from tests.support.nodes import AsyncNode, BlockingNode, MakeNode, Node
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, age, execute, row_of
from tests.support.waiting import eventually

SETTLE = b"WITH settled"
CUTS = ["cut_before", "cut_after"]
PoolOf = ConnectionPool[psycopg.Connection[TupleRow]]
AsyncPoolOf = AsyncConnectionPool[psycopg.AsyncConnection[TupleRow]]


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, "lease_ms": 6_000, **given})


@pytest.fixture(params=[BlockingNode, AsyncNode], ids=["blocking", "async"])
async def make_node(request: pytest.FixtureRequest) -> AsyncIterator[MakeNode]:
    """Make nodes of one kind on whatever database is given."""
    made: list[Node] = []

    def make(database: Any) -> Node:
        made.append(request.param(database))
        return made[-1]

    yield make
    for node in made:
        await node.close()


def blunder() -> RuntimeError:
    return RuntimeError("on purpose")


class TestCuts:
    @pytest.mark.parametrize("cut", CUTS)
    @pytest.mark.parametrize(("how", "status"), [("complete", "SUCCESS"), ("fail", "FAIL"), ("release", "FAIL")])
    async def test_settling_by_hand(
        self, make_node: MakeNode, database_url: str, cut: str, how: str, status: str
    ) -> None:
        """C6.1, C6.4 (DistributedLock#147, etcd#22082): cut before or after the commit: True, once, and so it is."""
        with FaultProxy.in_front_of(database_url) as proxy:
            node = make_node(proxy.url(database_url))
            lease = await node.acquire(options())
            getattr(proxy, cut)(SETTLE)
            assert await node.settle(how, lease, {"n": 1}) is True
            assert proxy.cut == 1
            row = row_of(database_url, lease.id)
            assert (row["status"], row["data"], row["attempt"]) == (status, {"n": 1}, 1)
            assert await node.settle("complete", lease) is False
            assert await node.settle("fail", lease) is False
            assert row_of(database_url, lease.id) == row

    @pytest.mark.parametrize("cut", CUTS)
    @pytest.mark.parametrize("times", [1, 3])
    async def test_success_of_run_exclusive(
        self, make_node: MakeNode, database_url: str, rival: JobSchedulerService, cut: str, times: int
    ) -> None:
        """C6.4: never FAIL, never run again when it was recorded, and the caller gets the result."""
        with FaultProxy.in_front_of(database_url) as proxy:
            node = make_node(proxy.url(database_url))
            getattr(proxy, cut)(SETTLE, times)
            outcome = await node.run(options(), lambda _: "result")
            assert proxy.cut == times
        assert (outcome.acquired, outcome.result) == (True, "result")
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"
        answer = rival.acquire(options())
        assert not answer.acquired
        assert answer.reason is NotAcquiredReason.SUCCEEDED

    @pytest.mark.parametrize("cut", CUTS)
    async def test_failure_of_run_exclusive(self, make_node: MakeNode, database_url: str, cut: str) -> None:
        """C6.3: FAIL is recorded although the connection is cut, and the callback's own exception comes out."""
        error = blunder()

        def callback(lease: JobExecutionLease) -> None:
            raise error

        with FaultProxy.in_front_of(database_url) as proxy:
            node = make_node(proxy.url(database_url))
            getattr(proxy, cut)(SETTLE, 2)
            with pytest.raises(RuntimeError) as caught:
                await node.run(options(), callback)
            assert proxy.cut == 2
        assert caught.value is error
        row = row_of(database_url, options().lock_key)
        assert (row["status"], row["data"]) == ("FAIL", {"error": "RuntimeError: on purpose"})


class TestSilence:
    async def test_a_commit_whose_answer_never_comes_is_recognised(
        self, make_node: MakeNode, database_url: str
    ) -> None:
        """C6.4: the answer is swallowed and the socket stays open; it is asked again, before the local deadline."""
        with FaultProxy.in_front_of(database_url) as proxy:
            node = make_node(proxy.url(database_url))
            proxy.stall_after(SETTLE)
            outcome = await node.run(options(lease_ms=3_000), lambda _: "result")
            assert proxy.stalled == 1
        assert outcome.result == "result"
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"

    async def test_success_leaves_a_dead_pooled_connection(self, make_node: MakeNode, database_url: str) -> None:
        """C6.4: open connections fall silent, new ones work: SUCCESS is recorded on a fresh one in time."""
        with FaultProxy.in_front_of(database_url) as proxy:
            node = make_node(proxy.url(database_url))
            outcome = await node.run(options(lease_ms=3_000), lambda _: proxy.black_hole(new=False))
            proxy.heal()
        assert outcome.acquired
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"

    async def test_failure_leaves_a_dead_pooled_connection(self, make_node: MakeNode, database_url: str) -> None:
        """C6.3: FAIL is tried for 5 s, so a connection that is silent must not take up all of them."""

        def callback(lease: JobExecutionLease) -> None:
            proxy.black_hole(new=False)
            raise blunder()

        with FaultProxy.in_front_of(database_url) as proxy:
            node = make_node(proxy.url(database_url))
            with pytest.raises(RuntimeError, match="on purpose"):
                await node.run(options(lease_ms=60_000), callback)
            status = row_of(database_url, options().lock_key)["status"]
            proxy.heal()
        assert status == "FAIL"

    async def test_a_success_that_cannot_be_recorded(
        self, make_node: MakeNode, database_url: str, rival: JobSchedulerService
    ) -> None:
        """C6.4: OutcomeNotRecordedError carries the result; the row is left to expire, and is never FAIL."""

        def callback(lease: JobExecutionLease) -> str:
            proxy.refuse_new(True)
            proxy.reset_all()
            return "result"

        with FaultProxy.in_front_of(database_url) as proxy:
            node = make_node(proxy.url(database_url))
            began_s = time.monotonic()
            with pytest.raises(OutcomeNotRecordedError) as caught:
                await node.run(options(lease_ms=1_000), callback)
            took_s = time.monotonic() - began_s
            proxy.heal()
        assert caught.value.result == "result"
        assert isinstance(caught.value.__cause__, Exception)
        assert 0.5 <= took_s <= 2.5
        row = row_of(database_url, options().lock_key)
        assert (row["status"], row["data"]) == ("RUNNING", None)
        age(database_url, row["id"], timedelta(seconds=1))
        again = rival.acquire(options())
        assert again.acquired
        assert again.attempt == 2

    async def test_a_failure_that_cannot_be_recorded(self, make_node: MakeNode, database_url: str) -> None:
        """C6.3: it is given up after 5 s, and the callback's own exception comes out."""
        error = blunder()

        def callback(lease: JobExecutionLease) -> None:
            proxy.refuse_new(True)
            proxy.reset_all()
            raise error

        with FaultProxy.in_front_of(database_url) as proxy:
            node = make_node(proxy.url(database_url))
            began_s = time.monotonic()
            with pytest.raises(RuntimeError) as caught:
                await node.run(options(lease_ms=60_000), callback)
            took_s = time.monotonic() - began_s
            proxy.heal()
        assert caught.value is error
        assert 3 <= took_s <= 6.5
        assert row_of(database_url, options().lock_key)["status"] == "RUNNING"

    async def test_a_late_success_does_not_die_with_a_pooled_connection(
        self, make_node: MakeNode, database_url: str
    ) -> None:
        """C6.5: after an outage longer than the lease the server is back and the row still ours: a success.

        The pool's connection died in the outage; the one guarded attempt must not be spent on it.
        """

        def callback(lease: JobExecutionLease) -> str:
            proxy.refuse_new(True)
            proxy.reset_all()
            time.sleep(0.7)
            proxy.heal()
            return "late"

        with FaultProxy.in_front_of(database_url) as proxy:
            node = make_node(proxy.url(database_url))
            outcome = await node.run(options(lease_ms=600, heartbeat_ms=0), callback)
        assert outcome.result == "late"
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"


class TestRefusals:
    @pytest.mark.parametrize("state", ["57014", "55P03", "40001", "40P01", "53300", "57P01"])
    @pytest.mark.parametrize("outcome", ["SUCCESS", "FAIL"])
    async def test_what_passes_is_tried_again(
        self, make_node: MakeNode, database_url: str, state: str, outcome: str
    ) -> None:
        """C6.4, C6.3: statement and lock timeouts, serialisation failures, deadlocks, too many connections, a shutdown.

        A trigger refuses the first two tries; a sequence counts them, for it is not rolled back.
        """
        execute(database_url, "CREATE SEQUENCE tries")
        execute(
            database_url,
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('tries') <= 2 THEN "
            f"RAISE EXCEPTION 'not now' USING ERRCODE = '{state}'; END IF; RETURN NEW; END $$",
        )
        execute(
            database_url,
            f"CREATE TRIGGER refuse BEFORE UPDATE ON {TABLE} FOR EACH ROW WHEN (NEW.status <> 'RUNNING') "
            "EXECUTE FUNCTION refuse()",
        )

        def callback(lease: JobExecutionLease) -> str:
            if outcome == "FAIL":
                raise blunder()
            return "result"

        node = make_node(database_url)
        if outcome == "FAIL":
            with pytest.raises(RuntimeError, match="on purpose"):
                await node.run(options(), callback)
        else:
            assert (await node.run(options(), callback)).result == "result"
        assert execute(database_url, "SELECT last_value FROM tries") == [(3,)]
        assert row_of(database_url, options().lock_key)["status"] == outcome

    async def test_a_row_that_is_locked_for_a_while(self, make_node: MakeNode, database_url: str) -> None:
        """C6.4: with the database's own lock_timeout, complete() is tried until the lock is gone."""
        name = execute(database_url, "SELECT current_database()")[0][0]
        execute(database_url, f"ALTER DATABASE {name} SET lock_timeout = '100ms'")
        node = make_node(database_url)
        lease = await node.acquire(options())
        with psycopg.connect(database_url) as holder:
            holder.execute(f'SELECT FROM {TABLE} WHERE "id" = %s FOR UPDATE', [lease.id])
            settling = asyncio.create_task(node.settle("complete", lease))
            await asyncio.sleep(0.5)
            assert not settling.done()
            holder.rollback()
        assert await settling is True
        assert row_of(database_url, lease.id)["status"] == "SUCCESS"


class TestGivenPools:
    """A pool of the caller's may be busy; that must cost no outcome."""

    async def test_a_busy_pool_costs_no_failure(self, make_node: MakeNode, database_url: str) -> None:
        """C6.3: with every connection of the pool in use, FAIL is recorded on a connection of its own."""
        pool: Any
        if isinstance(make_node(None), AsyncNode):
            pool = AsyncPoolOf(database_url, min_size=1, max_size=1, open=False)
            await pool.open()
            node = make_node(pool)

            async def taken() -> Any:
                return await pool.getconn()

            async def given_back(connection: Any) -> None:
                await pool.putconn(connection)
                await pool.close()
        else:
            pool = PoolOf(database_url, min_size=1, max_size=1, open=True)
            node = make_node(pool)

            async def taken() -> Any:
                return await asyncio.to_thread(pool.getconn)

            async def given_back(connection: Any) -> None:
                pool.putconn(connection)
                pool.close()

        lease = await node.acquire(options(lease_ms=60_000))
        connection = await taken()
        try:
            began_s = time.monotonic()
            assert await node.settle("fail", lease) is True
            assert time.monotonic() - began_s < 5
        finally:
            await given_back(connection)
        assert row_of(database_url, lease.id)["status"] == "FAIL"

    def test_a_pool_with_too_many_waiting_costs_no_success(self, database_url: str) -> None:
        """C6.4: TooManyRequests is a pool that is busy, and SUCCESS is recorded on a connection of its own."""
        with PoolOf(database_url, min_size=1, max_size=1, max_waiting=1) as pool, JobSchedulerService(pool) as node:
            waiter = threading.Thread(target=lambda: pool.putconn(pool.getconn()))
            held: list[psycopg.Connection[TupleRow]] = []

            def callback() -> str:
                held.append(pool.getconn())
                waiter.start()
                eventually(lambda: pool.get_stats().get("requests_waiting") == 1)
                return "result"

            try:
                assert node.run_exclusive(options(lease_ms=4_000), callback).result == "result"
            finally:
                pool.putconn(held[0])
                waiter.join()
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"
