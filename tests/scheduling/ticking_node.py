"""Be one node that ticks: every job writes its effect and completes its run in one transaction."""

from __future__ import annotations

import argparse
import asyncio
import random
from datetime import timedelta

import psycopg

from tenure import AsyncJobSchedulerService
from tenure.demo.node import die_with_parent
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Every, Retry

EFFECTS = (
    "CREATE TABLE effects (code text, tick timestamptz, node text, attempt int, "
    "at timestamptz DEFAULT clock_timestamp())"
)


async def effect(url: str, node: str, run: AsyncJobRun, work_s: float) -> None:
    """Work for a while, then write one effect, in the transaction that completes the run."""
    await asyncio.sleep(random.uniform(0, work_s))
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(
            "INSERT INTO effects (code, tick, node, attempt) VALUES (%s, %s, %s, %s)",
            [run.code, run.scheduled_at, node, run.attempt],
        )
        await run.complete(connection)


async def main(url: str, node: str, *, jobs: int, lease: timedelta, work_s: float) -> None:
    """Run until a signal ends it."""
    async with AsyncJobSchedulerService(url, owner_label=node) as service:
        scheduler = AsyncScheduler(
            service, poll=timedelta(milliseconds=500), drain=timedelta(seconds=1), retention=None
        )
        for number in range(jobs):

            async def callback(run: AsyncJobRun) -> None:
                await effect(url, node, run, work_s)

            scheduler.job(
                f"job-{number}",
                schedule=Every(timedelta(seconds=1)),
                lease=lease,
                catch_up="all",
                overlap="allow",
                retry=Retry(max_attempts=20, first=timedelta(milliseconds=100), most=timedelta(seconds=1)),
            )(callback)
        await scheduler.run()


if __name__ == "__main__":
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m tests.scheduling.ticking_node")
    parser.add_argument("url")
    parser.add_argument("node")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--lease-s", type=float, default=2.0)
    parser.add_argument("--work-s", type=float, default=0.0, help="how long a run works at most")
    given = parser.parse_args()
    lease = timedelta(seconds=given.lease_s)
    asyncio.run(main(given.url, given.node, jobs=given.jobs, lease=lease, work_s=given.work_s))
