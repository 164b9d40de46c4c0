"""`tenure.integrations.fastapi`: a service and a scheduler that live as long as the application (C1, C10.8)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from psycopg_pool import AsyncConnectionPool

from tenure import (
    AsyncJobSchedulerService,
    InvalidJobOptionsError,
    JobAcquireOptions,
    JobDatabaseError,
    JobServiceStateError,
)
from tenure.integrations.fastapi import JobSchedulerModule, JobSchedulerModuleOptions
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Every
from tests.integrations.test_scheduling_examples import check_every_tick_ran_once
from tests.support.rows import TABLE, execute
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
ONCE = JobAcquireOptions(code="once", run_key="k")


def application(jobs: JobSchedulerModule) -> FastAPI:
    """An application with one path that uses the service, and one for health."""
    app = FastAPI(lifespan=jobs.lifespan)
    given = Depends(jobs.service)

    @app.get("/once")
    async def once(service: AsyncJobSchedulerService = given) -> dict[str, Any]:
        done = await service.run_exclusive(ONCE, here)
        return {"result": done.result}

    app.get("/health")(jobs.healthy)
    return app


async def here() -> str:
    """Be the work."""
    return "here"


@asynccontextmanager
async def started(app: FastAPI) -> AsyncGenerator[httpx.AsyncClient]:
    """Run the application's lifespan, as a server does, and give a client of it."""
    async with app.router.lifespan_context(app), client(app) as asking:
        yield asking


def client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


def module(**options: Any) -> JobSchedulerModule:
    return JobSchedulerModule.for_root(JobSchedulerModuleOptions(**options))


async def test_path_operations_are_given_the_service(database_url: str) -> None:
    """C1: from the start to the end of the application; and again, with a service of its own, if it starts anew."""
    jobs = module(database=database_url, owner_label="api")
    app = application(jobs)
    seen = []
    for _ in range(2):
        async with started(app) as asking:
            seen.append(await jobs.service())
            assert (await asking.get("/health")).json() is True
            assert (await asking.get("/once")).json() == {"result": "here" if len(seen) == 1 else None}
        assert jobs.healthy() is False
    assert seen[0] is not seen[1]
    assert execute(database_url, f'SELECT "owner" FROM {TABLE}') == [("api",)]


async def test_without_its_lifespan_it_says_what_to_do(database_url: str) -> None:
    """C11: nothing is made in silence that nobody would close."""
    app = application(module(database=database_url))
    async with client(app) as asking:
        with pytest.raises(JobServiceStateError, match=r"FastAPI\(lifespan=jobs\.lifespan\)"):
            await asking.get("/once")


async def test_it_migrates_where_it_is_asked_to(empty_database_url: str) -> None:
    """C9.1: else the first use says what is missing."""
    async with started(application(module(database=empty_database_url))) as asking:
        with pytest.raises(JobDatabaseError, match="tenure schema apply"):
            await asking.get("/once")
    async with started(application(module(database=empty_database_url, migrate=True, table="runs"))) as asking:
        assert (await asking.get("/once")).json() == {"result": "here"}
    assert execute(empty_database_url, 'SELECT "code" FROM "runs"') == [("once",)]


async def test_a_pool_is_opened_at_the_start_and_left_open(database_url: str) -> None:
    """C4.8: what a function gives belongs to who gave it."""
    pools: list[AsyncConnectionPool[Any]] = []

    async def opened() -> AsyncConnectionPool[Any]:
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(database_url, open=False, min_size=1)
        await pool.open()
        pools.append(pool)
        return pool

    async with started(application(module(database=opened))) as asking:
        assert (await asking.get("/once")).json() == {"result": "here"}
    (pool,) = pools
    assert not pool.closed
    await pool.close()


async def test_a_scheduler_runs_as_long_as_the_application(database_url: str) -> None:
    """C10.8: its jobs tick from the start; the end waits for a callback that is under way."""
    ended = asyncio.Event()

    def make(service: AsyncJobSchedulerService) -> AsyncScheduler:
        scheduler = AsyncScheduler(service, poll=timedelta(milliseconds=200), retention=None)

        @scheduler.job("tick", schedule=Every(timedelta(seconds=1)))
        async def tick(run: AsyncJobRun) -> None:
            began.set()
            await asyncio.sleep(0.5)
            ended.set()

        return scheduler

    began = asyncio.Event()
    jobs = module(database=database_url, scheduler=make)
    async with started(application(jobs)) as asking:
        await asyncio.wait_for(began.wait(), 20)
        assert (await asking.get("/health")).json() is True
    assert ended.is_set()
    assert execute(database_url, f"SELECT count(*) FROM {TABLE} WHERE \"status\" <> 'SUCCESS'") == [(0,)]


async def test_a_start_that_fails_leaves_nothing(empty_database_url: str, database_url: str) -> None:
    """C9.4, C11: a missing table ends the start of an application with jobs; another service's scheduler is refused."""

    def of_another(_service: AsyncJobSchedulerService) -> AsyncScheduler:
        return AsyncScheduler(AsyncJobSchedulerService(database_url))

    for options, wrong, said in (
        ({"database": empty_database_url, "scheduler": AsyncScheduler}, JobDatabaseError, "tenure schema apply"),
        ({"database": database_url, "scheduler": of_another}, InvalidJobOptionsError, "another service"),
    ):
        jobs = module(**options)
        with pytest.raises(wrong, match=said):
            async with started(application(jobs)):
                pytest.fail("it has started")
        assert jobs.healthy() is False


async def test_one_module_is_of_one_application(database_url: str) -> None:
    """C11: two at once would share what the first one closes."""
    jobs = module(database=database_url)
    async with started(application(jobs)):
        with pytest.raises(JobServiceStateError, match="runs already"):
            async with started(application(jobs)):
                pytest.fail("it has started")
        assert jobs.healthy() is True


def test_no_password_is_shown() -> None:
    """C11: of the options as of the module."""
    options = JobSchedulerModuleOptions(
        database="postgresql://app:secret@db/shop", heartbeat_database="postgresql://app:secret@db/shop"
    )
    assert "secret" not in repr(options)
    assert "secret" not in repr(JobSchedulerModule.for_root(options))


# The example, as its readers start it.


@contextmanager
def served(url: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve the example by uvicorn at a port that is free, and end it as a supervisor does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "examples"), "fastapi_service:app", "--port", "0"],
        env={**os.environ, "DATABASE_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process:
        try:
            said = ""
            while not (found := re.search(r"running on (http://\S+)", said)):
                line = process.stderr.readline()
                assert line, said
                said += line
            yield process, found[1]
            if process.poll() is None:
                process.terminate()
                rest = process.stderr.read()
                assert process.wait(30) in (0, -signal.SIGTERM)
                assert "Application shutdown complete" in rest
                assert "Traceback" not in rest
        finally:
            process.kill()


def test_two_servers_write_each_report_once_and_share_the_ticks(database_url: str) -> None:
    """C4.1, C7.2, C8.2, C10.6: of twenty that ask both at once, one is given the report; a killed one loses no tick."""
    with ExitStack() as stack:
        (doomed, first), (_, second) = (stack.enter_context(served(database_url)) for _ in range(2))
        made = f'SELECT "status" FROM {TABLE} WHERE "code" = \'make-tables\''
        assert execute(database_url, made) == [("SUCCESS",)]
        with ThreadPoolExecutor(20) as asking:
            answers = [
                answer.status_code
                for answer in asking.map(
                    lambda n: httpx.post(f"{(first, second)[n % 2]}/reports/2026-07-20", timeout=30), range(20)
                )
            ]
        assert sorted(answers) == [200] + [409] * 19
        assert [each["day"] for each in httpx.get(f"{first}/reports").json()] == ["2026-07-20"]
        assert httpx.get(f"{second}/health").status_code == 200
        doomed.kill()
        counted = int(execute(database_url, "SELECT count(*) FROM counts")[0][0])
        eventually(lambda: execute(database_url, "SELECT count(*) FROM counts")[0][0] > counted + 2, 30)
        unfinished = f"SELECT count(*) FROM {TABLE} WHERE \"status\" <> 'SUCCESS'"
        eventually(lambda: execute(database_url, unfinished) == [(0,)], 30)
    check_every_tick_ran_once(database_url, "count-reports", "counts")
