"""Completion and guard in a caller's own transaction: one set of scenarios over every kind of connection (C7.5)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]
import django  # type: ignore[import-untyped]
import psycopg
import pytest
from django.conf import settings  # type: ignore[import-untyped]
from django.db import connection as django_default  # type: ignore[import-untyped]
from django.db import connections as django_connections
from django.db import transaction as django_transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import NullPool, create_engine, make_url, text
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tenure import (
    AsyncJobSchedulerService,
    JobAcquired,
    JobAcquireOptions,
    JobExecutionLease,
    JobLease,
    JobSchedulerService,
    JobServiceStateError,
    LostJobLeaseError,
    LostReason,
    NotAcquiredReason,
    OutcomeNotRecordedError,
)
from tenure.statements import Table, quote
from tests.conftest import TEMPLATE, Door
from tests.support.pgbouncer import asyncpg_settings, psycopg_settings
from tests.support.rows import age, execute, row_of
from tests.support.servers import Databases
from tests.support.waiting import eventually

ODD = Table('we"ird % :p1 %(p1)s $1 ::x', 'ru"ns %s :p2 $2 \\:y')
PLAIN = Table()
NAMED = {"plain": PLAIN, "odd": ODD}

# What is handed to tenure, and how its owner works with it


async def _nothing() -> None:
    return None


@dataclass
class Caller:
    """A connection, and what its owner does with it; of a blocking kind nothing here ever suspends."""

    connection: Any
    execute: Callable[[str], Awaitable[list[tuple[Any, ...]]]]
    commit: Callable[[], Awaitable[Any]]
    rollback: Callable[[], Awaitable[Any]]
    begin: Callable[[], Awaitable[Any]] = _nothing


Opener: TypeAlias = "Callable[[str, bool], AbstractAsyncContextManager[Caller]]"


def plainly(function: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    """Make a blocking call look like an async one."""

    async def called() -> Any:
        return function()

    return called


@asynccontextmanager
async def psycopg_connection(url: str, autocommit: bool) -> AsyncIterator[Caller]:
    with psycopg.connect(url, autocommit=autocommit, **psycopg_settings(url)) as connection:

        async def send(statement: str) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

        yield Caller(connection, send, plainly(connection.commit), plainly(connection.rollback))


@asynccontextmanager
async def psycopg_async_connection(url: str, autocommit: bool) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=autocommit, **psycopg_settings(url)) as connection:

        async def send(statement: str) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []

        yield Caller(connection, send, connection.commit, connection.rollback)


def _asyncpg_caller(connection: Any) -> Caller:
    opened: list[Any] = []

    async def begin() -> None:
        opened.append(connection.transaction())
        await opened[-1].start()

    async def send(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.fetch(statement)]

    return Caller(
        connection, send, commit=lambda: opened.pop().commit(), rollback=lambda: opened.pop().rollback(), begin=begin
    )


@asynccontextmanager
async def asyncpg_connection(url: str, autocommit: bool) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url, **asyncpg_settings(url))
    try:
        # What many applications set: the values that tenure sends must not be encoded twice.
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        await connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")
        yield _asyncpg_caller(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pooled(url: str, autocommit: bool) -> AsyncIterator[Caller]:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1, **asyncpg_settings(url)) as pool,
        pool.acquire() as connection,
    ):
        yield _asyncpg_caller(connection)


def _address(url: str, driver: str) -> Any:
    return make_url(url).set(drivername=f"postgresql+{driver}")


def _level(url: str, driver: str, autocommit: bool) -> dict[str, Any]:
    settings = psycopg_settings(url) if driver == "psycopg" else asyncpg_settings(url)
    if driver == "asyncpg" and settings:
        # It prepares every statement by itself, and would give them names that another client uses, too.
        settings |= {"prepared_statement_cache_size": 0, "prepared_statement_name_func": lambda: f"s{uuid4().hex}"}
    return {
        "connect_args": settings,
        "poolclass": NullPool,
        **({"isolation_level": "AUTOCOMMIT"} if autocommit else {}),
    }


def sqlalchemy_kind(make: Callable[[Any], Any]) -> Opener:
    @asynccontextmanager
    async def opened(url: str, autocommit: bool) -> AsyncIterator[Caller]:
        engine = create_engine(_address(url, "psycopg"), **_level(url, "psycopg", autocommit))
        made = make(engine)

        async def send(statement: str) -> list[tuple[Any, ...]]:
            result = made.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []

        try:
            yield Caller(made, send, plainly(made.commit), plainly(made.rollback))
        finally:
            made.close()
            engine.dispose()

    return opened


def sqlalchemy_async_kind(make: Callable[[Any], Any], driver: str) -> Opener:
    @asynccontextmanager
    async def opened(url: str, autocommit: bool) -> AsyncIterator[Caller]:
        engine = create_async_engine(_address(url, driver), **_level(url, driver, autocommit))
        made = make(engine)
        if hasattr(made, "start"):
            await made.start()

        async def send(statement: str) -> list[tuple[Any, ...]]:
            result = await made.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []

        try:
            yield Caller(made, send, made.commit, made.rollback)
        finally:
            await made.close()
            await engine.dispose()

    return opened


def _django_settings(url: str) -> dict[str, Any]:
    parts = conninfo_to_dict(url)
    named = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    return {"ENGINE": "django.db.backends.postgresql", **{key: parts.get(name, "") for key, name in named.items()}}


def django_kind(alias: str, handed: Callable[[], Any], *, atomic: bool) -> Opener:
    """`atomic` opens transactions as most do; else by turning Django's autocommit off."""

    @asynccontextmanager
    async def opened(url: str, autocommit: bool) -> AsyncIterator[Caller]:
        if not settings.configured:
            settings.configure()
            django.setup()
        django_connections.databases[alias] = django_connections.configure_settings(
            {"default": _django_settings(url), alias: _django_settings(url)}
        )[alias]
        blocks: list[Any] = []

        async def send(statement: str) -> list[tuple[Any, ...]]:
            with django_connections[alias].cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []

        async def begin() -> None:
            if atomic:
                blocks.append(django_transaction.atomic(using=alias))
                blocks[-1].__enter__()
            else:
                django_transaction.set_autocommit(False, using=alias)

        async def end(error: Exception | None) -> None:
            if atomic:
                blocks.pop().__exit__(type(error) if error else None, error, None)
            else:
                (django_transaction.rollback if error else django_transaction.commit)(using=alias)

        try:
            yield Caller(handed(), send, lambda: end(None), lambda: end(ValueError()), begin)
        finally:
            while blocks:
                await end(ValueError())
            django_connections[alias].close()
            del django_connections[alias]

    return opened


BLOCKING: dict[str, Opener] = {
    "psycopg": psycopg_connection,
    "sqlalchemy": sqlalchemy_kind(lambda engine: engine.connect()),
    "sqlalchemy-session": sqlalchemy_kind(Session),
    "sqlalchemy-scoped": sqlalchemy_kind(lambda engine: scoped_session(sessionmaker(engine))),
    "django": django_kind("default", lambda: django_default, atomic=True),
    "django-alias": django_kind("other", lambda: django_connections["other"], atomic=False),
}
SQLALCHEMY_ASYNC: dict[str, Callable[[Any], Any]] = {
    "async": lambda engine: engine.connect(),
    "async-session": AsyncSession,
    "async-scoped": lambda engine: async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task),
}
ASYNC: dict[str, Opener] = {
    "psycopg-async": psycopg_async_connection,
    "asyncpg": asyncpg_connection,
    "asyncpg-pooled": asyncpg_pooled,
    **{
        f"sqlalchemy-{name}-{driver}": sqlalchemy_async_kind(make, driver)
        for driver in ("psycopg", "asyncpg")
        for name, make in SQLALCHEMY_ASYNC.items()
    },
}

# Either service behind one face


@dataclass
class Case:
    """A kind of connection, with the service that settles over it and a rival, on one table."""

    open_kind: Opener
    blocking: bool
    url: str
    table: Table

    def __post_init__(self) -> None:
        self.key = uuid4().hex
        names = {"schema": self.table.schema, "table": self.table.name}
        self.service: Any = (JobSchedulerService if self.blocking else AsyncJobSchedulerService)(self.url, **names)
        self.rival = JobSchedulerService(self.url, **names)

    def options(self, heartbeat_ms: int = 0) -> JobAcquireOptions:
        return JobAcquireOptions(code="guests", run_key=self.key, lease_ms=60_000, heartbeat_ms=heartbeat_ms)

    def play(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a scenario: on a loop, or, for what blocks, without one: Django refuses to work under a loop."""

        async def whole() -> None:
            try:
                await scenario()
            finally:
                closing = self.service.close()
                if not self.blocking:
                    await closing

        with self.rival:
            straight(whole()) if self.blocking else asyncio.run(whole())

    def opened(self, *, autocommit: bool = False) -> AbstractAsyncContextManager[Caller]:
        return self.open_kind(self.url, autocommit)

    async def acquire(self) -> JobAcquired:
        found = self.service.acquire(self.options())
        won = found if self.blocking else await found
        assert isinstance(won, JobAcquired)
        return won

    async def settle(self, how: str, lease: Any, data: Any = None, *, caller: Caller) -> Any:
        done = getattr(self.service, how)(lease, data, connection=caller.connection)
        return done if self.blocking else await done

    async def guard(self, lease: JobExecutionLease, caller: Caller) -> None:
        waiting = lease.guard(caller.connection)
        if waiting is not None:
            await waiting

    async def checkpoint(self, lease: JobExecutionLease, data: Any, caller: Caller) -> None:
        waiting = lease.checkpoint(data, connection=caller.connection)
        if not self.blocking:
            await waiting

    def saved(self) -> Any:
        run = self.rival.find_run(self.options().lock_key)
        return run and run.checkpoint

    async def run(self, callback: Callable[[JobExecutionLease], Coroutine[Any, Any, Any]], **timing: int) -> Any:
        wanted = self.options(**timing)
        if self.blocking:
            return self.service.run_exclusive(wanted, lambda lease: straight(callback(lease))).result
        return (await self.service.run_exclusive(wanted, callback)).result

    async def insert(self, caller: Caller) -> None:
        await caller.execute(f"INSERT INTO effects VALUES ('{self.key}')")

    def effects(self) -> int:
        return int(execute(self.url, "SELECT count(*) FROM effects WHERE run = %s", self.key)[0][0])

    def status(self) -> str:
        table = self.table.quoted.replace("%", "%%")
        query = f'SELECT CAST("status" AS text) FROM {table} WHERE "lockKey" = %s'
        return str(execute(self.url, query, self.options().lock_key)[0][0])


def straight(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends, without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("a blocking kind has suspended")


@pytest.fixture(scope="module")
def guests_url(databases: Databases, door: Door) -> Iterator[str]:
    """One database for the module, with both tables of runs; each test has a run of its own."""
    with databases.one(TEMPLATE) as direct:
        url = door(direct)
        execute(url, "CREATE TABLE effects (run text)")
        execute(url, f"CREATE SCHEMA IF NOT EXISTS {quote(ODD.schema)}")
        with JobSchedulerService(url, schema=ODD.schema, table=ODD.name) as service:
            service.migrate()
        yield url


KINDS = [
    *(pytest.param(kind, True, id=name) for name, kind in BLOCKING.items()),
    *(pytest.param(kind, False, id=name) for name, kind in ASYNC.items()),
    # Django's connection refuses to be used under a loop, so it goes with the blocking service only.
    *(pytest.param(BLOCKING[name], False, id=f"{name}-under-a-loop") for name in BLOCKING if "django" not in name),
]


@pytest.fixture
def case(request: pytest.FixtureRequest, guests_url: str) -> Case:
    """Each kind of connection; blocking ones under a loop, too."""
    kind, blocking = request.param
    return Case(kind, blocking, guests_url, PLAIN)


def each_kind(function: Any) -> Any:
    cases = [pytest.param(tuple(found.values), id=found.id) for found in KINDS]
    return pytest.mark.parametrize("case", cases, indirect=True)(function)


# The scenarios


@pytest.mark.parametrize("table", NAMED.values(), ids=list(NAMED))
@pytest.mark.parametrize(("opener", "blocking"), KINDS)
def test_it_commits_with_the_callers_rows(opener: Opener, blocking: bool, table: Table, guests_url: str) -> None:
    """C7.2, C9.2: guarded and completed in one transaction, under odd names, too; nothing is seen before the commit."""
    case = Case(opener, blocking, guests_url, table)
    data = {"text": 'ü % :p1 $1 \\ "', "n": 1}

    async def scenario() -> None:
        async def callback(lease: JobExecutionLease) -> None:
            async with case.opened() as caller:
                await caller.begin()
                await case.guard(lease, caller)
                await case.insert(caller)
                assert await case.settle("complete", lease, data, caller=caller) is True
                await case.guard(lease, caller)
                assert (case.effects(), case.status()) == (0, "RUNNING")
                await caller.commit()

        await case.run(callback)
        assert (case.effects(), case.status()) == (1, "SUCCESS")
        run = case.rival.find_run(case.options().lock_key)
        assert run is not None
        assert run.data == data

    case.play(scenario)


@pytest.mark.parametrize("table", NAMED.values(), ids=list(NAMED))
@pytest.mark.parametrize(("opener", "blocking"), KINDS)
def test_a_checkpoint_goes_with_the_callers_rows(opener: Opener, blocking: bool, table: Table, guests_url: str) -> None:
    """C7.6, C9.2: committed with them, rolled back with them, and guarding meanwhile, under odd names, too."""
    case = Case(opener, blocking, guests_url, table)
    data = {"text": 'ü % :p1 $1 \\ "', "done": 1}

    async def scenario() -> None:
        async def callback(lease: JobExecutionLease) -> None:
            async with case.opened() as caller:
                await caller.begin()
                await case.insert(caller)
                await case.checkpoint(lease, data, caller)
                assert (case.effects(), case.saved()) == (0, None)
                await caller.commit()
                assert (case.effects(), case.saved()) == (1, data)
                await caller.begin()
                await case.insert(caller)
                await case.checkpoint(lease, {"done": 2}, caller)
                await caller.rollback()
                assert (case.effects(), case.saved()) == (1, data)

        await case.run(callback)
        assert (case.status(), case.saved()) == ("SUCCESS", data)

    case.play(scenario)


@each_kind
def test_a_former_owner_can_save_no_checkpoint_by_oversight(case: Case) -> None:
    """C7.6: it raises there, and neither rows nor checkpoint are in; outside a transaction it is refused."""

    async def scenario() -> None:
        async def callback(lease: JobExecutionLease) -> None:
            async with case.opened(autocommit=True) as caller:
                with pytest.raises(JobServiceStateError, match="no transaction open"):
                    await case.checkpoint(lease, {"done": 1}, caller)
            age(case.url, lease.id, timedelta(minutes=2))
            assert case.rival.acquire(case.options()).acquired
            async with case.opened() as caller:
                await caller.begin()
                await case.insert(caller)
                with pytest.raises(LostJobLeaseError) as caught:
                    await case.checkpoint(lease, {"done": 1}, caller)
                assert caught.value.reason is LostReason.TAKEN_OVER
                await caller.rollback()
            raise ValueError

        with pytest.raises((ValueError, LostJobLeaseError)):
            await case.run(callback)
        assert (case.effects(), case.saved()) == (0, None)

    case.play(scenario)


@each_kind
def test_it_rolls_back_with_the_callers_rows(case: Case) -> None:
    """C7.2: neither is there, and the run is still ours: it can be completed after all."""

    async def scenario() -> None:
        lease = await case.acquire()
        async with case.opened() as caller:
            await caller.begin()
            await case.insert(caller)
            await case.settle("complete", lease, caller=caller)
            await caller.rollback()
            assert (case.effects(), case.status()) == (0, "RUNNING")
            await caller.begin()
            await case.settle("complete", lease, caller=caller)
            await caller.commit()
        assert case.status() == "SUCCESS"

    case.play(scenario)


@each_kind
def test_a_former_owner_cannot_commit_by_oversight(case: Case) -> None:
    """C6.1: each way of settling raises instead of saying `False`, and the rows stay out."""

    async def scenario() -> None:
        lease = await case.acquire()
        age(case.url, lease.id, timedelta(minutes=2))
        assert case.rival.acquire(case.options()).acquired
        for how in ("complete", "fail", "release"):
            async with case.opened() as caller:
                await caller.begin()
                await case.insert(caller)
                with pytest.raises(LostJobLeaseError) as caught:
                    await case.settle(how, lease, {}, caller=caller)
                assert caught.value.reason is LostReason.TAKEN_OVER
                await caller.rollback()
        assert (case.effects(), case.status()) == (0, "RUNNING")

    case.play(scenario)


@each_kind
def test_outside_a_transaction_it_is_refused(case: Case) -> None:
    """C7.2, C7.3: with nothing open nothing is done together, and nothing is guarded."""

    async def scenario() -> None:
        async def callback(lease: JobExecutionLease) -> None:
            async with case.opened(autocommit=True) as caller:
                with pytest.raises(JobServiceStateError, match="no transaction open"):
                    await case.guard(lease, caller)
                with pytest.raises(JobServiceStateError, match="no transaction open"):
                    await case.settle("complete", lease, caller=caller)
                assert case.status() == "RUNNING"

        await case.run(callback)

    case.play(scenario)


@each_kind
def test_nobody_takes_a_guarded_run_over(case: Case) -> None:
    """C7.3: expired or not, until the transaction ends; afterwards the former owner's guard is refused."""

    async def scenario() -> None:
        async def callback(lease: JobExecutionLease) -> None:
            async with case.opened() as caller:
                await caller.begin()
                await case.guard(lease, caller)
                age(case.url, lease.id, timedelta(minutes=2))
                attempt = case.rival.acquire(case.options())
                assert attempt.acquired is False
                assert attempt.reason is NotAcquiredReason.RUNNING
                await caller.commit()
                assert case.rival.acquire(case.options()).acquired
                await caller.begin()
                with pytest.raises(LostJobLeaseError):
                    await case.guard(lease, caller)
                await caller.rollback()

        with pytest.raises(LostJobLeaseError):
            await case.run(callback)

    case.play(scenario)


@each_kind
def test_renewals_go_through_a_guard(case: Case) -> None:
    """C7.3, C5.2: the row moves on while it is guarded."""

    async def scenario() -> None:
        async def callback(lease: JobExecutionLease) -> bool:
            async with case.opened() as caller:
                await caller.begin()
                await case.guard(lease, caller)
                stamp = row_of(case.url, lease.id)["modifiedAt"]
                eventually(lambda: row_of(case.url, lease.id)["modifiedAt"] > stamp)
                await caller.commit()
            return lease.lost is None

        assert await case.run(callback, heartbeat_ms=30) is True

    case.play(scenario)


@each_kind
def test_a_transaction_left_open_is_not_waited_for(case: Case) -> None:
    """C7.2: `run_exclusive` returns the result and writes nothing; the caller commits afterwards."""

    async def scenario() -> None:
        async with case.opened() as caller:

            async def callback(lease: JobExecutionLease) -> str:
                await caller.begin()
                await case.settle("complete", lease, caller=caller)
                return "result"

            assert await case.run(callback) == "result"
            assert case.status() == "RUNNING"
            await caller.commit()
        assert case.status() == "SUCCESS"

    case.play(scenario)


@each_kind
def test_a_transaction_that_was_rolled_back_is_no_success(case: Case) -> None:
    """C7.2: the run is FAIL, and `OutcomeNotRecordedError` carries the result."""

    async def scenario() -> None:
        async def callback(lease: JobExecutionLease) -> str:
            async with case.opened() as caller:
                await caller.begin()
                await case.insert(caller)
                await case.settle("complete", lease, caller=caller)
                await caller.rollback()
            return "result"

        with pytest.raises(OutcomeNotRecordedError) as caught:
            await case.run(callback)
        assert caught.value.result == "result"
        assert (case.effects(), case.status()) == (0, "FAIL")

    case.play(scenario)


STATE = (
    "SELECT CAST(pg_current_xact_id() AS text), (SELECT string_agg(name || '=' || setting, ',' ORDER BY name) "
    "FROM pg_settings WHERE source IN ('session', 'client', 'override')), "
    "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
)


@each_kind
def test_the_callers_transaction_and_settings_stay_as_they_are(case: Case) -> None:
    """C7.2, C7.3: the same transaction goes on, with the same settings, after a success and after a refusal."""

    async def scenario() -> None:
        async def callback(lease: JobExecutionLease) -> None:
            async with case.opened() as caller:
                await caller.begin()
                await case.insert(caller)
                before = await caller.execute(STATE)
                await case.guard(lease, caller)
                await case.settle("complete", lease, caller=caller)
                with pytest.raises(LostJobLeaseError):
                    await case.settle("fail", JobLease(lease.id, uuid4()), caller=caller)
                assert await caller.execute(STATE) == before
                await caller.commit()

        await case.run(callback)
        assert case.effects() == 1

    case.play(scenario)


@each_kind
def test_no_owner_token_is_logged_or_told_by_an_error(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    """C11: neither at the lowest level of the driver's loggers, nor in the error of a transaction that is broken."""
    for name in ("", "sqlalchemy.engine", "django.db.backends"):
        caplog.set_level(logging.DEBUG, name)

    async def scenario() -> None:
        lease = await case.acquire()
        async with case.opened() as caller:
            if "django" in type(caller.connection).__module__:
                caller.connection.force_debug_cursor = True
            await caller.begin()
            await case.settle("complete", lease, caller=caller)
            await caller.rollback()
            await caller.begin()
            with pytest.raises(Exception, match="nowhere"):
                await caller.execute("SELECT * FROM nowhere")
            with pytest.raises(Exception, match="transaction") as caught:
                await case.settle("complete", lease, caller=caller)
            assert str(lease.owner_token) not in str(caught.value)
            await caller.rollback()
        assert str(lease.owner_token) not in caplog.text
        if "sqlalchemy" in type(caller.connection).__module__:
            assert "WITH settled AS" in caplog.text

    case.play(scenario)


# What is particular to one kind


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_a_pipeline_in_autocommit(guests_url: str, inside: bool) -> None:
    """C7.3: whether a transaction is open is known although its BEGIN may still be queued."""
    key = uuid4().hex
    with JobSchedulerService(guests_url) as service, psycopg.connect(guests_url, autocommit=True) as connection:

        def callback(lease: JobExecutionLease) -> None:
            with connection.pipeline():
                connection.execute("SELECT 1")
                if inside:
                    with connection.transaction():
                        lease.guard(connection)
                else:
                    lease.guard(connection)

        options = JobAcquireOptions(code="guests", run_key=key)
        if inside:
            assert service.run_exclusive(options, callback).acquired
        else:
            with pytest.raises(JobServiceStateError, match="no transaction open"):
                service.run_exclusive(options, callback)


def test_a_blocking_service_refuses_an_async_connection(guests_url: str) -> None:
    """C7.5: it could not wait for it."""

    async def scenario() -> None:
        with JobSchedulerService(guests_url) as service:
            won = service.acquire(JobAcquireOptions(code="guests", run_key=uuid4().hex))
            assert won.acquired
            async with await psycopg.AsyncConnection.connect(guests_url) as connection:
                with pytest.raises(TypeError, match="AsyncJobSchedulerService"):
                    service.complete(won, connection=connection)

    asyncio.run(scenario())


def test_django_over_another_database_is_refused_with_the_list() -> None:
    """C7.5: what is not PostgreSQL has no table of runs."""
    from django.db.backends.sqlite3.base import DatabaseWrapper  # type: ignore[import-untyped]

    from tenure.drivers.guests import guest_of

    if not settings.configured:
        settings.configure()
    with pytest.raises(TypeError, match="Django connection to PostgreSQL"):
        guest_of(DatabaseWrapper({"NAME": ":memory:"}, "default"))


def test_above_read_committed_a_renewal_gives_40001(guests_url: str) -> None:
    """C7.2: the error is the driver's own; the same transaction, begun again, goes through."""
    options = JobAcquireOptions(code="guests", run_key=uuid4().hex, heartbeat_ms=0)
    with JobSchedulerService(guests_url) as service, psycopg.connect(guests_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        won = service.acquire(options)
        assert won.acquired
        connection.execute("SELECT count(*) FROM effects")
        assert service.heartbeat(won)
        with pytest.raises(psycopg.errors.SerializationFailure):
            service.complete(won, connection=connection)
        connection.rollback()
        service.complete(won, connection=connection)
        connection.commit()
        assert row_of(guests_url, won.id)["status"] == "SUCCESS"
