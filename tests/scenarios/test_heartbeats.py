"""Heartbeats by hand, and leases that nobody renews (C5.1, C5.5, C3.6)."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from tenure import (
    AsyncJobSchedulerService,
    JobAcquireOptions,
    JobExecutionLease,
    JobSchedulerService,
    LostJobLeaseError,
    LostReason,
)
from tests.support.rows import row_of
from tests.support.waiting import eventually

LEASE_MS = 900
LEASE_S = LEASE_MS / 1000


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, "lease_ms": LEASE_MS, **given})


def modified_at(url: str, run: UUID) -> datetime:
    found = row_of(url, run)["modifiedAt"]
    assert isinstance(found, datetime)
    return found


class TestByHand:
    def test_heartbeat_says_whose_the_run_is(self, database_url: str, service: JobSchedulerService) -> None:
        """C5.1: True and a younger row for the current owner; False, and nothing written, for anybody else."""
        won = service.acquire(options())
        assert won.acquired
        first = modified_at(database_url, won.id)
        assert service.heartbeat(won) is True
        assert modified_at(database_url, won.id) > first
        assert service.complete(won) is True
        settled = row_of(database_url, won.id)
        assert service.heartbeat(won) is False
        assert row_of(database_url, won.id) == settled

    def test_a_heartbeat_by_hand_moves_the_local_deadline(self, service: JobSchedulerService) -> None:
        """C3.6, C5.5: with renewal off, heartbeats by hand keep the lease for three leases; then it is `expired`."""

        def callback(lease: JobExecutionLease) -> float:
            for _ in range(9):
                time.sleep(LEASE_S / 3)
                sent_s = time.monotonic()
                assert service.heartbeat(lease)
                lease.check()
            eventually(lambda: lease.lost is LostReason.EXPIRED, 3 * LEASE_S, 0.002)
            return (time.monotonic() - sent_s) / LEASE_S

        told_after = service.run_exclusive(options(heartbeat_ms=0), callback).result
        assert told_after is not None
        assert 0.94 <= told_after <= 1.05

    async def test_without_renewal_the_lease_expires_at_the_local_deadline(
        self, async_service: AsyncJobSchedulerService
    ) -> None:
        """C3.6, C5.5: `heartbeat_ms=0`; the callback is cancelled after 95 % of the lease, with the reason."""
        began_s, told_s = time.monotonic(), 0.0

        async def callback() -> None:
            nonlocal told_s
            try:
                await asyncio.sleep(60)
            finally:
                told_s = time.monotonic()

        with pytest.raises(LostJobLeaseError) as caught:
            await async_service.run_exclusive(options(heartbeat_ms=0), callback)
        assert caught.value.reason is LostReason.EXPIRED
        assert 0.94 <= (told_s - began_s) / LEASE_S <= 1.15
