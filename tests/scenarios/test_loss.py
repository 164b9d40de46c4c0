"""A lease that is lost is known to be lost: in time, with the reason, and to everybody concerned (C5.5, C5.6, C6.5)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure import (
    AsyncJobSchedulerService,
    JobAcquireOptions,
    JobExecutionLease,
    JobLease,
    JobSchedulerService,
    LostJobLeaseError,
    LostReason,
)
from tenure.keeper import Keeper
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, age, execute, row_of
from tests.support.waiting import eventually, eventually_async

OPTIONS = JobAcquireOptions(code="job", run_key="r", lease_ms=10_000, heartbeat_ms=200)
EXPIRING = JobAcquireOptions(code="job", run_key="r", lease_ms=500, heartbeat_ms=0)


def take_over(url: str, rival: JobSchedulerService, lease: JobLease) -> None:
    """Have a rival win the run, as if its lease had expired; a renewal may come between, so try again."""

    def won() -> bool:
        age(url, lease.id, timedelta(hours=1))
        return rival.acquire(OPTIONS).acquired

    assert eventually(won)


def release(url: str, rival: JobSchedulerService, lease: JobLease) -> None:
    assert rival.release(JobLease(lease.id, lease.owner_token))


def remove(url: str, rival: JobSchedulerService, lease: JobLease) -> None:
    execute(url, f'DELETE FROM {TABLE} WHERE "id" = %s', lease.id)


Loss = Callable[[str, JobSchedulerService, JobLease], None]
LOSSES: list[tuple[LostReason, Loss]] = [
    (LostReason.TAKEN_OVER, take_over),
    (LostReason.RELEASED, release),
    (LostReason.ROW_GONE, remove),
]
each_loss = pytest.mark.parametrize(("reason", "lose"), LOSSES, ids=[reason.name for reason, _ in LOSSES])


class TestRejectedRenewals:
    @each_loss
    def test_a_blocking_callback_sees_the_reason(
        self,
        service: JobSchedulerService,
        rival: JobSchedulerService,
        database_url: str,
        reason: LostReason,
        lose: Loss,
    ) -> None:
        """C5.5, C5.6: `lease.lost` says why soon after the next renewal, and `lease.check()` raises."""

        def callback(lease: JobExecutionLease) -> None:
            lease.check()
            lose(database_url, rival, lease)
            assert eventually(lambda: lease.lost, 3) is reason
            lease.check()

        with pytest.raises(LostJobLeaseError) as caught:
            service.run_exclusive(OPTIONS, callback)
        assert caught.value.reason is reason

    @each_loss
    async def test_an_async_callback_is_cancelled(
        self,
        async_service: AsyncJobSchedulerService,
        rival: JobSchedulerService,
        database_url: str,
        reason: LostReason,
        lose: Loss,
    ) -> None:
        """C5.5, C5.6: it is cancelled soon after the next renewal; LostJobLeaseError comes out, with the reason."""
        told: list[LostReason | None] = []

        async def callback(lease: JobExecutionLease) -> None:
            try:
                await asyncio.to_thread(lose, database_url, rival, lease)
                await asyncio.sleep(5)
            finally:
                told.append(lease.lost)

        with pytest.raises(LostJobLeaseError) as caught:
            await async_service.run_exclusive(OPTIONS, callback)
        assert caught.value.reason is reason
        assert told == [reason]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    @each_loss
    async def test_on_lost_continue_leaves_the_callback_alone(
        self,
        async_service: AsyncJobSchedulerService,
        rival: JobSchedulerService,
        database_url: str,
        reason: LostReason,
        lose: Loss,
    ) -> None:
        """C5.6: it is told by `lease.lost` only, and ends by itself; C6.5: then LostJobLeaseError."""
        ended: list[LostReason | None] = []

        async def callback(lease: JobExecutionLease) -> None:
            await asyncio.to_thread(lose, database_url, rival, lease)
            await eventually_async(lambda: lease.lost, 3)
            await asyncio.sleep(0.1)
            ended.append(lease.lost)

        with pytest.raises(LostJobLeaseError) as caught:
            await async_service.run_exclusive(OPTIONS, callback, on_lost="continue")
        assert ended == [reason]
        assert caught.value.reason is reason

    @each_loss
    def test_a_callback_that_ends_before_it_is_told(
        self,
        service: JobSchedulerService,
        rival: JobSchedulerService,
        database_url: str,
        reason: LostReason,
        lose: Loss,
    ) -> None:
        """C6.5: no renewal came between; the guarded write is refused, and says why; the row is left as it is."""
        rows: list[list[tuple[Any, ...]]] = []

        def callback(lease: JobExecutionLease) -> None:
            lose(database_url, rival, lease)
            rows.append(execute(database_url, f"SELECT * FROM {TABLE}"))

        lazy = JobAcquireOptions(code="job", run_key="r", lease_ms=10_000, heartbeat_ms=0)
        with pytest.raises(LostJobLeaseError) as caught:
            service.run_exclusive(lazy, callback)
        assert caught.value.reason is reason
        assert execute(database_url, f"SELECT * FROM {TABLE}") == rows[0]

    def test_the_callbacks_own_exception_wins(
        self, service: JobSchedulerService, rival: JobSchedulerService, database_url: str
    ) -> None:
        """C6.5: it comes out although the lease was lost, and the new holder's row is not touched."""

        def callback(lease: JobExecutionLease) -> None:
            take_over(database_url, rival, lease)
            eventually(lambda: lease.lost)
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            service.run_exclusive(OPTIONS, callback)
        row = row_of(database_url, OPTIONS.lock_key)
        assert (row["status"], row["attempt"], row["owner"]) == ("RUNNING", 2, "node-b")


class TestLocalDeadline:
    def test_a_renewal_that_hangs_is_no_renewal_blocking(self, database_url: str) -> None:
        """C5.5 (kubernetes#65094): a black hole; `lease.lost` at the local deadline, within 10 % of it."""
        with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as node:
            wanted = JobAcquireOptions(code="job", run_key="r", lease_ms=4_000)

            def callback(lease: JobExecutionLease) -> None:
                first = row_of(database_url, lease.id)["modifiedAt"]
                eventually(lambda: row_of(database_url, lease.id)["modifiedAt"] > first)
                proxy.black_hole()
                eventually(lambda: lease.lost, 10, 0.002)
                told.append(datetime.now(UTC))
                _assert_told_in_time(database_url, told[0], 4.0)
                proxy.heal()
                lease.check()

            told: list[datetime] = []
            with pytest.raises(LostJobLeaseError) as caught:
                node.run_exclusive(wanted, callback)
        assert caught.value.reason is LostReason.UNREACHABLE

    async def test_a_renewal_that_hangs_is_no_renewal_async(self, database_url: str) -> None:
        """C5.5, C5.6: the callback is cancelled at the local deadline, within 10 %, though the call hangs."""
        with FaultProxy.in_front_of(database_url) as proxy:
            async with AsyncJobSchedulerService(proxy.url(database_url)) as node:
                wanted = JobAcquireOptions(code="job", run_key="r", lease_ms=4_000)
                told: list[datetime] = []

                async def callback(lease: JobExecutionLease) -> None:
                    first = row_of(database_url, lease.id)["modifiedAt"]
                    await eventually_async(lambda: row_of(database_url, lease.id)["modifiedAt"] > first)
                    proxy.black_hole()
                    try:
                        await asyncio.sleep(30)
                    finally:
                        told.append(datetime.now(UTC))

                began_s = time.monotonic()
                with pytest.raises(LostJobLeaseError) as caught:
                    await node.run_exclusive(wanted, callback)
                assert time.monotonic() - began_s < 4.0 * 2 + 3
                _assert_told_in_time(database_url, told[0], 4.0)
                proxy.heal()
        assert caught.value.reason is LostReason.UNREACHABLE

    def test_no_thread_has_to_run_for_it(self, service: JobSchedulerService, monkeypatch: pytest.MonkeyPatch) -> None:
        """C5.5: with the keeper never started, `lease.lost` says unreachable from the local deadline on, not before."""
        service.list_runs()  # so that no connection has to be opened in the time that is measured
        monkeypatch.setattr(Keeper, "keep", lambda *_: None)

        def callback(lease: JobExecutionLease) -> tuple[float, float]:
            began_s = time.monotonic()
            assert not [thread for thread in threading.enumerate() if thread.name == "tenure-keeper"]
            assert eventually(lambda: lease.lost, 3, 0.002) is LostReason.UNREACHABLE
            return began_s, time.monotonic()

        wanted = JobAcquireOptions(code="job", run_key="r", lease_ms=1_000)
        asked_s = time.monotonic()
        result = service.run_exclusive(wanted, callback).result
        assert result is not None
        began_s, told_s = result
        assert told_s - asked_s >= 0.95, "it counts from when the acquire was sent, which was no earlier"
        assert told_s - began_s <= 1.25, "and that was no later than the callback began"


def _assert_told_in_time(url: str, told: datetime, lease_s: float) -> None:
    """Compare with the local deadline: 95 % of the lease after the last renewal was sent, at about the row's stamp."""
    last = execute(url, f'SELECT "modifiedAt" FROM {TABLE}')[0][0]
    share = (told - last).total_seconds() / lease_s
    print(f"told after {share:.4f} of the lease; the deadline is at 0.95")
    assert 0.85 <= share <= 1.045


class TestLateCallbacks:
    def test_late_and_still_ours_is_a_success(self, service: JobSchedulerService, database_url: str) -> None:
        """C6.5: it returned after the local deadline, nobody had taken the row: a success."""

        def callback(lease: JobExecutionLease) -> str:
            assert eventually(lambda: lease.lost) is LostReason.EXPIRED
            return "late"

        assert service.run_exclusive(EXPIRING, callback).result == "late"
        assert row_of(database_url, EXPIRING.lock_key)["status"] == "SUCCESS"

    def test_late_and_taken_is_a_loss(
        self, service: JobSchedulerService, rival: JobSchedulerService, database_url: str
    ) -> None:
        """C6.5: somebody else has the row: LostJobLeaseError, taken over; the new holder's row is not touched."""

        def callback(lease: JobExecutionLease) -> str:
            eventually(lambda: rival.acquire(OPTIONS).acquired)
            return "late"

        with pytest.raises(LostJobLeaseError) as caught:
            service.run_exclusive(EXPIRING, callback)
        assert caught.value.reason is LostReason.TAKEN_OVER
        row = row_of(database_url, EXPIRING.lock_key)
        assert (row["status"], row["attempt"], row["owner"]) == ("RUNNING", 2, "node-b")

    async def test_a_swallowed_cancellation_is_a_late_return(
        self, async_service: AsyncJobSchedulerService, rival: JobSchedulerService, database_url: str
    ) -> None:
        """C6.5: a callback may catch the cancellation and return: success if the row is still ours, else a loss."""
        task = asyncio.current_task()
        assert task is not None

        async def stubborn() -> str:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                await asyncio.sleep(0.05)
                return "stubborn"
            return "never told"

        assert (await async_service.run_exclusive(EXPIRING, stubborn)).result == "stubborn"
        assert row_of(database_url, EXPIRING.lock_key)["status"] == "SUCCESS"
        assert task.cancelling() == 0

        async def stubborn_and_slow() -> str:
            value = await stubborn()
            await eventually_async(lambda: rival.acquire(second).acquired)
            return value

        second = JobAcquireOptions(code="job", run_key="second", lease_ms=500, heartbeat_ms=0)
        with pytest.raises(LostJobLeaseError) as caught:
            await async_service.run_exclusive(second, stubborn_and_slow)
        assert caught.value.reason is LostReason.TAKEN_OVER
        assert task.cancelling() == 0

    async def test_an_exception_made_of_the_cancellation_wins(self, async_service: AsyncJobSchedulerService) -> None:
        """C6.5: a callback that turns the cancellation into an error of its own gets that error."""

        async def callback() -> None:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError as error:
                raise ValueError("mine") from error

        with pytest.raises(ValueError, match="mine"):
            await async_service.run_exclusive(EXPIRING, callback)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
