"""Effects inside the same database: SUCCESS and the business rows commit together, or not at all (C7)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

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
from tests.support.rows import TABLE, age, execute, row_of
from tests.support.waiting import eventually


def options(key: str = "1", lease_ms: int = 60_000) -> JobAcquireOptions:
    return JobAcquireOptions(code="effects", run_key=key, lease_ms=lease_ms)


@pytest.fixture
def effects(database_url: str) -> Callable[[], int]:
    """A business table, and how many rows it holds."""
    execute(database_url, "CREATE TABLE effects (run text)")
    return lambda: int(execute(database_url, "SELECT count(*) FROM effects")[0][0])


def won(service: JobSchedulerService, lease_ms: int = 60_000) -> JobAcquired:
    found = service.acquire(options(lease_ms=lease_ms))
    assert isinstance(found, JobAcquired)
    return found


class TestComplete:
    def test_it_commits_with_the_callers_rows(
        self, service: JobSchedulerService, database_url: str, effects: Callable[[], int]
    ) -> None:
        """C7.2: both are there after the commit, with the data."""
        lease = won(service)
        with psycopg.connect(database_url) as connection, connection.transaction():
            connection.execute("INSERT INTO effects VALUES ('1')")
            assert service.complete(lease, {"rows": 1}, connection=connection)
            assert (effects(), row_of(database_url, lease.id)["status"]) == (0, "RUNNING")
        row = row_of(database_url, lease.id)
        assert (effects(), row["status"], row["data"]) == (1, "SUCCESS", {"rows": 1})

    def test_it_rolls_back_with_the_callers_rows(
        self, service: JobSchedulerService, database_url: str, effects: Callable[[], int]
    ) -> None:
        """C7.2: neither is there, and the run is still ours."""
        lease = won(service)
        with psycopg.connect(database_url) as connection:
            connection.execute("INSERT INTO effects VALUES ('1')")
            service.complete(lease, connection=connection)
            connection.rollback()
        assert (effects(), row_of(database_url, lease.id)["status"]) == (0, "RUNNING")
        assert service.heartbeat(lease)

    def test_a_former_owner_cannot_commit_by_oversight(
        self, service: JobSchedulerService, rival: JobSchedulerService, database_url: str, effects: Callable[[], int]
    ) -> None:
        """C6.1: it raises instead of saying `False`, for `complete`, `fail` and `release`."""
        lease = won(service)
        age(database_url, lease.id, timedelta(minutes=2))
        assert rival.acquire(options()).acquired
        for settle in (service.complete, service.fail, service.release):
            with psycopg.connect(database_url) as connection, pytest.raises(LostJobLeaseError) as caught:
                with connection.transaction():
                    connection.execute("INSERT INTO effects VALUES ('1')")
                    settle(lease, connection=connection)
            assert caught.value.reason is LostReason.TAKEN_OVER
        assert effects() == 0

    def test_outside_a_transaction_it_is_refused(self, service: JobSchedulerService, database_url: str) -> None:
        """C7.2: with nothing open, nothing would be done together."""
        lease = won(service)
        with psycopg.connect(database_url, autocommit=True) as connection:
            with pytest.raises(JobServiceStateError, match="no transaction open"):
                service.complete(lease, connection=connection)
        assert row_of(database_url, lease.id)["status"] == "RUNNING"

    def test_what_is_no_connection_is_refused_with_the_list(self, service: JobSchedulerService) -> None:
        """C7.5: the error says what may be given."""
        with pytest.raises(TypeError, match=r"psycopg Connection.*asyncpg.*SQLAlchemy.*Django"):
            service.complete(won(service), connection=object())

    def test_a_lease_made_by_hand_may_be_used(self, service: JobSchedulerService, database_url: str) -> None:
        """C7.2: id and owner token are enough."""
        lease = won(service)
        with psycopg.connect(database_url) as connection:
            service.complete(JobLease(lease.id, lease.owner_token), connection=connection)
        assert row_of(database_url, lease.id)["status"] == "SUCCESS"


class TestRunExclusive:
    def test_a_run_completed_in_the_callbacks_transaction_is_noticed(
        self, service: JobSchedulerService, database_url: str, effects: Callable[[], int]
    ) -> None:
        """C7.2: the result comes out, and nothing more is written."""

        def callback(lease: JobExecutionLease) -> str:
            with psycopg.connect(database_url) as connection:
                connection.execute("INSERT INTO effects VALUES ('1')")
                service.complete(lease, {"by": "hand"}, connection=connection)
            return "result"

        assert service.run_exclusive(options(), callback).result == "result"
        row = row_of(database_url, options().lock_key)
        assert (effects(), row["status"], row["data"]) == (1, "SUCCESS", {"by": "hand"})

    def test_a_transaction_that_is_still_open_is_not_waited_for(
        self, service: JobSchedulerService, database_url: str
    ) -> None:
        """C7.2: it would wait for itself; the result comes out, the caller commits later."""
        with psycopg.connect(database_url) as connection:
            outcome = service.run_exclusive(options(), lambda lease: service.complete(lease, connection=connection))
            assert outcome.result is True
            assert row_of(database_url, options().lock_key)["status"] == "RUNNING"
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"

    def test_a_transaction_that_was_rolled_back_is_no_success(
        self, service: JobSchedulerService, rival: JobSchedulerService, database_url: str, effects: Callable[[], int]
    ) -> None:
        """C7.2: the run is FAIL, `OutcomeNotRecordedError` carries the result, and another node may try."""

        def callback(lease: JobExecutionLease) -> str:
            with psycopg.connect(database_url) as connection:
                connection.execute("INSERT INTO effects VALUES ('1')")
                service.complete(lease, connection=connection)
                connection.rollback()
            return "result"

        with pytest.raises(OutcomeNotRecordedError) as caught:
            service.run_exclusive(options(), callback)
        assert caught.value.result == "result"
        row = row_of(database_url, options().lock_key)
        assert (effects(), row["status"]) == (0, "FAIL")
        assert "rolled back" in row["data"]["error"]
        again = rival.acquire(options())
        assert isinstance(again, JobAcquired)
        assert again.attempt == 2

    def test_an_exception_after_the_rollback_is_a_failure(
        self, service: JobSchedulerService, database_url: str
    ) -> None:
        """C6.3, C7.2: the callback's own exception comes out, and FAIL is recorded."""

        def callback(lease: JobExecutionLease) -> None:
            with psycopg.connect(database_url) as connection:
                service.complete(lease, connection=connection)
                raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            service.run_exclusive(options(), callback)
        assert row_of(database_url, options().lock_key)["status"] == "FAIL"

    def test_an_exception_after_the_commit_leaves_success(
        self, service: JobSchedulerService, database_url: str
    ) -> None:
        """C6.4: what was committed as SUCCESS is never FAIL."""

        def callback(lease: JobExecutionLease) -> None:
            with psycopg.connect(database_url) as connection:
                service.complete(lease, connection=connection)
            raise ValueError("too late")

        with pytest.raises(ValueError, match="too late"):
            service.run_exclusive(options(), callback)
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"

    def test_a_lease_is_not_lost_while_its_transaction_is_open(
        self, service: JobSchedulerService, rival: JobSchedulerService, database_url: str
    ) -> None:
        """C5.7: three leases long nobody can take it, and it is not declared lost; other leases are renewed."""
        lost: list[LostReason | None] = []

        def callback(lease: JobExecutionLease) -> None:
            with psycopg.connect(database_url) as connection:
                service.complete(lease, connection=connection)
                until_s = time.monotonic() + 1.8
                while time.monotonic() < until_s:
                    assert rival.acquire(options(lease_ms=600)).acquired is False
                    lost.append(lease.lost)
                    time.sleep(0.02)

        other = service.acquire(options("other", lease_ms=600))
        assert isinstance(other, JobAcquired)
        service.run_exclusive(options(lease_ms=600), callback)
        assert set(lost) == {None}
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"

    def test_renewal_goes_on_after_a_rollback_to_a_savepoint(
        self, service: JobSchedulerService, rival: JobSchedulerService, database_url: str
    ) -> None:
        """C5.7: the transaction goes on without the completion, and the lease lives on."""

        def callback(lease: JobExecutionLease) -> str:
            with psycopg.connect(database_url) as connection, connection.transaction():
                with connection.transaction(force_rollback=True):
                    service.complete(lease, connection=connection)
                stamp = row_of(database_url, lease.id)["modifiedAt"]
                eventually(lambda: row_of(database_url, lease.id)["modifiedAt"] > stamp)
                time.sleep(1.2)
                assert rival.acquire(options(lease_ms=600)).acquired is False
                lease.check()
            return "done"

        assert service.run_exclusive(options(lease_ms=600), callback).result == "done"
        assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"


class TestGuard:
    def test_nobody_takes_a_guarded_run_expired_or_not(
        self, service: JobSchedulerService, rival: JobSchedulerService, database_url: str, effects: Callable[[], int]
    ) -> None:
        """C7.3: the attempt is a loss, at once, until the transaction ends."""

        def callback(lease: JobExecutionLease) -> None:
            with psycopg.connect(database_url) as connection, connection.transaction():
                lease.guard(connection)
                age(database_url, lease.id, timedelta(minutes=2))
                began = time.monotonic()
                attempt = rival.acquire(options())
                assert attempt.acquired is False
                assert attempt.reason is NotAcquiredReason.RUNNING
                assert time.monotonic() - began < 1
                connection.execute("INSERT INTO effects VALUES ('1')")
            assert rival.acquire(options()).acquired

        with pytest.raises(LostJobLeaseError):
            service.run_exclusive(options(), callback)
        assert effects() == 1

    def test_renewals_go_through_a_guard(self, service: JobSchedulerService, database_url: str) -> None:
        """C7.3, C5.2: three leases long, the guarded run is renewed on time."""

        def callback(lease: JobExecutionLease) -> bool:
            with psycopg.connect(database_url) as connection, connection.transaction():
                lease.guard(connection)
                time.sleep(1.8)
                return lease.lost is None

        assert service.run_exclusive(options(lease_ms=600), callback).result is True

    def test_a_former_owner_is_refused(
        self, service: JobSchedulerService, rival: JobSchedulerService, database_url: str, effects: Callable[[], int]
    ) -> None:
        """C7.3: its guarded write does not commit."""

        def callback(lease: JobExecutionLease) -> None:
            age(database_url, lease.id, timedelta(minutes=2))
            assert rival.acquire(options()).acquired
            with psycopg.connect(database_url) as connection, connection.transaction():
                connection.execute("INSERT INTO effects VALUES ('1')")
                lease.guard(connection)

        with pytest.raises(LostJobLeaseError) as caught:
            service.run_exclusive(options(), callback)
        assert caught.value.reason is LostReason.TAKEN_OVER
        assert effects() == 0

    def test_outside_a_transaction_it_is_refused(self, service: JobSchedulerService, database_url: str) -> None:
        """C7.3: it would guard nothing."""
        with psycopg.connect(database_url, autocommit=True) as connection:
            with pytest.raises(JobServiceStateError, match="no transaction open"):
                service.run_exclusive(options(), lambda lease: lease.guard(connection))

    async def test_async_connections_are_awaited(
        self, async_service: AsyncJobSchedulerService, database_url: str, effects: Callable[[], int]
    ) -> None:
        """C7.3, C7.5: guard and completion over an async connection."""

        async def callback(lease: JobExecutionLease) -> str:
            async with await psycopg.AsyncConnection.connect(database_url) as connection:
                await lease.guard(connection)
                await connection.execute("INSERT INTO effects VALUES ('1')")
                await async_service.complete(lease, {"rows": 1}, connection=connection)
                await lease.guard(connection)
            return "done"

        assert (await async_service.run_exclusive(options(), callback)).result == "done"
        assert effects() == 1
        assert execute(database_url, f'SELECT "status"::text FROM {TABLE}') == [("SUCCESS",)]


def test_settling_twice_in_one_transaction_is_refused_and_loses_nothing(
    service: JobSchedulerService, database_url: str
) -> None:
    """C5.7, C6.1: the second one raises; the first may still commit."""

    def callback(lease: JobExecutionLease) -> str:
        with psycopg.connect(database_url) as connection:
            service.complete(lease, connection=connection)
            with pytest.raises(LostJobLeaseError):
                service.complete(lease, connection=connection)
            lease.check()
        return "done"

    assert service.run_exclusive(options(), callback).result == "done"
    assert row_of(database_url, options().lock_key)["status"] == "SUCCESS"


def test_without_renewal_the_deadline_stands(service: JobSchedulerService, database_url: str) -> None:
    """C5.5: nobody would hear of a rollback, so an expired lease is told as such."""
    quiet = JobAcquireOptions(code="effects", run_key="quiet", lease_ms=600, heartbeat_ms=0)

    def callback(lease: JobExecutionLease) -> LostReason | None:
        with psycopg.connect(database_url) as connection:
            service.complete(lease, connection=connection)
            connection.rollback()
        return eventually(lambda: lease.lost, 3)

    with pytest.raises(OutcomeNotRecordedError) as caught:
        service.run_exclusive(quiet, callback)
    assert caught.value.result is LostReason.EXPIRED
