"""Live leases are renewed whatever their callbacks do, and whatever happens to a round (C5.1 to C5.3, C5.8, C3.6)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tenure import (
    AsyncJobSchedulerService,
    JobAcquireOptions,
    JobAcquireResult,
    JobExecutionLease,
    JobSchedulerService,
    LostReason,
    operations,
)
from tenure.keeper import Keeper
from tests.support.proxy import FaultProxy
from tests.support.rows import execute, row_of
from tests.support.servers import create_database, start_test_server
from tests.support.waiting import eventually, eventually_async

LEASE_MS = 900
LEASE_S = LEASE_MS / 1000
RENEWAL = b"unnest"


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, "lease_ms": LEASE_MS, **given})


class Contender:
    """A rival that tries to win one run, over and over, from a thread of its own."""

    def __init__(self, rival: JobSchedulerService, wanted: JobAcquireOptions) -> None:
        self.tries = 0
        self.wins: list[JobAcquireResult] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._try, args=(rival, wanted))
        self._thread.start()

    def _try(self, rival: JobSchedulerService, wanted: JobAcquireOptions) -> None:
        while not self._stop.wait(0.02):
            answer = rival.acquire(wanted)
            self.tries += 1
            if answer.acquired:
                self.wins.append(answer)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def lost_every_time(self, at_least: int = 20) -> bool:
        return self.tries >= at_least and not self.wins


def modified_at(url: str, run: UUID) -> datetime:
    found = row_of(url, run)["modifiedAt"]
    assert isinstance(found, datetime)
    return found


def renewed(url: str, run: UUID, since: datetime) -> bool:
    return modified_at(url, run) > since


def above_debug(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("tenure") and r.levelno > logging.DEBUG]


def kill_keepers(url: str) -> int:
    """Terminate the backends whose last statement was a renewal."""
    return len(
        execute(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND query LIKE 'WITH asked%'",
        )
    )


class TestCallbacksThatTakeLong:
    async def test_a_blocked_event_loop_keeps_its_run(
        self, async_service: AsyncJobSchedulerService, rival: JobSchedulerService
    ) -> None:
        """C5.3 (agronholm/apscheduler#1116, PrefectHQ/prefect#21184): `time.sleep(3 x lease)` on the loop."""

        async def callback(lease: JobExecutionLease) -> tuple[LostReason | None, bool]:
            contender = Contender(rival, options())
            time.sleep(3 * LEASE_S)
            contender.end()
            return lease.lost, contender.lost_every_time()

        outcome = await async_service.run_exclusive(options(), callback)
        assert outcome.result == (None, True)

    def test_a_blocking_callback_keeps_its_run(self, service: JobSchedulerService, rival: JobSchedulerService) -> None:
        """C5.2: three leases long, and a rival tries throughout."""

        def callback(lease: JobExecutionLease) -> tuple[LostReason | None, bool]:
            contender = Contender(rival, options())
            time.sleep(3 * LEASE_S)
            contender.end()
            return lease.lost, contender.lost_every_time()

        assert service.run_exclusive(options(), callback).result == (None, True)

    @pytest.mark.parametrize("shell", ["blocking", "async"])
    async def test_closing_the_service_does_not_end_renewal(
        self, database_url: str, rival: JobSchedulerService, shell: str
    ) -> None:
        """C5.2 (db-scheduler#365, #558; ShedLock#1932): shutdown in mid-run; it goes on until the callback ended."""
        contenders: list[Contender] = []

        def blocking(lease: JobExecutionLease) -> LostReason | None:
            contenders.append(Contender(rival, options()))
            node.close()
            time.sleep(3 * LEASE_S)
            contenders[0].end()
            return lease.lost

        async def awaited(lease: JobExecutionLease) -> LostReason | None:
            contenders.append(Contender(rival, options()))
            await async_node.close()
            await asyncio.sleep(3 * LEASE_S)
            contenders[0].end()
            return lease.lost

        if shell == "blocking":
            node = JobSchedulerService(database_url)
            outcome = await asyncio.to_thread(node.run_exclusive, options(), blocking)
        else:
            async_node = AsyncJobSchedulerService(database_url)
            outcome = await async_node.run_exclusive(options(), awaited)
        assert outcome.acquired
        assert outcome.result is None
        assert contenders[0].lost_every_time()
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"


class TestRoundsThatFail:
    @pytest.mark.direct("it kills the keeper's session in the server: a pooler's sessions belong to nobody")
    def test_the_keepers_connection_may_be_killed_again_and_again(
        self, database_url: str, service: JobSchedulerService, rival: JobSchedulerService
    ) -> None:
        """C5.2 (iceberg#2034, ShedLock#1563): a failed round does not end renewal."""

        def callback(lease: JobExecutionLease) -> int:
            contender = Contender(rival, options())
            until_s, killed = time.monotonic() + 5 * LEASE_S, 0
            while time.monotonic() < until_s:
                since = modified_at(database_url, lease.id)
                killed += kill_keepers(database_url)
                time.sleep(LEASE_S / 3)
                # killed while it reconnects on a busy machine, it would lose not a round but the lease
                eventually(partial(renewed, database_url, lease.id, since))
            contender.end()
            lease.check()
            assert contender.lost_every_time()
            return killed

        killed = service.run_exclusive(options(), callback).result
        assert killed is not None
        assert killed >= 3

    def test_renewals_may_be_cut_before_and_after_their_commit(
        self, database_url: str, rival: JobSchedulerService
    ) -> None:
        """C5.2: the connection is reset under three renewals of each kind, in a row."""
        with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as node:

            def callback(lease: JobExecutionLease) -> None:
                contender = Contender(rival, options())
                proxy.cut_before(RENEWAL, 3)
                proxy.cut_after(RENEWAL, 3)
                eventually(lambda: proxy.cut == 6)
                since = modified_at(database_url, lease.id)
                eventually(partial(renewed, database_url, lease.id, since))
                contender.end()
                lease.check()
                assert contender.lost_every_time(5)

            assert node.run_exclusive(options(lease_ms=9_000, heartbeat_ms=100), callback).acquired

    def test_a_server_that_restarts_in_time_costs_no_lease(self) -> None:
        """C5.2: `restart -m immediate` in mid-run; renewal goes on."""
        with start_test_server() as own:
            url = create_database(own, "restarted")
            with JobSchedulerService(url) as node:
                node.migrate()

                def callback(lease: JobExecutionLease) -> LostReason | None:
                    first = modified_at(url, lease.id)
                    eventually(lambda: modified_at(url, lease.id) > first)
                    own.restart("immediate")
                    back = datetime.now(UTC)
                    eventually(lambda: modified_at(url, lease.id) > back)
                    return lease.lost

                outcome = node.run_exclusive(options(lease_ms=6_000, heartbeat_ms=300), callback)
                assert outcome.acquired
                assert outcome.result is None
                assert row_of(url, options().lock_key)["status"] == "SUCCESS"

    async def test_an_outage_that_ends_before_the_deadline_costs_no_lease(self, database_url: str) -> None:
        """C5.5: the pause between rounds must not outlast the lease that is most pressed.

        The server is away from a quarter of the lease to three quarters of it. Six services, since pauses are random.
        """
        lease_s = 4.0

        async def held(proxy: FaultProxy) -> LostReason | None:
            async with AsyncJobSchedulerService(proxy.url(database_url)) as node:

                async def callback(lease: JobExecutionLease) -> LostReason | None:
                    await asyncio.sleep(lease_s * 0.25)
                    proxy.refuse_new(True)
                    proxy.reset_all()
                    await asyncio.sleep(lease_s * 0.5)
                    proxy.heal()
                    await asyncio.sleep(lease_s * 0.5)
                    return lease.lost

                outcome = await node.run_exclusive(
                    options(str(proxy.port), lease_ms=int(lease_s * 1000)), callback, on_lost="continue"
                )
                return outcome.result

        proxies = [FaultProxy.in_front_of(database_url) for _ in range(6)]
        for proxy in proxies:
            proxy.__enter__()
        try:
            assert await asyncio.gather(*map(held, proxies)) == [None] * 6
        finally:
            for proxy in proxies:
                proxy.close()

    def test_a_run_won_after_an_outage_does_not_wait_out_the_pause(self, database_url: str) -> None:
        """C5.2: a keeper that pauses after many failed rounds for a long lease renews a short newcomer in time."""
        with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as node:

            def short(lease: JobExecutionLease) -> LostReason | None:
                time.sleep(1.5 * 0.6)
                return lease.lost

            def long(lease: JobExecutionLease) -> LostReason | None:
                proxy.refuse_new(True)
                proxy.reset_all()
                eventually(lambda: node._keeper._troubles.failures >= 7, 20)
                proxy.heal()
                return node.run_exclusive(options("short", lease_ms=900), short).result

            outcome = node.run_exclusive(options("long", lease_ms=60_000, heartbeat_ms=50), long)
            assert outcome.acquired
            assert outcome.result is None

    def test_a_short_lease_is_renewed_while_a_renewal_of_long_ones_hangs(
        self, database_url: str, rival: JobSchedulerService
    ) -> None:
        """C5.5 (kubernetes#65094, dynamolock#446): the hanging call is given up for the newcomer's sake."""
        with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as node:

            def short(lease: JobExecutionLease) -> bool:
                contender = Contender(rival, options("short", lease_ms=900))
                time.sleep(3 * 0.9)
                contender.end()
                return lease.lost is None and contender.lost_every_time()

            def long() -> bool | None:
                proxy.stall_after(RENEWAL)
                eventually(lambda: proxy.stalled == 1)
                return node.run_exclusive(options("short", lease_ms=900), short).result

            assert node.run_exclusive(options("long", lease_ms=60_000, heartbeat_ms=100), long).result is True

    async def test_an_outage_of_several_leases_costs_little(
        self, database_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """C5.2, C11 (underway#91): ten leases in an outage take under 5 % of a core and few log lines.

        They are lost by then, but renewed once it is over: their callbacks have not ended.
        """
        with FaultProxy.in_front_of(database_url) as proxy:
            async with AsyncJobSchedulerService(proxy.url(database_url)) as node:
                started, done = [], asyncio.Event()

                async def callback(lease: JobExecutionLease) -> None:
                    started.append(lease)
                    await done.wait()

                runs = [
                    asyncio.create_task(node.run_exclusive(options(str(n)), callback, on_lost="continue"))
                    for n in range(10)
                ]
                await eventually_async(lambda: len(started) == 10)
                proxy.refuse_new(True)
                proxy.reset_all()
                await asyncio.sleep(LEASE_S)
                before_cpu_s, before_s = time.process_time(), time.monotonic()
                await asyncio.sleep(3 * LEASE_S)
                share = (time.process_time() - before_cpu_s) / (time.monotonic() - before_s)
                lines = len(above_debug(caplog))
                assert [lease.lost for lease in started] == [LostReason.UNREACHABLE] * 10
                back = datetime.now(UTC)
                proxy.heal()
                await eventually_async(lambda: all(modified_at(database_url, each.id) > back for each in started))
                done.set()
                await asyncio.gather(*runs, return_exceptions=True)
        assert share < 0.05
        assert 1 <= lines <= 3


class TestEnds:
    @pytest.mark.parametrize("outcome", ["complete", "fail"])
    def test_a_renewal_that_meets_its_own_settled_row_is_no_loss(
        self,
        database_url: str,
        outcome: str,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """C5.8 (db-scheduler#654, dynamodb-lock-client#1): nothing above debug, no loss, no renewal afterwards."""
        met: list[str] = []
        original = Keeper._end

        def spy(keeper: Keeper, kept: Any, verdict: str) -> None:
            met.append(verdict)
            original(keeper, kept, verdict)

        monkeypatch.setattr(Keeper, "_end", spy)
        with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as node:

            def callback(lease: JobExecutionLease) -> LostReason | None:
                first = modified_at(database_url, lease.id)
                eventually(lambda: modified_at(database_url, lease.id) > first)
                proxy.hold_answer(b"WITH settled", LEASE_S)
                assert getattr(node, outcome)(lease, {"by": "hand"})
                settled = row_of(database_url, lease.id)
                time.sleep(2 * LEASE_S)
                assert row_of(database_url, lease.id) == settled
                return lease.lost

            answer = node.run_exclusive(options(heartbeat_ms=20), callback)
        assert answer.result is None
        assert answer.acquired
        assert met == [{"complete": "SUCCESS", "fail": "FAIL"}[outcome]]
        assert above_debug(caplog) == []

    @pytest.mark.parametrize("outcome", ["complete", "fail"])
    def test_a_renewal_that_is_answered_before_the_settling_is_no_loss(
        self,
        database_url: str,
        outcome: str,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """C5.8, C6.4: the commit's answer is swallowed; renewals meet the settled row before its caller knows."""
        monkeypatch.setattr(operations, "CALL_LIMIT_S", 1.0)
        with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as node:

            def callback(lease: JobExecutionLease) -> LostReason | None:
                first = modified_at(database_url, lease.id)
                eventually(lambda: modified_at(database_url, lease.id) > first)
                proxy.stall_after(b"WITH settled")
                assert getattr(node, outcome)(lease) is True
                assert proxy.stalled == 1
                return lease.lost

            answer = node.run_exclusive(options(lease_ms=60_000, heartbeat_ms=50), callback)
        assert answer.acquired
        assert answer.result is None
        assert above_debug(caplog) == []

    @pytest.mark.parametrize("outcome", ["returns", "raises"])
    def test_nothing_is_renewed_once_run_exclusive_has_ended(
        self, database_url: str, service: JobSchedulerService, outcome: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """C5.8: the row is as settling left it, several heartbeats later; in silence."""

        def callback() -> None:
            time.sleep(0.1)
            if outcome == "raises":
                raise RuntimeError("on purpose")

        for n in range(5):
            try:
                service.run_exclusive(options(str(n), heartbeat_ms=10), callback)
            except RuntimeError:
                assert outcome == "raises"
        before = [row_of(database_url, options(str(n)).lock_key) for n in range(5)]
        time.sleep(0.3)
        assert [row_of(database_url, options(str(n)).lock_key) for n in range(5)] == before
        assert all(row["modifiedAt"] == row["finishedAt"] or row["finishedAt"] >= row["modifiedAt"] for row in before)
        assert above_debug(caplog) == []
