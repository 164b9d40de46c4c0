"""Acquiring and running are interrupted anywhere, by anything, and no run is left held by nobody (C4.6, C6.3, C6.6)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tenure import (
    AsyncJobSchedulerService,
    JobAcquired,
    JobAcquireOptions,
    JobDatabaseError,
    JobExecutionLease,
    JobSchedulerService,
    operations,
)
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, execute, row_of
from tests.support.waiting import eventually, eventually_async

ACQUIRE = b"WITH seen AS"
CUTS = ["cut_before", "cut_after"]


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, "lease_ms": 60_000, **given})


@pytest.fixture
def proxy(database_url: str) -> Iterator[FaultProxy]:
    with FaultProxy.in_front_of(database_url) as running:
        yield running


@pytest.fixture
def far_service(proxy: FaultProxy, database_url: str) -> Iterator[JobSchedulerService]:
    """A blocking service behind the proxy, whose pool has a connection."""
    with JobSchedulerService(proxy.url(database_url)) as made:
        made.list_runs()
        yield made


@pytest.fixture
async def far_async_service(proxy: FaultProxy, database_url: str) -> AsyncIterator[AsyncJobSchedulerService]:
    """An async service behind the proxy, whose pool has a connection."""
    async with AsyncJobSchedulerService(proxy.url(database_url)) as made:
        await made.list_runs()
        yield made


def takes_at_once(rival: JobSchedulerService, limit_s: float = 5.0) -> JobAcquired:
    """Say that a rival gets the run long before its lease ends."""

    def won() -> JobAcquired | None:
        answer = rival.acquire(options())
        return answer if answer.acquired else None

    found = eventually(won, limit_s)
    assert found is not None
    return found


def status_of(url: str, key: str) -> str | None:
    rows = execute(url, f'SELECT status::text FROM {TABLE} WHERE "lockKey" = %s', key)
    return str(rows[0][0]) if rows else None


class TestAcquire:
    @pytest.mark.parametrize("cut", [*CUTS, "stall_after"])
    async def test_a_lost_answer_is_asked_for_again(
        self,
        proxy: FaultProxy,
        far_service: JobSchedulerService,
        far_async_service: AsyncJobSchedulerService,
        database_url: str,
        cut: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """C4.6 (DistributedLock#147): cut before or after the commit, the caller wins, once, and the row is its own."""
        monkeypatch.setattr(operations, "CALL_LIMIT_S", 1.0)
        for n, acquire in enumerate([lambda o: asyncio.to_thread(far_service.acquire, o), far_async_service.acquire]):
            getattr(proxy, cut)(ACQUIRE)
            won = await acquire(options(str(n)))
            assert proxy.matched == n + 1
            assert won.acquired
            assert won.attempt == 1
            row = row_of(database_url, won.id)
            assert (row["status"], row["ownerToken"], row["attempt"]) == ("RUNNING", won.owner_token, 1)
            assert row["fencingToken"] == won.fencing_token

    @pytest.mark.parametrize("shell", ["blocking", "async"])
    async def test_a_win_that_nobody_heard_of_is_freed(
        self,
        proxy: FaultProxy,
        far_service: JobSchedulerService,
        far_async_service: AsyncJobSchedulerService,
        rival: JobSchedulerService,
        database_url: str,
        shell: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """C4.6: the answer is lost and the database is away: the caller hears the truth, the callback does not run.

        Once the database is back the row becomes FAIL, and a rival gets the run at once, although the lease is long.
        """
        monkeypatch.setattr(operations, "ACQUIRE_LIMIT_S", 0.5)
        ran: list[bool] = []

        async def awaited() -> None:
            ran.append(True)

        proxy.stall_after(ACQUIRE)
        if shell == "blocking":
            run = asyncio.create_task(asyncio.to_thread(far_service.run_exclusive, options(), lambda: ran.append(True)))
        else:
            run = asyncio.create_task(far_async_service.run_exclusive(options(), awaited))
        await eventually_async(lambda: proxy.stalled == 1)
        proxy.refuse_new(True)
        proxy.reset_all()
        with pytest.raises(JobDatabaseError) as caught:
            await run
        assert caught.value.may_have_changed
        assert not ran
        assert not rival.acquire(options()).acquired
        assert status_of(database_url, options().lock_key) == "RUNNING"
        proxy.heal()
        won = await asyncio.to_thread(takes_at_once, rival)
        assert won.attempt == 2

    def test_an_error_that_changed_nothing_is_no_win(self, proxy: FaultProxy, database_url: str) -> None:
        """C4.6 (redbeat#208, #238): an unreachable server raises, and says that nothing was changed."""
        proxy.refuse_new(True)
        with JobSchedulerService(proxy.url(database_url)) as node, pytest.raises(JobDatabaseError) as caught:
            node.run_exclusive(options(), lambda: pytest.fail("the callback ran"))
        assert not caught.value.may_have_changed

    async def test_cancelled_before_it_was_sent(
        self,
        proxy: FaultProxy,
        far_async_service: AsyncJobSchedulerService,
        rival: JobSchedulerService,
        database_url: str,
    ) -> None:
        """C4.6: the statement still goes out, is waited for, and what it won is released."""
        proxy.black_hole()
        task = asyncio.create_task(far_async_service.acquire(options()))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.sleep(0.1)
        assert not task.done()
        assert status_of(database_url, options().lock_key) is None
        proxy.heal()
        with pytest.raises(asyncio.CancelledError):
            await task
        row = row_of(database_url, options().lock_key)
        assert (row["status"], row["data"]) == ("FAIL", {"released": True})
        assert rival.acquire(options()).acquired

    async def test_cancelled_after_its_commit(
        self,
        proxy: FaultProxy,
        far_async_service: AsyncJobSchedulerService,
        rival: JobSchedulerService,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """C4.6: the win's answer never comes; the cancelled call learns of it all the same, and releases it."""
        monkeypatch.setattr(operations, "CALL_LIMIT_S", 1.0)
        proxy.stall_after(ACQUIRE)
        task = asyncio.create_task(far_async_service.acquire(options()))
        await eventually_async(lambda: proxy.stalled == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert rival.acquire(options()).acquired

    async def test_cancelled_while_the_database_goes_away(
        self,
        proxy: FaultProxy,
        far_async_service: AsyncJobSchedulerService,
        rival: JobSchedulerService,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """C4.6: nobody can tell the cancelled call whether it won; the keeper frees the run when it can."""
        monkeypatch.setattr(operations, "ACQUIRE_LIMIT_S", 0.5)
        proxy.stall_after(ACQUIRE)
        task = asyncio.create_task(far_async_service.acquire(options()))
        await eventually_async(lambda: proxy.stalled == 1)
        proxy.refuse_new(True)
        proxy.reset_all()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not rival.acquire(options()).acquired
        proxy.heal()
        await asyncio.to_thread(takes_at_once, rival)

    def test_interrupted_by_the_keyboard(
        self,
        proxy: FaultProxy,
        far_service: JobSchedulerService,
        rival: JobSchedulerService,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """C4.6: KeyboardInterrupt comes out of a blocking acquire whose commit it never heard of; the run is freed."""
        monkeypatch.setattr(operations, "CALL_LIMIT_S", 1.0)
        proxy.stall_after(ACQUIRE)

        def interrupt() -> None:
            eventually(lambda: proxy.stalled == 1)
            os.kill(os.getpid(), signal.SIGINT)

        typist = threading.Thread(target=interrupt)
        typist.start()
        with pytest.raises(KeyboardInterrupt):
            far_service.acquire(options())
        typist.join()
        takes_at_once(rival)


def test_no_thread_for_renewal_leaves_no_run_behind(
    service: JobSchedulerService, rival: JobSchedulerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4.6, C5.2: the run is won, but no renewal thread can be started: the callback does not run, the run is freed.

    And the next run, when threads can be had again, is renewed.
    """
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "tenure-keeper":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        service.run_exclusive(options(), lambda: pytest.fail("the callback ran without renewal"))
    monkeypatch.setattr(threading.Thread, "start", start)
    takes_at_once(rival)

    def two_leases(lease: JobExecutionLease) -> str:
        time.sleep(3)
        return lease.lost or "held"

    assert service.run_exclusive(options("next", lease_ms=1_500), two_leases).result == "held"
