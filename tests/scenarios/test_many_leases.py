"""All the live leases of a service are renewed together, and none holds up another (C5.2)."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from tenure import (
    AsyncJobSchedulerService,
    JobAcquireOptions,
    JobAcquireResult,
    JobExecutionLease,
    JobSchedulerService,
    LostJobLeaseError,
)
from tenure.clock import boot_s
from tests.support.rows import TABLE, row_of
from tests.support.waiting import eventually_async


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, **given})


class TestManyLeases:
    async def test_one_locked_row_holds_up_no_other(
        self, database_url: str, async_service: AsyncJobSchedulerService, rival: JobSchedulerService
    ) -> None:
        """C5.2 (xorbitsai/xagent#2248): 49 are renewed on time; the 50th is lost at its own deadline, not before."""
        lease_ms, started, lost_at, done = 1_200, {}, [], asyncio.Event()

        async def callback(lease: JobExecutionLease) -> str | None:
            started[lease.id] = lease
            try:
                await done.wait()
            except asyncio.CancelledError:
                lost_at.append((lease, boot_s()))
                raise
            return lease.lost

        runs = [
            asyncio.create_task(async_service.run_exclusive(options(str(n), lease_ms=lease_ms), callback))
            for n in range(50)
        ]
        await eventually_async(lambda: len(started) == 50)
        locked = next(iter(started))
        ages, wins = await asyncio.to_thread(_watch_with_one_locked, database_url, rival, locked, 3 * lease_ms / 1000)
        done.set()
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert [type(failure) for failure in failures] == [LostJobLeaseError]
        assert [lease.id for lease, _ in lost_at] == [locked]
        assert wins == []
        assert max(ages) < lease_ms / 1000
        hold = lost_at[0][0].hold
        assert hold is not None
        late_s = lost_at[0][1] - hold.window.deadline_boot_s
        print(f"told {late_s * 1000:.1f} ms after the local deadline")
        assert 0 <= late_s <= 0.1 * lease_ms / 1000

    async def test_different_heartbeats_live_together(
        self, database_url: str, async_service: AsyncJobSchedulerService
    ) -> None:
        """C5.2: each lease is renewed by its own heartbeat; a long one is not renewed at the pace of a short one."""
        done, started = asyncio.Event(), {}

        async def callback(lease: JobExecutionLease) -> str | None:
            started[lease.idempotency_key] = lease
            await done.wait()
            return lease.lost

        kinds = {"fast": (600, 100), "slow": (6_000, 2_000), "lazy": (900_000, 60_000)}
        wanted = {name: options(name, lease_ms=le, heartbeat_ms=hb) for name, (le, hb) in kinds.items()}
        runs = [asyncio.create_task(async_service.run_exclusive(each, callback)) for each in wanted.values()]
        await eventually_async(lambda: len(started) == 3)
        seen: dict[str, set[datetime]] = {name: set() for name in wanted}
        until_s = time.monotonic() + 3.0
        while time.monotonic() < until_s:
            for name, each in wanted.items():
                seen[name].add(row_of(database_url, each.lock_key)["modifiedAt"])
            await asyncio.sleep(0.03)
        done.set()
        assert [outcome.result for outcome in await asyncio.gather(*runs)] == [None, None, None]
        assert len(seen["fast"]) >= 10
        assert 2 <= len(seen["slow"]) <= 4
        assert len(seen["lazy"]) == 1


def _watch_with_one_locked(
    url: str, rival: JobSchedulerService, locked: UUID, seconds: float
) -> tuple[list[float], list[JobAcquireResult]]:
    """Hold a row's lock so long; give the oldest age of the others each time it was looked at, and a rival's wins."""
    ages: list[float] = []
    wins: list[JobAcquireResult] = []
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as looker:
        holder.execute(f'SELECT FROM {TABLE} WHERE "id" = %s FOR UPDATE', [locked])
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            oldest = looker.execute(
                f'SELECT max(EXTRACT(EPOCH FROM clock_timestamp() - "modifiedAt")) FROM {TABLE} WHERE "id" <> %s',
                [locked],
                prepare=False,
            ).fetchone()
            assert oldest is not None
            ages.append(float(oldest[0]))
            for n in (0, 7, 49):
                answer = rival.acquire(options(str(n)))
                wins.extend([answer] if answer.acquired else [])
            time.sleep(0.02)
        holder.rollback()
    return ages, wins
