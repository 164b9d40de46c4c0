"""An API whose processes share runs: as many workers, on as many hosts, as you like (C1, C10).

Run ``DATABASE_URL=postgresql://… uvicorn --app-dir examples fastapi_service:app --workers 4``. Each report is written
by one of the workers, however many are asked at once, and once for ever; the others say so. Each tick of the job runs
on one of them. SIGTERM ends all in order: requests first, then callbacks.

``curl -X POST localhost:8000/reports/2026-07-20``, ``curl localhost:8000/reports``, ``curl localhost:8000/health``
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Annotated, Any

import psycopg
from fastapi import Depends, FastAPI, HTTPException, Response

from tenure import AsyncJobExecutionLease, AsyncJobSchedulerService, JobAcquireOptions
from tenure.integrations.fastapi import JobSchedulerModule, JobSchedulerModuleOptions
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Every

DATABASE_URL = os.environ["DATABASE_URL"]


def make_scheduler(service: AsyncJobSchedulerService) -> AsyncScheduler:
    """Say which jobs run beside the API."""
    scheduler = AsyncScheduler(service, poll=timedelta(seconds=1), drain=timedelta(seconds=10))

    @scheduler.initial("make-tables", lease=timedelta(seconds=10))
    async def make_tables(run: AsyncJobRun) -> None:
        async with await psycopg.AsyncConnection.connect(DATABASE_URL) as connection:
            await connection.execute("CREATE TABLE reports (day text, writer int)")
            await connection.execute("CREATE TABLE counts (tick timestamptz, reports bigint)")
            await run.complete(connection)

    @scheduler.job("count-reports", schedule=Every(timedelta(seconds=1)), lease=timedelta(seconds=5))
    async def count_reports(run: AsyncJobRun) -> None:
        async with await psycopg.AsyncConnection.connect(DATABASE_URL) as connection:
            await connection.execute("INSERT INTO counts SELECT %s, count(*) FROM reports", [run.scheduled_at])
            await run.complete(connection)

    return scheduler


jobs = JobSchedulerModule.for_root(
    JobSchedulerModuleOptions(database=DATABASE_URL, migrate=True, scheduler=make_scheduler)
)
Jobs = Annotated[AsyncJobSchedulerService, Depends(jobs.service)]
app = FastAPI(lifespan=jobs.lifespan)


@app.post("/reports/{day}")
async def write_report(day: str, service: Jobs) -> dict[str, Any]:
    """Write the report of a day, unless that is done or under way anywhere."""

    async def write(lease: AsyncJobExecutionLease) -> dict[str, Any]:
        await asyncio.sleep(1)  # the figures are fetched
        async with await psycopg.AsyncConnection.connect(DATABASE_URL) as connection:
            await connection.execute("INSERT INTO reports VALUES (%s, %s)", [day, os.getpid()])
            await service.complete(lease, {"writer": os.getpid()}, connection=connection)
        return {"day": day, "writer": os.getpid()}

    done = await service.run_exclusive(JobAcquireOptions(code="report", run_key=day), write)
    if done.result is None:
        raise HTTPException(409, f"Another one writes the report of {day}, or has.")
    return done.result


@app.get("/reports")
async def list_reports() -> list[dict[str, Any]]:
    """List the reports, and who wrote each."""
    async with await psycopg.AsyncConnection.connect(DATABASE_URL) as connection:
        cursor = await connection.execute("SELECT day, writer FROM reports ORDER BY day")
        return [{"day": day, "writer": writer} for day, writer in await cursor.fetchall()]


@app.get("/health")
async def health(response: Response) -> str:
    """Answer 503 when the scheduler does not turn."""
    response.status_code = 200 if jobs.healthy() else 503
    return "turning" if jobs.healthy() else "standing still"
