"""No owner token and no password in anything that people or logs get to see (C11)."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from psycopg_pool import ConnectionPool

from tenure import (
    AsyncJobSchedulerService,
    InvalidJobOptionsError,
    JobAcquireOptions,
    JobExecutionLease,
    JobLease,
    JobSchedulerService,
    TenureError,
    operations,
)
from tenure.drivers.recipes import Recipe
from tenure.statements import Statements, Table
from tests.support.rows import TABLE, age, execute
from tests.support.waiting import eventually

OPTIONS = JobAcquireOptions(code="job", run_key="r")
SECRET = "hunter2"


def everything(error: BaseException) -> str:
    """Give what a traceback, a log or a page may show of an error: itself, its causes, its arguments."""
    chain = "".join(traceback.format_exception(error))
    return f"{error} {error!r} {error.args!r} {vars(error)!r} {chain}"


# Text of this file stands in tracebacks, so the addresses are put together here.
ADDRESSES = {
    "a port that is no number": "postgres://u:{}@h:notaport/db",
    "another scheme": "mysql://u:{}@h/db",
    "an open quote": "host=h password='{}",
    "no equals sign": "host=h password=x {}",
    "a bad escape": "postgresql://u:{}%zz@h/db",
    "nobody there": "postgresql://u:{}@127.0.0.1:1/db",
    "no such host": "postgresql://u:{}@no-such-host.invalid/db",
    "an unknown parameter": "postgresql://u:{}@h/db?color=red",
    "as a parameter": "postgresql://127.0.0.1:1/db?user=u&password={}",
    "a slash that was not escaped": "postgresql://u:{}/x@127.0.0.1:1/db",
    "a slash before it": "postgresql://u:1/{}@127.0.0.1:1/db",
    "an at sign that was not escaped": "postgresql://u:x@{}@127.0.0.1:1/db",
    "a question mark that was not escaped": "postgresql://u:x?{}@127.0.0.1:1/db",
    "a hash that was not escaped": "postgresql://u:x#{}@127.0.0.1:1/db",
    "a colon that was not escaped": "postgresql://u:x:{}@127.0.0.1:1/db",
    "a bracket that was not escaped": "postgresql://u:[{}@127.0.0.1:1/db",
}


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_a_password_is_in_no_error_about_an_address(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """C11: also when it was not escaped as a URL wants it, so that parts of it are taken for a host or a port."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(TenureError) as caught:
        with JobSchedulerService(address.format(SECRET)) as service:
            assert SECRET not in repr(service)
            service.acquire(OPTIONS)
    assert SECRET not in everything(caught.value)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
async def test_a_password_is_in_no_error_of_the_async_service(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """C11: as the blocking one."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(TenureError) as caught:
        async with AsyncJobSchedulerService(address.format(SECRET)) as service:
            assert SECRET not in repr(service)
            await service.acquire(OPTIONS)
    assert SECRET not in everything(caught.value)
    assert SECRET not in caplog.text


def test_a_connection_string_that_cannot_be_read_says_how_to_write_it() -> None:
    """C11: the fix is named, the string is not."""
    with pytest.raises(InvalidJobOptionsError, match="postgresql://user:password@host:5432/database"):
        JobSchedulerService("mysql://u:p@h/db")


def test_a_wrong_password_is_in_no_error(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """C11: the server refuses it; neither it nor the right one is shown, by us or by the pool."""
    caplog.set_level(logging.DEBUG)
    right = urlsplit(database_url).password
    assert right is not None
    uses: list[Callable[[JobSchedulerService], object]] = [
        lambda service: service.acquire(OPTIONS),
        lambda service: service.find_run(UUID(int=1)),
        lambda service: service.migrate(),
        lambda service: service.check_schema(),
    ]
    for act in uses:
        with JobSchedulerService(database_url.replace(right, SECRET)) as service:
            with pytest.raises(TenureError, match="password") as caught:
                act(service)
            text = everything(caught.value) + caplog.text + repr(service)
            assert SECRET not in text
            assert right not in text


def test_an_owner_token_is_in_no_repr_error_or_log(
    database_url: str,
    service: JobSchedulerService,
    rival: JobSchedulerService,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C11: through a whole life: won, renewed, lost, settled, refused, and failing in the database."""
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    tokens: list[UUID] = []

    def callback(lease: JobExecutionLease) -> None:
        tokens.append(lease.owner_token)
        seen.extend([repr(lease), str(lease), f"{lease}", repr(lease.hold), repr(service), repr(service.list_runs())])
        age(database_url, lease.id, timedelta(hours=1))
        taken = rival.acquire(OPTIONS)
        assert taken.acquired
        tokens.append(taken.owner_token)
        seen.extend([repr(taken), repr(rival), repr(rival.find_run(lease.id)), repr(service.acquire(OPTIONS))])
        eventually(lambda: lease.lost)
        lease.check()

    fast = JobAcquireOptions(code="job", run_key="r", lease_ms=600_000, heartbeat_ms=1_000)
    with pytest.raises(TenureError) as caught:
        service.run_exclusive(fast, callback)
    seen.append(everything(caught.value))
    execute(database_url, f"ALTER TABLE {TABLE} ADD CONSTRAINT never CHECK (\"status\" <> 'SUCCESS') NOT VALID")
    with pytest.raises(TenureError) as refused:
        rival.complete(JobLease(_run_of(database_url), tokens[1]))
    seen.append(everything(refused.value))
    for text in [*seen, caplog.text]:
        for token in tokens:
            assert str(token) not in text
            assert token.hex not in text


def _run_of(url: str) -> UUID:
    found = execute(url, f'SELECT "id" FROM {TABLE}')[0][0]
    assert isinstance(found, UUID)
    return found


def test_values_within_tenure_do_not_show_them(database_url: str) -> None:
    """C11: error trackers show the `repr` of every local variable: a call with its parameters, and how to connect."""
    token = UUID(int=0x1234)
    statements = Statements(Table())
    lease = JobLease(UUID(int=1), token)
    calls = [
        operations.disownment(statements, token, "{}"),
        operations.renewal(statements, [lease]),
        operations.renewal_by_hand(statements, lease, now_boot_s=0.0).call,
        operations.acquisition(statements, OPTIONS, token, "me", now_boot_s=0.0, clock=lambda: 0.0).call,
    ]
    for call in calls:
        assert str(token) not in repr(call)
    assert SECRET not in repr(Recipe(f"postgresql://u:{SECRET}@h/db", {"password": SECRET}))


def test_a_given_pool_keeps_its_password_too(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """C11: a pool whose server refuses its password."""
    caplog.set_level(logging.DEBUG)
    right = urlsplit(database_url).password
    assert right is not None
    pool = ConnectionPool(database_url.replace(right, SECRET), min_size=0, max_size=1, open=True, timeout=1)
    with pool, JobSchedulerService(pool) as service:
        with pytest.raises(TenureError) as caught:
            service.heartbeat(JobLease(UUID(int=1), UUID(int=2)))
    assert SECRET not in everything(caught.value) + caplog.text + repr(service)
    assert right not in everything(caught.value) + caplog.text
