"""Be one node that ticks: every job writes its effect and completes its run in one transaction."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

import psycopg

from tenure import AsyncJobSchedulerService
from tenure.demo.node import die_with_parent
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Every, Retry

EFFECTS = (
    "CREATE TABLE effects (code text, tick timestamptz, node text, attempt int, "
    "at timestamptz DEFAULT clock_timestamp())"
)
LEASE = timedelta(seconds=2)


async def effect(url: str, node: str, run: AsyncJobRun) -> None:
    """Write one effect, in the transaction that completes the run."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(
            "INSERT INTO effects (code, tick, node, attempt) VALUES (%s, %s, %s, %s)",
            [run.code, run.scheduled_at, node, run.attempt],
        )
        await run.complete(connection)


async def main(url: str, node: str, jobs: int, lease: timedelta = LEASE) -> None:
    """Run until a signal ends it."""
    async with AsyncJobSchedulerService(url, owner_label=node) as service:
        scheduler = AsyncScheduler(
            service, poll=timedelta(milliseconds=500), drain=timedelta(seconds=1), retention=None
        )
        for number in range(jobs):

            async def callback(run: AsyncJobRun) -> None:
                await effect(url, node, run)

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
    given_lease = timedelta(seconds=float(sys.argv[4])) if len(sys.argv) > 4 else LEASE
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), given_lease))
