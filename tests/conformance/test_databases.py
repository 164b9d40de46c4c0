"""What is told apart, or must not be, among the kinds of database that a service takes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
from django.db import connections as django_connections  # type: ignore[import-untyped]
from psycopg.types.string import TextLoader
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import AssertionPool, StaticPool, create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from tenure import (
    AsyncJobSchedulerService,
    DatabaseProblem,
    JobAcquired,
    JobAcquireOptions,
    JobDatabaseError,
    JobExecutionLease,
    JobSchedulerService,
    JobServiceStateError,
    operations,
)
from tenure.embedded import EmbeddedPostgres
from tests.conformance.kinds import BLOCKING, ON_LOOP, Kind, address, django_alias
from tests.support.pgbouncer import PROGRAM, pgbouncer
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, execute, row_of
from tests.support.servers import error_lines, log_offset
from tests.support.waiting import eventually

ALL = [*BLOCKING, *ON_LOOP]
each_kind = pytest.mark.parametrize("kind", ALL, ids=lambda kind: f"{'loop' if kind.is_async else 'blocking'}-{kind}")


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, "lease_ms": 60_000, **given})


class Opened:
    """A service of either shell on a kind of database, called from a coroutine."""

    def __init__(self, kind: Kind, url: str) -> None:
        self.kind = kind
        self.database, self._close = kind.make(url)
        self.service: Any = (AsyncJobSchedulerService if kind.is_async else JobSchedulerService)(
            self.database, owner_label="node-a"
        )

    async def call(self, name: str, *values: Any, **named: Any) -> Any:
        method = getattr(self.service, name)
        return await (method(*values, **named) if self.kind.is_async else asyncio.to_thread(method, *values, **named))

    async def __aenter__(self) -> Opened:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.call("close")
        closed = self._close()
        if self.kind.is_async:
            await closed


@pytest.fixture(autouse=True)
def no_connecting_thread_is_left() -> Iterator[None]:
    """Fail a test that leaves a thread which connects."""
    yield
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "tenure-connect"], 10)


@each_kind
async def test_types_come_back_exactly(kind: Kind, database_url: str) -> None:
    """`uuid.UUID` and aware UTC instants from all, whatever the session's zone and date style are."""
    name = execute(database_url, "SELECT current_database()")[0][0]
    for setting in ("TimeZone = 'Australia/Lord_Howe'", "DateStyle = 'SQL, DMY'", "extra_float_digits = 0"):
        execute(database_url, f'ALTER DATABASE "{name}" SET {setting}')
    async with Opened(kind, database_url) as node:
        won = await node.call("acquire", options())
        assert type(won) is JobAcquired
        assert type(won.id) is UUID
        assert (type(won.fencing_token), type(won.attempt)) == (int, int)
        loss = await node.call("acquire", options())
        assert loss.acquired is False
        assert loss.expires_at.tzinfo is UTC
        run = await node.call("find_run", won.id)
        assert type(run.id) is UUID
        assert run.started_at.tzinfo is UTC
        epoch = execute(database_url, f'SELECT CAST(EXTRACT(EPOCH FROM "startedAt") AS float8) FROM {TABLE}')[0][0]
        assert abs(run.started_at.timestamp() - epoch) < 1e-3
        data = {"text": 'ü % :p1 $1 \\ "', "n": 1}
        assert await node.call("complete", won, data) is True
        assert execute(database_url, f'SELECT "data" FROM {TABLE}') == [(data,)]
        assert await node.call("wait", options(), timedelta(seconds=5)) == data


@each_kind
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_losers_get_no_error_whatever_the_default_isolation_is(
    kind: Kind, isolation: str, database_url: str, server: EmbeddedPostgres
) -> None:
    """C4.1, C4.2, C4.5: 16 at once, one winner a run; no ERROR line; no session is left in a transaction."""
    name = execute(database_url, "SELECT current_database()")[0][0]
    execute(database_url, f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{isolation}'")
    since = log_offset(server)
    async with Opened(kind, database_url) as node:
        for n in range(3):
            answers = await asyncio.gather(*(node.call("acquire", options(str(n))) for _ in range(16)))
            assert [answer.acquired for answer in answers].count(True) == 1
        open_ones = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
        assert execute(database_url, open_ones) == [(0,)]
    assert error_lines(server, since) == []


@each_kind
async def test_what_is_missing_is_named(kind: Kind, empty_database_url: str, database_url: str) -> None:
    """C9.4: a missing table, a read-only database, and a grant: one error each, with its mend."""
    async with Opened(kind, empty_database_url) as node:
        with pytest.raises(JobDatabaseError, match="tenure schema apply") as caught:
            await node.call("acquire", options())
        assert caught.value.problem is DatabaseProblem.SCHEMA_MISSING
    name = execute(database_url, "SELECT current_database()")[0][0]
    role = f"poor_{uuid4().hex[:8]}"
    execute(database_url, f"CREATE ROLE {role} LOGIN PASSWORD 'secret-word'")
    poor = psycopg.conninfo.conninfo_to_dict(database_url)
    poor_url = f"postgresql://{role}:secret-word@{poor['host']}:{poor['port']}/{name}"
    try:
        async with Opened(kind, poor_url) as node:
            with pytest.raises(JobDatabaseError, match="GRANT SELECT, INSERT") as caught:
                await node.call("acquire", options())
            assert caught.value.problem is DatabaseProblem.GRANT_MISSING
            assert role in str(caught.value)
    finally:
        execute(database_url, f"DROP ROLE {role}")
    execute(database_url, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    async with Opened(kind, database_url) as node:
        with pytest.raises(JobDatabaseError, match="read-only") as caught:
            await node.call("acquire", options())
        assert caught.value.problem is DatabaseProblem.READ_ONLY


@each_kind
async def test_a_call_that_hangs_is_bounded(kind: Kind, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4.6, C6.4: in a black hole a call ends within its limits, and works again afterwards."""
    monkeypatch.setattr(operations, "CALL_LIMIT_S", 0.5)
    monkeypatch.setattr(operations, "ACQUIRE_LIMIT_S", 1.5)
    with FaultProxy.in_front_of(database_url) as proxy:
        async with Opened(kind, proxy.url(database_url)) as node:
            await node.call("list_runs")
            proxy.black_hole()
            began_s = time.monotonic()
            with pytest.raises(JobDatabaseError):
                await node.call("acquire", options())
            assert time.monotonic() - began_s < 6
            proxy.heal()
            proxy.reset_all()
            assert (await node.call("acquire", options("next"))).acquired
        # the keeper still looks for what the acquire that hung may win
        eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "tenure-keeper"], 20)


@each_kind
async def test_no_password_is_shown(kind: Kind, database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """C11: neither a password in the error of a server that cannot be reached, nor an owner token in any log."""
    caplog.set_level(logging.DEBUG)
    async with Opened(kind, database_url) as node:
        won = await node.call("acquire", options())
        assert await node.call("heartbeat", won)
    assert str(won.owner_token) not in caplog.text
    async with Opened(kind, "postgresql://someone:secret-word@127.0.0.1:1/nowhere") as node:
        with pytest.raises(JobDatabaseError) as caught:
            await node.call("acquire", options())
        assert caught.value.problem is DatabaseProblem.UNREACHABLE
        assert "secret-word" not in f"{caught.value} {node.service!r} {caplog.text}"


@pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (apt-get install pgbouncer)")
@each_kind
async def test_through_a_transaction_pooler(kind: Kind, database_url: str) -> None:
    """C4.8: nothing is prepared and nothing is left behind, whatever the pool is set to."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        pgbouncer(database_url, Path(folder), pool_size=2) as pooled_url,
    ):
        async with Opened(kind, pooled_url) as node:
            answers = await asyncio.gather(*(node.call("acquire", options(str(n))) for n in range(24)))
            assert all(answer.acquired for answer in answers)
            for answer in answers[:6]:
                assert await node.call("heartbeat", answer)
                assert await node.call("complete", answer, {"n": 1})
            assert (await node.call("acquire", options("0"))).acquired is False


# asyncpg


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Any]:
    """An asyncpg pool whose owner has codecs of its own, as many have."""

    async def init(connection: Any) -> None:
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        await connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")
        await connection.set_type_codec("timestamptz", encoder=str, decoder=str, schema="pg_catalog")

    async with asyncpg.create_pool(database_url, min_size=1, max_size=1, init=init) as made:
        yield made


async def test_codecs_of_an_asyncpg_pool_change_nothing(pool: Any) -> None:
    """With codecs for json, uuid and timestamptz, and a single connection."""
    async with AsyncJobSchedulerService(pool) as node:
        won = await node.acquire(options())
        assert won.acquired
        assert await node.complete(won, {"a": [1]})
        run = await node.find_run(won.id)
        assert run is not None
        assert (run.id, run.data) == (won.id, {"a": [1]})
    assert await pool.fetchval("SELECT 1") == 1


async def test_renewal_on_the_loop_is_said_once(pool: Any, caplog: pytest.LogCaptureFixture) -> None:
    """C5.3: an asyncpg pool alone renews on the loop, without a thread, and one line in the log says what to do."""
    async with AsyncJobSchedulerService(pool) as node:
        for n in range(2):

            async def callback(lease: JobExecutionLease) -> None:
                await asyncio.sleep(1.0)
                lease.check()
                assert not [thread for thread in threading.enumerate() if thread.name == "tenure-keeper"]

            assert (await node.run_exclusive(options(str(n), lease_ms=600), callback)).acquired
        with pytest.raises(JobServiceStateError, match="heartbeat_database"):
            await node.check_schema()
    said = [record for record in caplog.records if "heartbeat_database" in record.getMessage()]
    assert len(said) == 1


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind.name != "asyncpg-pool"], ids=str)
async def test_heartbeat_database_gives_a_thread_its_connection(
    pool: Any, kind: Kind, database_url: str, rival: JobSchedulerService, caplog: pytest.LogCaptureFixture
) -> None:
    """C5.3: then a callback that blocks the loop for three leases keeps its run, and schema work is there, too."""
    heartbeat, close = kind.make(database_url)
    async with AsyncJobSchedulerService(pool, heartbeat_database=heartbeat) as node:

        async def callback(lease: JobExecutionLease) -> None:
            time.sleep(1.5)
            assert rival.acquire(options(lease_ms=500)).acquired is False
            lease.check()

        assert (await node.run_exclusive(options(lease_ms=500), callback)).acquired
        assert await node.check_schema() == []
        assert await node.migrate() == []
    closed = close()
    if kind.is_async:
        await closed
    assert "heartbeat_database" not in caplog.text


async def test_an_asyncpg_pool_that_its_owner_holds_or_closed_costs_no_outcome(pool: Any) -> None:
    """C6.4, C6.6 (db-scheduler#1932): the only connection is in its owner's hands; then the pool is closed."""
    async with AsyncJobSchedulerService(pool) as node:
        won = await node.acquire(options())
        assert won.acquired
        async with pool.acquire():
            assert await node.complete(won)
        second = await node.acquire(options("2"))
        assert second.acquired
        await pool.close()
        assert await node.complete(second)


def test_an_asyncpg_pool_is_no_heartbeat_database(database_url: str) -> None:
    """C5.3: it would be on the wrong loop, and is refused with a word why."""

    async def main() -> None:
        pool = asyncpg.create_pool(database_url, min_size=0)
        with pytest.raises(TypeError, match="heartbeat_database"):
            AsyncJobSchedulerService(database_url, heartbeat_database=pool)

    asyncio.run(main())


# SQLAlchemy


def test_a_password_from_an_event_is_used_everywhere(database_url: str) -> None:
    """`do_connect` supplies the password for calls, retries, renewal and schema work."""
    address_without = address(database_url, "psycopg").set(password=None)
    password = address(database_url, "psycopg").password
    engine = create_engine(address_without, poolclass=None, pool_size=1, max_overflow=0)
    asked: list[str] = []

    @event.listens_for(engine, "do_connect")
    def supply(dialect: Any, record: Any, cargs: Any, cparams: dict[str, Any]) -> None:
        asked.append(threading.current_thread().name)
        cparams["password"] = password

    with JobSchedulerService(engine) as node:
        assert node.check_schema() == []

        def callback(lease: JobExecutionLease) -> None:
            time.sleep(1.0)
            lease.check()

        assert node.run_exclusive(options(lease_ms=600), callback).acquired
        with engine.connect() as connection:  # the only one
            assert connection.closed is False
            won = node._driver.fetch(node._listing(None, None, None, 1).call, limit_s=3, fresh=True)
            assert len(won) == 1
    assert len(asked) >= 3
    engine.dispose()


async def test_a_password_from_an_async_event_is_used_for_renewal(database_url: str) -> None:
    """The same for an AsyncEngine, over asyncpg and over psycopg."""
    for driver in ("asyncpg", "psycopg"):
        where = address(database_url, driver)
        engine = create_async_engine(where.set(password=None))

        def supply(
            dialect: Any, record: Any, cargs: Any, cparams: dict[str, Any], password: Any = where.password
        ) -> None:
            cparams["password"] = password

        event.listen(engine.sync_engine, "do_connect", supply)

        async def callback(lease: JobExecutionLease) -> None:
            time.sleep(1.2)
            lease.check()

        async with AsyncJobSchedulerService(engine) as node:
            assert (await node.run_exclusive(options(driver, lease_ms=600), callback)).acquired
        await engine.dispose()


@pytest.mark.parametrize("pool_class", [StaticPool, AssertionPool])
def test_a_transaction_on_a_shared_connection_is_left_alone(database_url: str, pool_class: Any) -> None:
    """C4.5: a pool with one connection for all; the application's open transaction is neither joined nor ended."""
    engine = create_engine(address(database_url, "psycopg"), poolclass=pool_class)
    with JobSchedulerService(engine) as node, engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE mine (n int)")
        assert node.acquire(options()).acquired
        assert row_of(database_url, options().lock_key)["status"] == "RUNNING"
        connection.rollback()
        assert execute(database_url, "SELECT to_regclass('mine')") == [(None,)]
    engine.dispose()


def test_a_pool_without_a_free_connection_says_so_in_time(database_url: str) -> None:
    """C4.6: not after the time that the pool itself would wait."""
    engine = create_engine(address(database_url, "psycopg"), pool_size=1, max_overflow=0, pool_timeout=8)
    with JobSchedulerService(engine) as node:
        won = node.acquire(options())
        assert won.acquired
        with engine.connect():
            began_s = time.monotonic()
            with pytest.raises(JobDatabaseError, match="pool_size"):
                node.list_runs()
            assert time.monotonic() - began_s < 4
            assert node.complete(won)
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    engine.dispose()


def test_an_engine_and_its_connections_are_left_as_they_were(database_url: str) -> None:
    """C4.8: not in autocommit, in no transaction, and usable."""
    engine = create_engine(address(database_url, "psycopg"), pool_size=1, max_overflow=0)
    with JobSchedulerService(engine) as node:
        assert node.acquire(options()).acquired
        with engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            assert raw.autocommit is False
            assert raw.info.transaction_status.name == "IDLE"
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()


def test_converters_of_a_psycopg_pool_change_nothing(database_url: str) -> None:
    """An application's own loaders and dumpers for text, bigint, uuid and str."""

    class Shouting(TextLoader):
        def load(self, data: Any) -> str:
            return str(super().load(data)).upper() + "!"

    def configure(connection: psycopg.Connection[Any]) -> None:
        for name in ("text", "varchar", "int8", "int4", "uuid", "timestamptz"):
            connection.adapters.register_loader(name, Shouting)

    with (
        ConnectionPool(database_url, min_size=1, max_size=1, configure=configure) as pool,
        JobSchedulerService(pool) as node,
    ):
        won = node.acquire(options())
        assert won.acquired
        assert (type(won.id), won.attempt) == (UUID, 1)
        assert node.complete(won)


# Django


def test_djangos_own_transaction_is_not_joined(database_url: str) -> None:
    """C4.5, C7.2: the alias's settings are used, not its connection, which may complete a run in a transaction."""
    from django.db import transaction

    alias = django_alias(database_url)
    connection = django_connections[alias]
    with JobSchedulerService(connection) as node:
        with transaction.atomic(using=alias):
            won = node.acquire(options())
            assert won.acquired
            assert row_of(database_url, won.id)["status"] == "RUNNING"
            assert node.complete(won, connection=connection)
            assert row_of(database_url, won.id)["status"] == "RUNNING"
        assert row_of(database_url, won.id)["status"] == "SUCCESS"
    connection.close()


def test_djangos_assumed_role_is_assumed(database_url: str) -> None:
    """`assume_role` of the settings holds for our connections, too."""
    alias = django_alias(database_url)
    role = f"as sumed_{uuid4().hex[:8]}"
    execute(database_url, f'CREATE ROLE "{role}"')
    try:
        django_connections.databases[alias]["OPTIONS"] = {"assume_role": role}
        with JobSchedulerService(django_connections[alias]) as node, pytest.raises(JobDatabaseError, match="right"):
            node.acquire(options())
    finally:
        django_connections.databases[alias]["OPTIONS"] = {}
        execute(database_url, f'DROP ROLE "{role}"')


# What is refused


def test_what_is_not_known_is_refused_with_the_list(database_url: str) -> None:
    """The list of what is known; what belongs to the other service is sent there."""
    with pytest.raises(TypeError, match=r"ConnectionPool.*Engine.*Django.*not builtins\.int"):
        JobSchedulerService(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"AsyncConnectionPool.*asyncpg Pool.*AsyncEngine.*Django"):
        AsyncJobSchedulerService(object())  # type: ignore[arg-type]
    engine, on_loop = (
        create_engine(address(database_url, "psycopg")),
        create_async_engine(address(database_url, "asyncpg")),
    )
    other: AsyncConnectionPool[Any] = AsyncConnectionPool(database_url, open=False)
    for wrong in (on_loop, other):
        with pytest.raises(TypeError, match="AsyncJobSchedulerService"):
            JobSchedulerService(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"postgresql\+psycopg, not postgresql\+asyncpg"):
        JobSchedulerService(on_loop.sync_engine)
    with pytest.raises(TypeError, match="to JobSchedulerService"):
        AsyncJobSchedulerService(engine)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"postgresql\+psycopg, not sqlite"):
        JobSchedulerService(create_engine("sqlite://"))


def test_an_engine_that_was_given_is_refused_in_a_forked_child(database_url: str) -> None:
    """As a pool is; a service on Django's settings works there."""
    engine = create_engine(address(database_url, "psycopg"))
    over_django = JobSchedulerService(django_connections[django_alias(database_url)])
    with JobSchedulerService(engine) as node, over_django:
        assert node.acquire(options()).acquired
        assert over_django.acquire(options("parent")).acquired
        if (pid := os.fork()) == 0:
            code = 1
            try:
                node.list_runs()
            except JobServiceStateError:
                code = 0 if over_django.acquire(options("child")).acquired else 2
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert node.acquire(options("after")).acquired
    engine.dispose()
