"""Through a real PgBouncer in transaction mode: no session state, nothing prepared (C4.8)."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import AsyncJobSchedulerService, JobAcquireOptions, JobExecutionLease, JobSchedulerService
from tenure.embedded import EmbeddedPostgres
from tests.support.pgbouncer import PROGRAM, pgbouncer
from tests.support.rows import execute, row_of
from tests.support.servers import error_lines, log_offset

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (Debian: pgbouncer)")


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, pgbouncer(database_url, Path(folder)) as url:
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
    name = database_url.rsplit("/", 1)[1]
    execute(database_url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    since = log_offset(server)
    with JobSchedulerService(pooled_url) as service:
        options = JobAcquireOptions(code="pooled", run_key="serializable")
        assert service.run_exclusive(options, lambda: "ran").result == "ran"
        assert service.acquire(options).acquired is False
    assert execute(pooled_url, "SHOW transaction_isolation") == [("serializable",)]
    assert error_lines(server, since) == []
