"""Through a real PgBouncer in transaction mode, with prepared statements off, and on (C4.8).

`--through=pgbouncer` takes the rest of the suite there; here is what only a pooler can bring about.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
from psycopg_pool import ConnectionPool

from tenure import AsyncJobSchedulerService, JobAcquireOptions, JobExecutionLease, JobSchedulerService
from tenure.embedded import EmbeddedPostgres
from tests.support.pgbouncer import (
    NEEDS_NEWER,
    PROGRAM,
    asyncpg_settings,
    direct,
    pgbouncer,
    preparing_program,
    psycopg_settings,
)
from tests.support.rows import execute, row_of, set_default
from tests.support.servers import create_database, error_lines, log_offset, start_test_server
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (Debian: pgbouncer)")


PREPARED = pytest.param(True, marks=pytest.mark.skipif(preparing_program() is None, reason=NEEDS_NEWER), id="prepared")


@pytest.fixture(params=[pytest.param(False, id="nothing-prepared"), PREPARED])
def pooled_url(request: pytest.FixtureRequest, database_url: str) -> Iterator[str]:
    """A database through a pooler with four server connections."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        pgbouncer(direct(database_url), Path(folder), prepared=request.param) as url,
    ):
        yield url


def test_a_service_works_through_a_transaction_pooler(
    server: EmbeddedPostgres, database_url: str, pooled_url: str
) -> None:
    """C4.8: hundreds of runs from eight threads over four server connections, and not one ERROR line."""
    since = log_offset(server)
    done: list[int] = []

    def work(service: JobSchedulerService, node: int) -> None:
        for tick in range(60):
            options = JobAcquireOptions(code="pooled", run_key=str(tick))
            if service.run_exclusive(options, lambda: done.append(node)).acquired:
                continue
            service.acquire(JobAcquireOptions(code="own", run_key=f"{node}-{tick}"))

    with JobSchedulerService(pooled_url) as service:
        threads = [threading.Thread(target=work, args=(service, node)) for node in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(done) == 60
    assert execute(database_url, """SELECT count(*) FROM "job-scheduler" WHERE "code" = 'pooled'""") == [(60,)]
    assert error_lines(server, since) == []


def test_renewal_works_through_a_transaction_pooler(database_url: str, pooled_url: str) -> None:
    """C4.8, C5.2: the keeper's connection is pooled too."""
    options = JobAcquireOptions(code="pooled", run_key="long", lease_ms=600)

    def callback(lease: JobExecutionLease) -> bool:
        time.sleep(1.8)
        return lease.lost is None

    with JobSchedulerService(pooled_url) as service:
        assert service.run_exclusive(options, callback).result is True
    assert row_of(database_url, options.lock_key)["status"] == "SUCCESS"


async def test_the_async_service_works_through_a_transaction_pooler(pooled_url: str) -> None:
    """C4.8: 32 tasks at once, each statement on whatever server connection is free."""
    ran: list[str] = []

    async def run(service: AsyncJobSchedulerService, key: str) -> None:
        async def callback() -> None:
            ran.append(key)

        await service.run_exclusive(JobAcquireOptions(code="pooled", run_key=key), callback)

    async with AsyncJobSchedulerService(pooled_url) as service:
        await asyncio.gather(*(run(service, str(n % 50)) for n in range(200)))
    assert sorted(ran, key=int) == [str(n) for n in range(50)]


def test_above_read_committed_statements_bring_their_own_transaction(
    server: EmbeddedPostgres, database_url: str, pooled_url: str
) -> None:
    """C4.5, C4.8: the isolation level is set inside the transaction and leaks to nobody."""
    set_default(database_url, "default_transaction_isolation", "serializable")
    since = log_offset(server)
    with JobSchedulerService(pooled_url) as service:
        options = JobAcquireOptions(code="pooled", run_key="serializable")
        assert service.run_exclusive(options, lambda: "ran").result == "ran"
        assert service.acquire(options).acquired is False
    assert execute(pooled_url, "SHOW transaction_isolation") == [("serializable",)]
    assert error_lines(server, since) == []


PREPARED_THERE = "SELECT count(*) FROM pg_prepared_statements"


def test_an_applications_own_psycopg_pool_is_handed_on(
    server: EmbeddedPostgres, database_url: str, pooled_url: str
) -> None:
    """C4.8, C7.2: with the settings of the README, its transactions and ours; where it may prepare, it does."""
    execute(database_url, "CREATE TABLE effects (run text)")
    settings, since, prepared = psycopg_settings(pooled_url), log_offset(server), []
    with (
        ConnectionPool(pooled_url, kwargs=settings, min_size=4, max_size=8) as pool,
        JobSchedulerService(pool) as service,
    ):

        def work(node: int) -> None:
            for tick in range(25):
                options = JobAcquireOptions(code="own", run_key=f"{node}-{tick}")
                service.run_exclusive(options, insert)

        def insert(lease: JobExecutionLease) -> None:
            with pool.connection() as connection:
                lease.guard(connection)
                connection.execute("INSERT INTO effects VALUES (%s)", [lease.idempotency_key])
                service.complete(lease, {"rows": 1}, connection=connection)
                prepared.extend(connection.execute(PREPARED_THERE, prepare=False).fetchall())

        threads = [threading.Thread(target=work, args=(node,)) for node in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert execute(database_url, "SELECT count(DISTINCT run), count(*) FROM effects") == [(200, 200)]
    assert any(count for (count,) in prepared) is not bool(settings)
    assert error_lines(server, since) == []


async def test_an_applications_own_asyncpg_pool_is_handed_on(
    server: EmbeddedPostgres, database_url: str, pooled_url: str
) -> None:
    """C4.8, C7.2: likewise, with asyncpg, whose default is to prepare everything."""
    execute(database_url, "CREATE TABLE effects (run text)")
    settings, since = asyncpg_settings(pooled_url), log_offset(server)
    async with (
        asyncpg.create_pool(pooled_url, min_size=4, max_size=8, **settings) as pool,
        AsyncJobSchedulerService(pooled_url) as service,
    ):

        async def insert(lease: JobExecutionLease) -> None:
            async with pool.acquire() as connection, connection.transaction():
                await lease.guard(connection)
                await connection.execute("INSERT INTO effects VALUES ($1)", lease.idempotency_key)
                await service.complete(lease, {"rows": 1}, connection=connection)

        runs = [JobAcquireOptions(code="own", run_key=str(n)) for n in range(100)]
        await asyncio.gather(*(service.run_exclusive(run, insert) for run in runs))
    assert execute(database_url, "SELECT count(DISTINCT run), count(*) FROM effects") == [(100, 100)]
    assert error_lines(server, since) == []


def test_a_server_that_restarts_behind_the_pooler_costs_no_lease() -> None:
    """C5.2: with `server_login_retry` well below the lease; by default it refuses for 15 s what a node asks anew."""
    with (
        start_test_server() as own,
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        pgbouncer(create_database(own, "restarted"), Path(folder), more="server_login_retry = 1\n") as url,
        JobSchedulerService(url) as service,
    ):
        service.migrate()
        options = JobAcquireOptions(code="pooled", run_key="restart", lease_ms=6_000, heartbeat_ms=300)

        def callback(lease: JobExecutionLease) -> bool:
            own.restart("immediate")
            back = execute(direct(url), "SELECT clock_timestamp()")[0][0]
            eventually(lambda: row_of(direct(url), lease.id)["modifiedAt"] > back)
            return lease.lost is None

        assert service.run_exclusive(options, callback).result is True
        assert row_of(direct(url), options.lock_key)["status"] == "SUCCESS"


def test_what_a_pooler_that_keeps_none_does_to_prepared_statements(database_url: str) -> None:
    """The README's settings are needed: without them, a client meets what another one prepared."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        pgbouncer(direct(database_url), Path(folder), pool_size=1) as url,
        psycopg.connect(url, autocommit=True, prepare_threshold=0) as one,
        psycopg.connect(url, autocommit=True, prepare_threshold=0) as other,
    ):
        one.execute("SELECT 1")
        with pytest.raises(psycopg.errors.DuplicatePreparedStatement):
            other.execute("SELECT 1")
