"""Waiting for runs that other nodes hold (C8)."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tenure import (
    AsyncJobSchedulerService,
    DatabaseProblem,
    JobAcquired,
    JobAcquireOptions,
    JobDatabaseError,
    JobExecutionLease,
    JobSchedulerService,
    JobSchedulerType,
    WaitTimeoutError,
)
from tests.support.pgbouncer import free_port
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, execute, row_of
from tests.support.servers import create_database, start_test_server
from tests.support.waiting import eventually

SOON = timedelta(seconds=20)


def options(key: str = "1", lease_ms: int = 60_000) -> JobAcquireOptions:
    return JobAcquireOptions(code="waiting", run_key=key, lease_ms=lease_ms)


def won(service: JobSchedulerService, key: str = "1", lease_ms: int = 60_000) -> JobAcquired:
    found = service.acquire(options(key, lease_ms))
    assert isinstance(found, JobAcquired)
    return found


class Heard:
    """A waiter in a thread: what it heard, and when."""

    def __init__(self, wait: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.at_s = 0.0
        self._thread = threading.Thread(target=self._run, args=(wait,))
        self._thread.start()

    def _run(self, wait: Callable[[], Any]) -> None:
        try:
            self.value = wait()
        except BaseException as error:
            self.error = error
        self.at_s = time.monotonic()

    def join(self) -> Heard:
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.error:
            raise self.error
        return self


class TestWait:
    def test_it_gives_the_data_of_the_run(self, service: JobSchedulerService, rival: JobSchedulerService) -> None:
        """C8.1: soon after the end; a run that is done already is heard of at once."""
        lease = won(service)
        waiter = Heard(lambda: rival.wait(options(), SOON))
        eventually(rival._lookout._has_work)
        ended_s = time.monotonic()
        service.complete(lease, {"rows": 3})
        assert waiter.join().value == {"rows": 3}
        assert waiter.at_s - ended_s < 1.5
        assert rival.wait(options(), SOON) == {"rows": 3}

    def test_the_end_is_heard_of_within_300_ms(self, service: JobSchedulerService, rival: JobSchedulerService) -> None:
        """C8: the median of several waits, so that one busy moment decides nothing."""
        took: list[float] = []
        for key in map(str, range(7)):
            lease = won(service, key)
            waiter = Heard(lambda key=key: rival.wait(options(key), SOON))  # type: ignore[misc]  # bound per loop
            time.sleep(0.6)  # past the first quick looks
            ended_s = time.monotonic()
            service.complete(lease)
            took.append(waiter.join().at_s - ended_s)
        assert sorted(took)[3] < 0.3

    def test_a_failure_is_not_the_end(self, service: JobSchedulerService, rival: JobSchedulerService) -> None:
        """C8.1: it waits until the run succeeded, whoever does it."""
        lease = won(service)
        waiter = Heard(lambda: rival.wait(options(), SOON))
        service.fail(lease)
        service.complete(won(service), {"attempt": 2})
        assert waiter.join().value == {"attempt": 2}

    def test_time_is_up_and_the_holder_is_named(self, service: JobSchedulerService, rival: JobSchedulerService) -> None:
        """C8.1: `WaitTimeoutError` says who has it."""
        won(service)
        with pytest.raises(WaitTimeoutError, match="node-a") as caught:
            rival.wait(options(), timedelta(seconds=0.7))
        assert caught.value.holder == "node-a"

    def test_how_long_is_a_timedelta(self, service: JobSchedulerService) -> None:
        """C1.1: a bare number has no unit."""
        with pytest.raises(TypeError, match="timedelta"):
            service.wait(options(), 5)  # type: ignore[arg-type]  # refused at run time, too

    @pytest.mark.direct("it counts transactions, which the sessions of the server report late: a pooler's are many")
    def test_100_waiters_cost_one_query_a_round(self, service: JobSchedulerService, database_url: str) -> None:
        """C8.1: counted by the server, which reports late; one a waiter would be well over 1,000."""
        leases = [won(service, str(n)) for n in range(100)]
        with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as waiting:
            waiters = [Heard(lambda n=n: waiting.wait(options(str(n)), SOON)) for n in range(100)]  # type: ignore[misc]  # bound per loop
            eventually(lambda: len(waiting._lookout._watches) == 100)
            began = statements_of(database_url)
            time.sleep(2)
            assert statements_of(database_url) - began < 100
            assert proxy.connections <= 2
            for lease in leases:
                service.complete(lease)
            for waiter in waiters:
                waiter.join()

    def test_a_database_that_goes_away_for_a_while_is_outlived(
        self, service: JobSchedulerService, database_url: str
    ) -> None:
        """C8.1: waiters wait on, and hear of the end afterwards."""
        lease = won(service)
        with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as waiting:
            waiter = Heard(lambda: waiting.wait(options(), SOON))
            eventually(lambda: proxy.connections > 0)
            proxy.refuse_new(True)
            proxy.reset_all()
            service.complete(lease, {"rows": 1})
            time.sleep(0.5)
            proxy.heal()
            assert waiter.join().value == {"rows": 1}

    async def test_async_waiters_share_a_lookout(self, async_service: AsyncJobSchedulerService) -> None:
        """C8.1, C1.2: the same on a loop, and a cancelled waiter leaves."""
        lease = await async_service.acquire(options())
        assert isinstance(lease, JobAcquired)
        waiters = [asyncio.create_task(async_service.wait(options(), SOON)) for _ in range(10)]
        waiters[0].cancel()
        await asyncio.sleep(0.2)
        await async_service.complete(lease, {"rows": 1})
        assert await asyncio.gather(*waiters[1:]) == [{"rows": 1}] * 9
        assert not async_service._lookout._has_work()
        with pytest.raises(WaitTimeoutError):
            await async_service.wait(options("nobody"), timedelta(seconds=0.2))


class TestTrouble:
    """What somebody must mend is told at once; what passes is waited out (C8.1, C9.4)."""

    def test_a_missing_table_is_told_to_every_waiter_at_once(self, empty_database_url: str) -> None:
        """C9.4: each gets an exception of its own, and later waiters are served once it is mended."""
        with JobSchedulerService(empty_database_url) as service:
            began_s = time.monotonic()
            waiters = [Heard(lambda: service.wait(options(), SOON)) for _ in range(5)]
            errors = [told_by(waiter, DatabaseProblem.SCHEMA_MISSING) for waiter in waiters]
            assert time.monotonic() - began_s < 5
            assert len({id(error) for error in errors}) == 5
            assert "tenure schema apply" in str(errors[0])
            assert not service._lookout._has_work()

            service.migrate()
            waiter = Heard(lambda: service.wait(options(), SOON))
            service.complete(won(service), {"rows": 2})
            assert waiter.join().value == {"rows": 2}

    async def test_a_missing_schema_is_told_at_once_on_a_loop(self, database_url: str) -> None:
        """C1.2, C9.4: likewise."""
        async with AsyncJobSchedulerService(database_url, schema="elsewhere") as service:
            waiters = [asyncio.create_task(service.wait(options(), SOON)) for _ in range(5)]
            errors = await asyncio.wait_for(asyncio.gather(*waiters, return_exceptions=True), 5)
            assert len({id(error) for error in errors}) == 5
            for error in errors:
                assert isinstance(error, JobDatabaseError)
                assert error.problem is DatabaseProblem.SCHEMA_MISSING

    def test_a_missing_grant_is_told_at_once_with_the_mend(self, service: JobSchedulerService, role: Role) -> None:
        """C9.4: what it names is enough; to look on, SELECT would do."""
        service.complete(won(service), {"rows": 4})
        with JobSchedulerService(role.url) as waiting:
            for _ in range(2):
                error = told_by(Heard(lambda: waiting.wait(options(), SOON)), DatabaseProblem.GRANT_MISSING)
                role.allow(str(error).split("run: ")[1])
            assert waiting.wait(options(), SOON) == {"rows": 4}

    def test_a_grant_that_is_taken_away_in_the_middle_is_told(self, service: JobSchedulerService, role: Role) -> None:
        """C9.4: to a waiter whose first looks went well."""
        won(service)
        role.allow(
            f"GRANT USAGE ON SCHEMA public TO {role.name}; GRANT SELECT, INSERT, UPDATE ON {TABLE} TO {role.name}"
        )
        with JobSchedulerService(role.url) as waiting:
            waiter = Heard(lambda: waiting.run_exclusive(options(), pytest.fail, wait=SOON))
            eventually(lambda: [watch for watch in list(waiting._lookout._watches) if watch.holder == "node-a"])
            role.allow(f"REVOKE SELECT ON {TABLE} FROM {role.name}")
            assert TABLE in str(told_by(waiter, DatabaseProblem.GRANT_MISSING))

    def test_a_read_only_database_can_be_waited_on(self, service: JobSchedulerService, role: Role) -> None:
        """C9.4: to wait changes nothing, so a standby will do."""
        lease = won(service)
        role.allow(f"GRANT USAGE ON SCHEMA public TO {role.name}; GRANT SELECT ON {TABLE} TO {role.name}")
        role.allow(f"ALTER ROLE {role.name} SET default_transaction_read_only = on")
        with JobSchedulerService(role.url) as waiting:
            waiter = Heard(lambda: waiting.wait(options(), SOON))
            eventually(lambda: [watch for watch in list(waiting._lookout._watches) if watch.holder == "node-a"])
            service.complete(lease, {"rows": 5})
            assert waiter.join().value == {"rows": 5}
            with pytest.raises(JobDatabaseError, match="read-only"):
                waiting.acquire(options("another"))

    def test_a_server_that_restarts_meanwhile_is_waited_out(self) -> None:
        """C8.1: `restart -m immediate`, twice; the end is heard of afterwards."""
        with start_test_server() as own:
            url = create_database(own, "restarted")
            with JobSchedulerService(url) as service, JobSchedulerService(url) as waiting:
                service.migrate()
                lease = won(service)
                waiter = Heard(lambda: waiting.wait(options(), timedelta(seconds=60)))
                for _ in range(2):
                    eventually(lambda: [watch for watch in list(waiting._lookout._watches) if watch.trouble is None])
                    own.restart("immediate")
                service.complete(lease, {"rows": 6})
                assert waiter.join().value == {"rows": 6}

    def test_when_the_time_is_up_what_kept_it_from_looking_is_the_cause(
        self, service: JobSchedulerService, database_url: str
    ) -> None:
        """C8.1, C11: who held it when it was last seen, and why it cannot be seen now."""
        won(service)
        with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as waiting:
            waiter = Heard(lambda: waiting.wait(options(), timedelta(seconds=2)))
            eventually(lambda: [watch for watch in list(waiting._lookout._watches) if watch.holder == "node-a"])
            proxy.refuse_new(True)
            proxy.reset_all()
            with pytest.raises(WaitTimeoutError, match=r"within 2 s.*could not be looked at: .* be reached") as caught:
                waiter.join()
            assert caught.value.holder == "node-a"
            assert isinstance(caught.value.__cause__, JobDatabaseError)
            assert caught.value.__cause__.transient
            proxy.heal()

    async def test_the_same_on_a_loop_with_nobody_there(self) -> None:
        """C8.1: a database that was never reached."""
        url = f"postgresql://nobody@127.0.0.1:{free_port()}/nowhere"
        async with AsyncJobSchedulerService(url) as service:
            with pytest.raises(WaitTimeoutError, match=r"could not be looked at: .* be reached") as caught:
                await service.wait(options(), timedelta(seconds=1))
        assert isinstance(caught.value.__cause__, JobDatabaseError)
        assert caught.value.holder is None

    def test_trouble_that_has_passed_is_no_cause(self, service: JobSchedulerService, database_url: str) -> None:
        """C8.1: the last look went well, so the holder is all there is to say."""
        won(service)
        with FaultProxy.in_front_of(database_url) as proxy, JobSchedulerService(proxy.url(database_url)) as waiting:
            waiter = Heard(lambda: waiting.wait(options(), timedelta(seconds=4)))
            eventually(lambda: proxy.connections > 0)
            proxy.reset_all()
            eventually(lambda: proxy.connections > 1)
            with pytest.raises(WaitTimeoutError, match="held by 'node-a'") as caught:
                waiter.join()
            assert caught.value.__cause__ is None


@dataclass(frozen=True)
class Role:
    """A role that may log in; the owner allows it more, or less."""

    name: str
    url: str
    owner_url: str

    def allow(self, statements: str) -> None:
        execute(self.owner_url, statements)


@pytest.fixture
def role(database_url: str) -> Iterator[Role]:
    name = f"waiter_{uuid4().hex[:8]}"
    execute(database_url, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    execute(database_url, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    yield Role(name, make_conninfo(database_url, user=name, password="secret"), database_url)
    execute(database_url, f"DROP OWNED BY {name}")
    execute(database_url, f"DROP ROLE {name}")


def told_by(waiter: Heard, problem: DatabaseProblem) -> JobDatabaseError:
    """Give what a waiter was told, which is that."""
    with pytest.raises(JobDatabaseError) as caught:
        waiter.join()
    assert caught.value.problem is problem
    assert not caught.value.transient
    return caught.value


def statements_of(url: str) -> int:
    """Count the transactions of a database, without the counter's own."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        time.sleep(0.1)
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


class TestRunExclusive:
    def test_it_takes_over_when_the_holder_fails(
        self, service: JobSchedulerService, rival: JobSchedulerService
    ) -> None:
        """C8.1: with attempt 2."""
        lease = won(service)
        waiter = Heard(lambda: rival.run_exclusive(options(), lambda lease: lease.attempt, wait=SOON))
        time.sleep(0.3)
        service.fail(lease)
        assert waiter.join().value.result == 2

    def test_it_takes_over_when_the_holder_dies(self, service: JobSchedulerService, rival: JobSchedulerService) -> None:
        """C8.1: within the lease and a poll; nobody renews this one."""
        won(service, lease_ms=800)
        began_s = time.monotonic()
        outcome = rival.run_exclusive(options(), lambda lease: lease.attempt, wait=SOON)
        assert outcome.result == 2
        assert time.monotonic() - began_s < 0.8 + 1.5

    def test_it_does_not_run_what_another_node_did(
        self, service: JobSchedulerService, rival: JobSchedulerService
    ) -> None:
        """C8.1: the wait ends, and the result says who did it."""
        lease = won(service)
        waiter = Heard(lambda: rival.run_exclusive(options(), pytest.fail, wait=SOON))
        service.complete(lease)
        outcome = waiter.join().value
        assert (outcome.acquired, outcome.not_acquired.reason.value) == (False, "succeeded")

    def test_time_is_up(self, service: JobSchedulerService, rival: JobSchedulerService) -> None:
        """C8.1: the callback does not run."""
        won(service)
        with pytest.raises(WaitTimeoutError, match="node-a"):
            rival.run_exclusive(options(), pytest.fail, wait=timedelta(seconds=0.5))

    async def test_the_same_on_a_loop(
        self, async_service: AsyncJobSchedulerService, rival: JobSchedulerService
    ) -> None:
        """C1.2, C8.1: an expired lease is taken over."""
        won(rival, lease_ms=800)

        async def callback(lease: JobExecutionLease) -> int:
            return lease.attempt

        assert (await async_service.run_exclusive(options(), callback, wait=SOON)).result == 2


SEED = JobAcquireOptions(code="seed", type=JobSchedulerType.INITIAL, lease_ms=900)


def boot(url: str, seconds: float, said: Connection) -> None:
    """Be a node that serves only once the seed is done."""

    def seed() -> None:
        said.send(("seeding", time.monotonic()))
        time.sleep(seconds)
        said.send(("seeded", time.monotonic()))

    with JobSchedulerService(url) as service:
        service.run_exclusive(SEED, seed, wait=timedelta(seconds=60))
        said.send(("serving", time.monotonic()))


class Node:
    """A node process with a pipe of its own: one that is killed cannot keep the others from speaking."""

    def __init__(self, url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.heard, said = context.Pipe(duplex=False)
        self.process = context.Process(target=boot, args=(url, 2.0, said))
        self.process.start()
        said.close()
        self.said: list[tuple[str, float]] = []

    def listen(self) -> Node:
        with suppress(EOFError):
            while self.heard.poll():
                self.said.append(self.heard.recv())
        return self

    def when(self, what: str) -> list[float]:
        return [at_s for said, at_s in self.said if said == what]


@pytest.mark.parametrize("killed", [False, True])
def test_initial_at_boot_one_seeds_and_all_serve_afterwards(database_url: str, killed: bool) -> None:
    """C8.2: 8 processes start together; when the seeder is killed in the middle, another one seeds."""
    nodes = [Node(database_url) for _ in range(8)]
    seeder = eventually(lambda: next((node for node in nodes if node.listen().when("seeding")), None), 60)
    assert seeder
    if killed:
        seeder.process.kill()
    for node in nodes:
        node.process.join(60)
        node.listen().heard.close()
    seeded = [at_s for node in nodes for at_s in node.when("seeded")]
    serving = [at_s for node in nodes for at_s in node.when("serving")]
    assert len(seeded) == 1
    assert len(serving) == (7 if killed else 8)
    assert min(serving) >= seeded[0]
    assert row_of(database_url, SEED.lock_key)["attempt"] == (2 if killed else 1)
    assert execute(database_url, 'SELECT count(*) FROM "job-scheduler"') == [(1,)]
