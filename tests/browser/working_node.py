"""Be one node with one job that works long: each run renews its lease and says how far it has come, until it is told
to end.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from tenure import AsyncJobSchedulerService
from tenure.demo.node import die_with_parent
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Every

CODE = "long-haul"
LEASE = timedelta(seconds=3)


async def main(url: str, label: str, work_s: float) -> None:
    """Run until a signal ends it."""
    async with AsyncJobSchedulerService(url, owner_label=label) as service:
        scheduler = AsyncScheduler(
            service, poll=timedelta(milliseconds=200), drain=timedelta(seconds=0), retention=None
        )

        @scheduler.job(CODE, schedule=Every(timedelta(seconds=1)), lease=LEASE, heartbeat=timedelta(seconds=1))
        async def haul(run: AsyncJobRun) -> None:
            for done in range(1, 11):
                await run.checkpoint({"done": done, "of": 10})
                await asyncio.sleep(work_s / 10)

        await scheduler.run()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
