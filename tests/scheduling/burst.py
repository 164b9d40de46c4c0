"""Five hundred jobs that are due in the same second, on three nodes; `python -m` measures how late they begin."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from tenure import AsyncJobSchedulerService, JobAcquireOptions, JobExecutionLease, JobSchedulerService
from tenure.demo.node import die_with_parent
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Every
from tenure.scheduling.events import Event, RunStarted
from tests.support.rows import execute
from tests.support.servers import create_database, start_test_server
from tests.support.waiting import eventually

NODES = 3
PERIOD = timedelta(seconds=20)
"""Long enough that one burst is over before the next."""
LIMIT_S = 2.0
HELD = "held"


@dataclass(frozen=True)
class Burst:
    """Hold how late each run began, in seconds and in order; each node's runs; and whether a held lease was lost."""

    lags_s: list[float]
    by_node: list[int]
    lost: int

    def quantile_s(self, share: float) -> float:
        """Give the lag that this share of the runs did not exceed."""
        return self.lags_s[min(int(len(self.lags_s) * share), len(self.lags_s) - 1)]


async def live(url: str, label: str, jobs: int) -> None:
    """Be one node, which holds a short lease all the while; say in the end how late runs began."""
    lags: dict[str, list[float]] = {}

    def hear(event: Event) -> None:
        if isinstance(event, RunStarted):
            lags.setdefault(event.scheduled_at.isoformat(), []).append(event.lag.total_seconds())

    async def nothing(run: AsyncJobRun) -> None:
        """Do nothing."""

    async def hold(lease: JobExecutionLease) -> None:
        await asyncio.sleep(3_600)

    async with AsyncJobSchedulerService(url, owner_label=label) as service:
        scheduler = AsyncScheduler(service, retention=None)
        scheduler.listen(hear)
        for number in range(jobs):
            scheduler.job(f"job-{number}", schedule=Every(PERIOD))(nothing)
        held = asyncio.create_task(
            service.run_exclusive(JobAcquireOptions(code=HELD, run_key=label, lease_ms=2_000, heartbeat_ms=500), hold)
        )
        await scheduler.run()
        lost = held.done()
        held.cancel()
        await asyncio.wait([held])
    print(json.dumps({"lags": lags, "lost": lost}), flush=True)


def burst(url: str, jobs: int) -> Burst:
    """Let the nodes live through one burst, on a fresh database."""
    with JobSchedulerService(url) as service:
        service.migrate()
    nodes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.scheduling.burst",
                "--node",
                f"node-{number}",
                "--url",
                url,
                f"--jobs={jobs}",
            ],
            stdout=subprocess.PIPE,
        )
        for number in range(NODES)
    ]
    try:
        registered = 'SELECT count(*) FROM "job-scheduler_nodes"'
        eventually(lambda: execute(url, registered) == [(NODES,)], 60)
        ((tick,),) = execute(
            url,
            "SELECT to_timestamp(ceil((extract(epoch FROM clock_timestamp()) + 2) / %s) * %s)",
            PERIOD.total_seconds(), PERIOD.total_seconds(),
        )  # fmt: skip
        done = 'SELECT count(*) FROM "job-scheduler" WHERE "scheduledAt" = %s AND "status" = \'SUCCESS\''
        eventually(lambda: execute(url, done, tick) == [(jobs,)], 90, 0.2)
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        told = [json.loads(node.communicate(timeout=60)[0]) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    ((attempts,),) = execute(url, 'SELECT max("attempt") FROM "job-scheduler" WHERE "scheduledAt" = %s', tick)
    assert attempts == 1
    lags = [each["lags"].get(tick.isoformat(), []) for each in told]
    return Burst(sorted(lag for some in lags for lag in some), [*map(len, lags)], sum(each["lost"] for each in told))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and fail if the 99th of a hundred began later than the limit, or a lease was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.scheduling.burst")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--node", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.node:
        die_with_parent()
        asyncio.run(live(given.url, given.node, given.jobs))
        return 0
    with start_test_server() as server:
        seen = burst(create_database(server, "burst"), given.jobs)
    p99_s = seen.quantile_s(0.99)
    print(
        f"{len(seen.lags_s)} runs in one second on {NODES} nodes {seen.by_node}: start lag p50 "
        f"{seen.quantile_s(0.5):.2f} s, p99 {p99_s:.2f} s (limit {LIMIT_S:.0f} s), most {seen.lags_s[-1]:.2f} s; "
        f"{seen.lost} leases lost"
    )
    return 1 if seen.lost or p99_s > LIMIT_S else 0


if __name__ == "__main__":
    sys.exit(main())
