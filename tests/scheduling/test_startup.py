"""A start that is told to stop before its end, and a run that is stopped from elsewhere (C8.2, C10.8)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest

from tenure import AsyncJobSchedulerService, JobAcquireOptions, JobSchedulerService, JobSchedulerType
from tenure.errors import JobDatabaseError, JobServiceStateError, LostJobLeaseError
from tenure.lease import JobAcquired
from tenure.scheduling import AsyncJobRun, AsyncScheduler, JobRun, Scheduler
from tests.support.rows import execute
from tests.support.waiting import eventually, eventually_async

CODE = "seed"
OPTIONS = JobAcquireOptions(code=CODE, type=JobSchedulerType.INITIAL)
NODES = 'SELECT count(*) FROM "job-scheduler_nodes"'
STATUS = 'SELECT "status", "outcome" FROM "job-scheduler" WHERE "code" = %s'


@pytest.fixture
def held(database_url: str) -> Iterator[JobAcquired]:
    """Hold the INITIAL run on another node."""
    with JobSchedulerService(database_url) as other:
        won = other.acquire(OPTIONS)
        assert won.acquired is True
        yield won
        other.complete(won)


async def test_a_signal_ends_the_wait_for_another_nodes_initial_job(database_url: str, held: JobAcquired) -> None:
    """C10.8, C8.2: nothing of its own runs, so there is nothing to wait for."""
    async with AsyncJobSchedulerService(database_url) as service:
        scheduler = AsyncScheduler(service)

        @scheduler.initial(CODE)
        async def seed(run: AsyncJobRun) -> None:
            pytest.fail("another node runs it")

        running = asyncio.create_task(scheduler.run())
        await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 10)
        assert not scheduler.healthy()
    assert execute(database_url, NODES) == [(0,)]
    assert execute(database_url, STATUS, CODE) == [("RUNNING", None)]


def test_a_stop_ends_a_blocking_start(database_url: str, held: JobAcquired) -> None:
    """C10.8: from another thread; whoever waits for the start is told."""
    with JobSchedulerService(database_url) as service, ThreadPoolExecutor(1) as pool:
        scheduler = Scheduler(service)

        @scheduler.initial(CODE)
        def seed(run: JobRun) -> None:
            pytest.fail("another node runs it")

        starting = pool.submit(scheduler.__enter__)
        eventually(lambda: scheduler._loop is not None)
        assert not scheduler.healthy()
        scheduler.stop()
        with pytest.raises(JobServiceStateError, match="stopped before it had started"):
            starting.result(10)
        service.complete(held)  # what the thread that waits is waiting for
        eventually(lambda: "tenure-job" not in [thread.name for thread in threading.enumerate()])


async def test_an_initial_job_that_runs_here_may_end(database_url: str) -> None:
    """C10.8: it is told, has the time of grace, and then the node starts nothing."""
    begun = asyncio.Event()
    async with AsyncJobSchedulerService(database_url) as service:
        scheduler = AsyncScheduler(service)

        @scheduler.initial(CODE)
        async def seed(run: AsyncJobRun) -> None:
            begun.set()
            while not run.stopping:
                await asyncio.sleep(0.01)

        running = asyncio.create_task(scheduler.run())
        await begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 10)
    assert execute(database_url, STATUS, CODE) == [("SUCCESS", None)]


async def test_a_second_signal_releases_an_initial_job(database_url: str) -> None:
    """C10.8: its run is another node's to take at once."""
    begun = asyncio.Event()
    async with AsyncJobSchedulerService(database_url) as service:
        scheduler = AsyncScheduler(service)

        @scheduler.initial(CODE)
        async def seed(run: AsyncJobRun) -> None:
            begun.set()
            await asyncio.sleep(3600)

        running = asyncio.create_task(scheduler.run())
        await begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.2)
        assert not running.done()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 10)
    with JobSchedulerService(database_url) as other:
        assert other.acquire(OPTIONS).acquired


def test_a_blocking_initial_job_that_does_not_end_loses_its_run(database_url: str) -> None:
    """C10.8: after the time of grace; its thread goes on, and is refused."""
    begun, go_on, refused = threading.Event(), threading.Event(), threading.Event()
    with JobSchedulerService(database_url) as service, ThreadPoolExecutor(1) as pool:
        scheduler = Scheduler(service, drain=timedelta(0))

        @scheduler.initial(CODE)
        def seed(run: JobRun) -> None:
            begun.set()
            go_on.wait(10)
            try:
                run.check()
            except LostJobLeaseError:
                refused.set()

        starting = pool.submit(scheduler.__enter__)
        assert begun.wait(10)
        scheduler.stop()
        with pytest.raises(JobServiceStateError):
            starting.result(10)
        with JobSchedulerService(database_url) as other:
            assert other.acquire(OPTIONS).acquired
        go_on.set()
        assert refused.wait(10)


async def test_what_keeps_a_start_from_succeeding_comes_out_of_run(empty_database_url: str) -> None:
    """C9.4, C11: a table that is not there is for somebody to mend; of either kind."""
    async with AsyncJobSchedulerService(empty_database_url) as service:
        with pytest.raises(JobDatabaseError, match="schema apply"):
            await AsyncScheduler(service).run()

    def blocking() -> None:
        with JobSchedulerService(empty_database_url) as service, pytest.raises(JobDatabaseError, match="schema apply"):
            Scheduler(service).__enter__()

    await asyncio.to_thread(blocking)


async def test_stop_ends_run(database_url: str) -> None:
    """C10.8: called by whoever serves beside the scheduler."""
    async with AsyncJobSchedulerService(database_url) as service:
        scheduler = AsyncScheduler(service)
        running = asyncio.create_task(scheduler.run())
        await eventually_async(scheduler.healthy)
        await scheduler.stop()
        await asyncio.wait_for(running, 10)
        assert not scheduler.healthy()
    assert execute(database_url, NODES) == [(0,)]


async def test_run_outside_the_main_thread_hears_no_signal_and_runs(database_url: str) -> None:
    """C10.8: as beside a server that has the main thread for itself."""
    begun = threading.Event()

    async def serve() -> None:
        async with AsyncJobSchedulerService(database_url) as service:
            scheduler = AsyncScheduler(service)
            running = asyncio.create_task(scheduler.run())
            await eventually_async(scheduler.healthy)
            begun.set()
            await scheduler.stop()
            await running

    with suppress(RuntimeError):
        await asyncio.to_thread(asyncio.run, serve())
    assert begun.is_set()
