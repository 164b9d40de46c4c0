"""Sixteen contenders for one run: one winner, fifteen who hear so, and nobody who gets an error (C4)."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from tenure import (
    AsyncJobSchedulerService,
    JobAcquired,
    JobAcquireOptions,
    JobAcquireResult,
    JobSchedulerService,
    NotAcquiredReason,
)
from tenure.embedded import EmbeddedPostgres
from tests.support.pgbouncer import psycopg_settings
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, execute, set_default
from tests.support.servers import error_lines, log_offset
from tests.support.waiting import eventually

CONTENDERS = 16
ROUNDS = 1_000
SOME_ROUNDS = 300
FEWER_ROUNDS = 60
PATIENCE_S = 60
ISOLATIONS = ["repeatable read", "serializable"]


class Heard(NamedTuple):
    """What one contender was told: the token and attempt of a win, or the reason of a loss."""

    token: UUID | None
    attempt: int | None
    fencing_token: int | None
    reason: str | None

    @classmethod
    def of(cls, result: JobAcquireResult) -> Heard:
        if isinstance(result, JobAcquired):
            return cls(result.owner_token, result.attempt, result.fencing_token, None)
        return cls(None, result.attempt, None, result.reason.value)


def options_for(run_key: str) -> JobAcquireOptions:
    return JobAcquireOptions(code="race", run_key=run_key)


def keys(rounds: int, prefix: str = "r") -> list[str]:
    return [f"{prefix}{n}" for n in range(rounds)]


def race_threads(url: str, run_keys: Sequence[str], services: int) -> list[list[Heard]]:
    """Race 16 threads, which share so many services, for each key in turn; give what each thread heard."""
    barrier = threading.Barrier(CONTENDERS)
    heard: list[list[Heard]] = [[] for _ in range(CONTENDERS)]

    def contend(service: JobSchedulerService, mine: list[Heard]) -> None:
        try:
            for run_key in run_keys:
                options = options_for(run_key)
                barrier.wait(PATIENCE_S)
                mine.append(Heard.of(service.acquire(options)))
        except BaseException:
            barrier.abort()
            raise

    with ExitStack() as stack:
        nodes = [stack.enter_context(JobSchedulerService(url, owner_label=f"node-{n}")) for n in range(services)]
        for node in nodes:
            node.find_run("warm")
        threads = [Reporting(contend, nodes[n % services], heard[n]) for n in range(CONTENDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.finish()
    return heard


async def race_tasks(url: str, run_keys: Sequence[str]) -> list[list[Heard]]:
    """Race 16 tasks, on two services, for each key in turn; give what each task heard."""
    async with (
        AsyncJobSchedulerService(url, owner_label="node-a") as first,
        AsyncJobSchedulerService(url, owner_label="node-b") as second,
    ):
        rounds = []
        for run_key in run_keys:
            options = options_for(run_key)
            contenders = [(first, second)[n % 2].acquire(options) for n in range(CONTENDERS)]
            rounds.append([Heard.of(result) for result in await asyncio.gather(*contenders)])
    return [list(column) for column in zip(*rounds, strict=True)]


class Reporting(threading.Thread):
    """A thread whose error comes out where it is waited for."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        super().__init__(daemon=True)
        self._work, self._arguments = work, arguments
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work(*self._arguments)
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        self.join(PATIENCE_S)
        assert not self.is_alive(), "a contender hangs"
        if self._error is not None:
            raise self._error


@dataclass(frozen=True)
class Race:
    """Contend for each key in turn, all processes at once."""

    url: str
    run_keys: list[str]

    def run(self, barrier: Any) -> list[Heard]:
        heard = []
        with JobSchedulerService(self.url) as service:
            for run_key in self.run_keys:
                options = options_for(run_key)
                barrier.wait(PATIENCE_S)
                heard.append(Heard.of(service.acquire(options)))
        return heard


@dataclass(frozen=True)
class Ticks:
    """Run a job for each key, which leaves one row of its own as its effect, as one of N identical workers."""

    url: str
    run_keys: list[str]
    workers: int

    def run(self, barrier: Any) -> list[bool]:
        if barrier.wait(PATIENCE_S) >= self.workers:
            return []
        with (
            JobSchedulerService(self.url) as service,
            psycopg.connect(self.url, autocommit=True) as connection,
        ):

            def act(run_key: str) -> None:
                connection.execute("INSERT INTO effects VALUES (%s)", [run_key], prepare=False)

            return [
                service.run_exclusive(options_for(run_key), lambda run_key=run_key: act(run_key)).acquired
                for run_key in self.run_keys
            ]


def work(orders: Connection, barrier: Any) -> None:
    """Do in a process what comes through the pipe, until it is closed, and send back what came of it."""
    while True:
        try:
            order: Race | Ticks = orders.recv()
        except EOFError:
            return
        try:
            orders.send(order.run(barrier))
        except BaseException as error:
            barrier.abort()
            orders.send(f"{type(error).__name__}: {error}")


class Crew:
    """Sixteen processes that were started once."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(CONTENDERS)  # its semaphores go with it
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(CONTENDERS):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, self._barrier), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def do(self, order: Race | Ticks) -> list[list[Any]]:
        for pipe in self._pipes:
            pipe.send(order)
        answers = []
        for pipe in self._pipes:
            assert pipe.poll(PATIENCE_S), "a process hangs"
            answers.append(pipe.recv())
        assert not [answer for answer in answers if isinstance(answer, str)], answers
        return answers

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(PATIENCE_S)
            process.close()


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """Sixteen processes for the whole module."""
    made = Crew()
    yield made
    made.close()


@pytest.fixture
def quiet(server: EmbeddedPostgres, database_url: str) -> Iterator[None]:
    """Fail a test during which the server logged an error; looked at before the database is dropped."""
    offset = log_offset(server)
    yield
    assert error_lines(server, offset) == []


@pytest.fixture(params=ISOLATIONS)
def isolated_url(request: pytest.FixtureRequest, database_url: str) -> str:
    """A database whose default isolation is above READ COMMITTED."""
    set_default(database_url, "default_transaction_isolation", request.param)
    assert execute(database_url, "SHOW transaction_isolation") == [(request.param,)]
    return database_url


def assert_one_winner_each(url: str, run_keys: Sequence[str], heard: list[list[Heard]], attempt: int = 1) -> None:
    """Hold every round against its row: who believes to have won is who the database says, and nobody else does."""
    assert [len(each) for each in heard] == [len(run_keys)] * CONTENDERS
    rows = {
        lock_key: (status, token, attempt, fencing_token)
        for lock_key, status, token, attempt, fencing_token in execute(
            url, f'SELECT "lockKey", "status"::text, "ownerToken", "attempt", "fencingToken" FROM {TABLE}'
        )
    }
    for n, run_key in enumerate(run_keys):
        wins = [each[n] for each in heard if each[n].token is not None]
        assert len(wins) == 1, f"{len(wins)} winners of {run_key}"
        row = rows[options_for(run_key).lock_key]
        assert row == ("RUNNING", wins[0].token, wins[0].attempt, wins[0].fencing_token)
        assert wins[0].attempt == attempt
    tokens = [each.token for mine in heard for each in mine if each.token]
    assert len(set(tokens)) == len(run_keys), "two wins share an owner token"
    reasons = Counter(each.reason for mine in heard for each in mine if each.token is None)
    assert set(reasons) <= {NotAcquiredReason.RUNNING.value, NotAcquiredReason.CONTENDED.value}
    assert sum(reasons.values()) == (CONTENDERS - 1) * len(run_keys)
    if len(run_keys) >= SOME_ROUNDS:
        assert reasons[NotAcquiredReason.CONTENDED.value], "nobody raced: each contender came when the winner was done"


def prepare_rows(url: str, run_keys: Sequence[str], columns: str) -> None:
    """Make a row for each key, in a state that is given as SQL for status, modifiedAt and leaseMs."""
    settings = psycopg_settings(url)
    with psycopg.connect(url, autocommit=True, **settings) as connection, connection.cursor() as cursor:
        cursor.executemany(
            f'INSERT INTO {TABLE} ("lockKey", "code", "type", "ownerToken", "status", "modifiedAt", "leaseMs") '
            f"VALUES (%s, 'race', 'SCHEDULE', gen_random_uuid(), {columns})".encode(),
            [(options_for(run_key).lock_key,) for run_key in run_keys],
        )


def prepare_reclaims(url: str, each: int) -> list[str]:
    """Make rows of every kind that may be reclaimed, and give their keys, mixed."""
    kinds = {
        "failed": "'FAIL', clock_timestamp(), 900000",
        "expired": "'RUNNING', clock_timestamp() - interval '901 s', 900000",
        "foreign": "'RUNNING', clock_timestamp() - interval '901 s', NULL",
    }
    for kind, columns in kinds.items():
        prepare_rows(url, keys(each, kind), columns)
    return [f"{kind}{n}" for n in range(each) for kind in kinds]


@pytest.mark.usefixtures("quiet")
def test_of_16_threads_on_four_services_one_wins_each_of_300_runs(database_url: str) -> None:
    """C4.1, C4.2, C4.7: threads that share services are different owners."""
    run_keys = keys(SOME_ROUNDS)
    assert_one_winner_each(database_url, run_keys, race_threads(database_url, run_keys, services=4))


@pytest.mark.usefixtures("quiet")
def test_of_16_threads_on_one_service_one_wins_each_run(database_url: str) -> None:
    """C4.7: a service whose pool is smaller than its threads loses nothing and lets nobody win twice."""
    run_keys = keys(100)
    assert_one_winner_each(database_url, run_keys, race_threads(database_url, run_keys, services=1))


def test_threads_that_use_a_new_service_at_once_share_one_pool(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4.7: none is forgotten with its connections open and its threads running."""
    made: list[CountedPool] = []
    monkeypatch.setattr(CountedPool, "made", made)
    monkeypatch.setattr("tenure.drivers.psycopg.ConnectionPool", CountedPool)
    barrier = threading.Barrier(CONTENDERS)

    def use(service: JobSchedulerService) -> None:
        barrier.wait(PATIENCE_S)
        service.find_run("x")

    with JobSchedulerService(database_url) as service:
        threads = [Reporting(use, service) for _ in range(CONTENDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.finish()
    for pool in made:
        pool.close()
    assert len(made) == 1


class CountedPool(ConnectionPool[Any]):
    """A pool that is remembered."""

    made: ClassVar[list[CountedPool]] = []

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.made.append(self)


@pytest.mark.usefixtures("quiet")
async def test_of_16_tasks_one_wins_each_of_300_runs(database_url: str) -> None:
    """C4.1, C4.2, C4.7: tasks of one loop are different owners."""
    run_keys = keys(SOME_ROUNDS)
    assert_one_winner_each(database_url, run_keys, await race_tasks(database_url, run_keys))


@pytest.mark.usefixtures("quiet")
def test_of_16_processes_one_wins_each_of_1000_runs(database_url: str, crew: Crew) -> None:
    """C4.1, C4.2, C4.7: processes of one host, with one label, are different owners (procrastinate#1518)."""
    run_keys = keys(ROUNDS)
    assert_one_winner_each(database_url, run_keys, crew.do(Race(database_url, run_keys)))


@pytest.mark.usefixtures("quiet")
def test_of_16_threads_one_reclaims_each_run_that_is_free(database_url: str) -> None:
    """C4.1, C4.3: failed runs, expired ones and a NestJS node's expired ones are reclaimed once, as attempt 2."""
    run_keys = prepare_reclaims(database_url, 70)
    assert_one_winner_each(database_url, run_keys, race_threads(database_url, run_keys, services=4), attempt=2)


@pytest.mark.usefixtures("quiet")
def test_of_16_processes_one_reclaims_each_run_that_is_free(database_url: str, crew: Crew) -> None:
    """C4.1, C4.3: as with threads."""
    run_keys = prepare_reclaims(database_url, 40)
    assert_one_winner_each(database_url, run_keys, crew.do(Race(database_url, run_keys)), attempt=2)


@pytest.mark.usefixtures("quiet")
def test_losers_get_no_error_whatever_the_default_isolation_is(isolated_url: str, crew: Crew) -> None:
    """C4.5: threads, tasks and processes, fresh runs and reclaims, no 40001 and no ERROR line (ShedLock#364, #1916)."""
    fresh = keys(FEWER_ROUNDS, "threads")
    free = prepare_reclaims(isolated_url, FEWER_ROUNDS // 3)
    assert_one_winner_each(isolated_url, fresh, race_threads(isolated_url, fresh, services=4))
    assert_one_winner_each(isolated_url, free, race_threads(isolated_url, free, services=4), attempt=2)
    fresh = keys(FEWER_ROUNDS, "tasks")
    assert_one_winner_each(isolated_url, fresh, asyncio.run(race_tasks(isolated_url, fresh)))
    fresh = keys(FEWER_ROUNDS, "processes")
    assert_one_winner_each(isolated_url, fresh, crew.do(Race(isolated_url, fresh)))


@pytest.mark.usefixtures("quiet")
def test_eight_processes_run_each_of_200_ticks_once(database_url: str, crew: Crew) -> None:
    """C4.7, C6.3: N workers of one program, no configuration (agronholm/apscheduler#160): effects equal ticks."""
    ticks = keys(200, "tick")
    execute(database_url, "CREATE TABLE effects (tick text)")
    ran = [each for each in crew.do(Ticks(database_url, ticks, workers=8)) if each]
    assert len(ran) == 8
    assert sum(sum(each) for each in ran) == len(ticks)
    assert sorted(row[0] for row in execute(database_url, "SELECT tick FROM effects")) == sorted(ticks)
    assert execute(
        database_url, f'SELECT "runKey", "status"::text, "attempt" FROM {TABLE} ORDER BY "runKey" COLLATE "C"'
    ) == [(tick, "SUCCESS", 1) for tick in sorted(ticks)]


# A retry that races with its own first try: the client lost its connection, the server is still at it.

SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END $$;
CREATE TRIGGER slow AFTER INSERT OR UPDATE ON "public"."job-scheduler" FOR EACH ROW EXECUTE FUNCTION slow()
"""


def waiting_for_locks(url: str) -> int:
    """Count the sessions of a database that wait for a lock."""
    return int(
        execute(
            url,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )[0][0]
    )


def test_a_completion_that_meets_its_own_first_try_is_recognised_as_done(database_url: str) -> None:
    """C6.4: the row says SUCCESS by our own hand, so the caller hears `True`."""
    with (
        FaultProxy.in_front_of(database_url) as proxy,
        JobSchedulerService(proxy.url(database_url)) as service,
        psycopg.connect(database_url) as holder,
    ):
        lease = service.acquire(options_for("run"))
        assert isinstance(lease, JobAcquired)
        holder.execute(f"SELECT FROM {TABLE} FOR NO KEY UPDATE")
        said: list[bool] = []
        caller = Reporting(lambda: said.append(service.complete(lease)))
        caller.start()
        eventually(lambda: waiting_for_locks(database_url) == 1)
        proxy.reset_all()
        eventually(lambda: waiting_for_locks(database_url) == 2)
        holder.rollback()
        caller.finish()
    assert execute(database_url, f'SELECT "status"::text FROM {TABLE}') == [("SUCCESS",)]
    assert said == [True]


@pytest.mark.parametrize("reclaims", [False, True])
def test_an_acquire_that_meets_its_own_first_try_leaves_no_run_held_by_nobody(
    database_url: str, rival: JobSchedulerService, reclaims: bool
) -> None:
    """C4.6: what the first try wins in the end is either known to the caller or freed."""
    if reclaims:
        lease = rival.acquire(options_for("run"))
        assert isinstance(lease, JobAcquired)
        rival.fail(lease)
    execute(database_url, SLOW)
    said: list[JobAcquireResult] = []
    with (
        FaultProxy.in_front_of(database_url) as proxy,
        JobSchedulerService(proxy.url(database_url)) as service,
        psycopg.connect(database_url) as holder,
    ):
        holder.execute("SELECT pg_advisory_xact_lock(42)")
        caller = Reporting(lambda: said.append(service.acquire(options_for("run"))))
        caller.start()
        eventually(lambda: waiting_for_locks(database_url) == 1)
        proxy.reset_all()
        # until the retry waits for the first try, or was answered, or was followed by others
        eventually(lambda: waiting_for_locks(database_url) == 2 or said or proxy.connections > 4)
        holder.rollback()
        caller.finish()
        eventually(lambda: waiting_for_locks(database_url) == 0)
        known = said[0].owner_token if isinstance(said[0], JobAcquired) else None
        eventually(
            lambda: execute(
                database_url,
                f'SELECT 1 FROM {TABLE} WHERE "status" = \'FAIL\' OR "ownerToken" IS NOT DISTINCT FROM %s',
                known,
            ),
            3,
        )
