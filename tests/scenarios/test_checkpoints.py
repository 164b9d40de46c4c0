"""How far a run has come, and how its last attempt ended, for the next one and for who looks on (C7.6)."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tenure import (
    AsyncJobExecutionLease,
    AsyncJobSchedulerService,
    DatabaseProblem,
    InvalidJobDataError,
    JobAcquired,
    JobAcquireOptions,
    JobDatabaseError,
    JobExecutionLease,
    JobLease,
    JobSchedulerService,
    JobSchedulerStatus,
    JobServiceStateError,
    LostJobLeaseError,
    LostReason,
    NotAcquiredReason,
    PreviousAttempt,
    operations,
)
from tenure.statements import Table
from tests.scenarios.test_schema import named_grants
from tests.support.nestjs import NestNode
from tests.support.pgbouncer import PROGRAM, pgbouncer
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, age, execute, row_of
from tests.support.waiting import eventually

CHECKPOINTS = Table().beside("checkpoints")
ATTEMPTS = Table().beside("attempts")
OPTIONS = JobAcquireOptions(code="import", run_key="tick", lease_ms=60_000, heartbeat_ms=0)


class Either:
    """A service of either kind behind one face."""

    def __init__(self, service: JobSchedulerService | AsyncJobSchedulerService) -> None:
        self.service = service

    async def do(self, method: str, *given: Any, **named: Any) -> Any:
        call: Callable[..., Any] = getattr(self.service, method)
        if isinstance(self.service, AsyncJobSchedulerService):
            return await call(*given, **named)
        return await asyncio.to_thread(call, *given, **named)

    async def acquire(self, options: JobAcquireOptions = OPTIONS) -> JobAcquired:
        result = await self.do("acquire", options)
        assert isinstance(result, JobAcquired)
        return result


@pytest.fixture(params=["blocking", "async"])
async def either(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Either]:
    if request.param == "blocking":
        with JobSchedulerService(database_url, owner_label="node-a") as service:
            yield Either(service)
    else:
        async with AsyncJobSchedulerService(database_url, owner_label="node-a") as on_loop:
            yield Either(on_loop)


def won(service: JobSchedulerService, options: JobAcquireOptions = OPTIONS) -> JobAcquired:
    result = service.acquire(options)
    assert isinstance(result, JobAcquired)
    return result


def saved(url: str) -> list[tuple[Any, ...]]:
    return execute(url, f'SELECT "attempt", "data" FROM {CHECKPOINTS}')


def known(previous: PreviousAttempt | None) -> PreviousAttempt:
    assert previous is not None
    return previous


def dead(url: str, lease: JobLease) -> None:
    """Let a lease run out."""
    age(url, lease.id, timedelta(minutes=2))


# What the next attempt finds


async def test_the_first_attempt_has_none_before_it(either: Either) -> None:
    """C7.6: `None`, and nothing is listed; a checkpoint of its own does not show in it."""
    lease = await either.acquire()
    assert lease.previous is None
    await either.do("checkpoint", lease, {"done": 1})
    assert lease.previous is None
    assert await either.do("list_attempts", lease.id) == []


async def test_after_a_failure(either: Either, database_url: str) -> None:
    """C7.6: that it failed, what it said, who it was and when; no checkpoint says that none was saved."""
    before = datetime.now(UTC) - timedelta(seconds=5)
    first = await either.acquire()
    await either.do("fail", first, {"error": "ValueError: no", "text": 'ü % :p1 $1 \\ "'})
    ended = row_of(database_url, first.id)["finishedAt"]
    previous = known((await either.acquire()).previous)
    assert (previous.attempt, previous.status, previous.died) == (1, JobSchedulerStatus.FAIL, False)
    assert previous.data == {"error": "ValueError: no", "text": 'ü % :p1 $1 \\ "'}
    assert (previous.holder, previous.fencing_token, previous.lease_ms) == ("node-a", first.fencing_token, 60_000)
    assert previous.started_at is not None
    assert before < previous.started_at <= ended
    assert previous.ended_at == ended
    assert previous.started_at.utcoffset() == timedelta(0)
    assert (previous.checkpoint, previous.checkpointed_at) == (None, None)


async def test_after_a_death(either: Either, database_url: str) -> None:
    """C7.6: `died`, when it was last heard of, how far it came; an earlier attempt's data is not taken for its own."""
    first = await either.acquire()
    await either.do("fail", first, {"error": "first"})
    second = await either.acquire()
    await either.do("checkpoint", second, {"done": 12, "of": 100})
    dead(database_url, second)
    last_sign = row_of(database_url, second.id)["modifiedAt"]
    previous = known((await either.acquire()).previous)
    assert (previous.attempt, previous.status, previous.died) == (2, JobSchedulerStatus.RUNNING, True)
    assert (previous.data, previous.ended_at) == (None, last_sign)
    assert previous.checkpoint == {"done": 12, "of": 100}
    assert previous.checkpointed_at is not None
    assert abs(previous.checkpointed_at - datetime.now(UTC)) < timedelta(minutes=1)


async def test_after_a_release(either: Either) -> None:
    """C7.6: `release` is `fail` with a kinder word."""
    await either.do("release", await either.acquire())
    previous = known((await either.acquire()).previous)
    assert (previous.status, previous.data) == (JobSchedulerStatus.FAIL, {"released": True})


async def test_a_checkpoint_stays_until_it_is_replaced(either: Either, database_url: str) -> None:
    """C7.6: through attempts that save none, and after the end, for who looks on; it goes with the run's row."""
    lease = await either.acquire()
    await either.do("checkpoint", lease, {"done": 1})
    await either.do("checkpoint", lease, {"done": 2})
    for attempt in (2, 3):
        await either.do("fail", lease)
        lease = await either.acquire()
        assert (lease.attempt, known(lease.previous).checkpoint) == (attempt, {"done": 2})
    await either.do("checkpoint", lease, {"done": 3})
    assert await either.do("complete", lease)
    run = await either.do("find_run", lease.id)
    assert run.checkpoint == {"done": 3}
    assert abs(run.checkpointed_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert [run.checkpoint for run in await either.do("list_runs")] == [{"done": 3}]
    execute(database_url, f"DELETE FROM {TABLE}")
    assert execute(database_url, f"SELECT FROM {CHECKPOINTS}") == execute(database_url, f"SELECT FROM {ATTEMPTS}") == []


async def test_attempts_are_listed_in_their_order(either: Either, database_url: str) -> None:
    """C7.6: by id and by key, without the one that is under way; nothing for a run that is not there."""
    first = await either.acquire()
    await either.do("fail", first, {"error": "no"})
    second = await either.acquire()
    dead(database_url, second)
    third = await either.acquire()
    listed = await either.do("list_attempts", third.id)
    assert listed == await either.do("list_attempts", third.idempotency_key)
    assert [(each.attempt, each.died, each.data) for each in listed] == [(1, False, {"error": "no"}), (2, True, None)]
    assert [each.fencing_token for each in listed] == [first.fencing_token, second.fencing_token]
    assert str(first.owner_token) not in repr(listed)
    assert await either.do("list_attempts", uuid4()) == await either.do("list_attempts", "v2:none") == []


@pytest.mark.parametrize("ended", ["failed", "died"])
async def test_after_a_nestjs_attempt(either: Either, database_url: str, ended: str) -> None:
    """C4.3, C7.6: it is remembered without its knowing, and the checkpoint of the attempt before it is still there."""
    first = await either.acquire()
    await either.do("checkpoint", first, {"done": 7})
    await either.do("fail", first, {"error": "first"})
    with NestNode(database_url) as nest:
        assert nest.acquire(OPTIONS.lock_key, OPTIONS.code)
        if ended == "failed":
            nest.fail('{"error": "nest"}')
        else:
            execute(database_url, f'UPDATE {TABLE} SET "modifiedAt" = "modifiedAt" - interval \'1 day\'')
        lease = await either.acquire()
        assert not nest.heartbeat()
    previous = known(lease.previous)
    assert (lease.attempt, previous.attempt, previous.died) == (3, 2, ended == "died")
    assert (previous.holder, previous.lease_ms) == (None, None)
    assert previous.data == (None if ended == "died" else {"error": "nest"})
    assert previous.checkpoint == {"done": 7}
    attempts = await either.do("list_attempts", lease.id)
    assert [(each.attempt, each.holder, each.data) for each in attempts] == [
        (1, "node-a", {"error": "first"}),
        (2, None, previous.data),
    ]


async def test_a_run_of_before_the_history_says_what_is_known(either: Either, database_url: str) -> None:
    """C7.6: where nobody remembered the attempt before, it counts as one that may have done anything."""
    await either.do("fail", await either.acquire())
    execute(database_url, f'ALTER TABLE {TABLE} DISABLE TRIGGER "job-scheduler_attempts_trigger"')
    previous = known((await either.acquire()).previous)
    assert (previous.attempt, previous.died, previous.ended_at) == (1, True, None)


async def test_a_callback_finds_it_in_its_lease(database_url: str) -> None:
    """C7.6: `lease.previous` and `lease.checkpoint`, under both services, for a callback that fails half-way."""
    seen: list[Any] = []

    def blocking(lease: JobExecutionLease) -> None:
        seen.append(lease.previous and lease.previous.checkpoint)
        assert lease.checkpoint({"done": len(seen)}) is None
        raise ValueError("half-way")

    async def on_loop(lease: AsyncJobExecutionLease) -> None:
        seen.append(lease.previous and lease.previous.checkpoint)
        await lease.checkpoint({"done": len(seen)})
        raise ValueError("half-way")

    async with AsyncJobSchedulerService(database_url) as async_service:
        with JobSchedulerService(database_url) as service:
            for _ in range(2):
                with suppress(ValueError):
                    await asyncio.to_thread(service.run_exclusive, OPTIONS, blocking)
                with suppress(ValueError):
                    await async_service.run_exclusive(OPTIONS, on_loop)
    assert seen == [None, {"done": 1}, {"done": 2}, {"done": 3}]


# Guarded by the owner


async def test_a_former_holder_is_refused(either: Either, rival: JobSchedulerService, database_url: str) -> None:
    """C7.6: it raises, the lease is known to be lost, and what the new holder saved stays."""
    lease = await either.acquire()
    dead(database_url, lease)
    newer = won(rival)
    rival.checkpoint(newer, {"by": "rival"})
    with pytest.raises(LostJobLeaseError) as caught:
        await either.do("checkpoint", lease, {"by": "former"})
    assert caught.value.reason is LostReason.TAKEN_OVER
    assert lease.hold is not None
    assert lease.hold.lost_reason is LostReason.TAKEN_OVER
    assert saved(database_url) == [(2, {"by": "rival"})]


async def test_a_former_holder_cannot_commit_by_oversight(
    either: Either, rival: JobSchedulerService, database_url: str
) -> None:
    """C7.6: in its transaction it raises too, so that its rows stay out."""
    lease = await either.acquire()
    dead(database_url, lease)
    won(rival)
    with psycopg.connect(database_url) as connection:
        with pytest.raises(LostJobLeaseError):
            await either.do("checkpoint", lease, {"by": "former"}, connection=connection)
        connection.commit()
    assert saved(database_url) == []


async def test_once_the_run_has_ended_it_is_refused(either: Either, database_url: str) -> None:
    """C7.6: settled by us, released by somebody else, or deleted: nobody is there to go on from it."""
    lease = await either.acquire()
    await either.do("complete", lease)
    with pytest.raises(LostJobLeaseError):
        await either.do("checkpoint", lease, {"late": True})
    other = await either.acquire(JobAcquireOptions(code="import", run_key="gone"))
    execute(database_url, f"DELETE FROM {TABLE} WHERE \"id\" = '{other.id}'")
    with pytest.raises(LostJobLeaseError) as caught:
        await either.do("checkpoint", other, {"late": True})
    assert caught.value.reason is LostReason.ROW_GONE
    assert saved(database_url) == []


async def test_a_lease_made_by_hand_may_save(either: Either, database_url: str) -> None:
    """C7.6: an id and an owner token that were kept elsewhere are enough; another token is not."""
    lease = await either.acquire()
    await either.do("checkpoint", JobLease(lease.id, lease.owner_token), {"done": 1})
    with pytest.raises(LostJobLeaseError):
        await either.do("checkpoint", JobLease(lease.id, uuid4()), {"done": 2})
    assert saved(database_url) == [(1, {"done": 1})]


@pytest.mark.parametrize("with_connection", [False, True])
async def test_bad_data_is_refused_before_any_sql(either: Either, database_url: str, with_connection: bool) -> None:
    """C6.2, C7.6: as an outcome's data; `None` is no checkpoint."""
    lease = await either.acquire()
    with psycopg.connect(database_url) as connection:
        given = {"connection": connection} if with_connection else {}
        for data in (None, [1], {"n": float("nan")}, {"t": "\0"}, {"t": "\ud800"}, {1: 1}, {"t": "x" * 2**20}):
            with pytest.raises(InvalidJobDataError):
                await either.do("checkpoint", lease, data, **given)
        assert connection.info.transaction_status.name == "IDLE"
    assert saved(database_url) == []
    await either.do("checkpoint", lease, {})
    assert saved(database_url) == [(1, {})]


async def test_what_is_no_lease_or_no_transaction_is_refused(either: Either, database_url: str) -> None:
    """C7.6: clear errors, nothing saved."""
    lease = await either.acquire()
    with pytest.raises(TypeError, match="lease must be a JobLease"):
        await either.do("checkpoint", None, {})
    with pytest.raises(TypeError, match="connection must be"):
        await either.do("checkpoint", lease, {}, connection=database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:
        with pytest.raises(JobServiceStateError, match="no transaction open"):
            await either.do("checkpoint", lease, {}, connection=connection)
    async with await psycopg.AsyncConnection.connect(database_url) as on_loop:
        if isinstance(either.service, JobSchedulerService):
            with pytest.raises(TypeError, match="needs a blocking connection"):
                either.service.checkpoint(lease, {}, connection=on_loop)
    assert saved(database_url) == []


async def test_two_at_once_leave_one_of_them(either: Either, database_url: str) -> None:
    """C7.6: whichever came last; none is refused."""
    lease = await either.acquire()
    await asyncio.gather(*(either.do("checkpoint", lease, {"by": n}) for n in range(8)))
    ((attempt, data),) = saved(database_url)
    assert attempt == 1
    assert data["by"] in range(8)


# In the caller's transaction


def test_renewals_go_on_while_a_transaction_with_a_checkpoint_is_open(
    database_url: str, rival: JobSchedulerService
) -> None:
    """C7.3, C7.6: for longer than the lease; nobody can take the run over meanwhile, and it is completed after all."""
    options = JobAcquireOptions(code="import", run_key="long", lease_ms=1_000, heartbeat_ms=100)
    lost: list[Any] = []

    def callback(lease: JobExecutionLease) -> None:
        with psycopg.connect(database_url) as connection:
            lease.checkpoint({"done": 1}, connection=connection)
            before = row_of(database_url, lease.id)["modifiedAt"]
            until_s = time.monotonic() + 1.6
            while time.monotonic() < until_s:
                lost.append(rival.acquire(options).acquired)
                time.sleep(0.1)
            assert row_of(database_url, lease.id)["modifiedAt"] - before > timedelta(seconds=1)
            assert saved(database_url) == []
        assert lease.lost is None

    with JobSchedulerService(database_url) as service:
        assert service.run_exclusive(options, callback).acquired
    assert not any(lost)
    assert saved(database_url) == [(1, {"done": 1})]


def test_nobody_takes_the_run_over_while_the_transaction_is_open(
    service: JobSchedulerService, rival: JobSchedulerService, database_url: str
) -> None:
    """C7.3, C7.6: expired or failed; the try is a loss, at once. Afterwards the next attempt finds the checkpoint."""
    lease = won(service)
    with psycopg.connect(database_url) as connection:
        service.checkpoint(lease, {"done": 5}, connection=connection)
        dead(database_url, lease)
        began_s = time.monotonic()
        loss = rival.acquire(OPTIONS)
        assert not loss.acquired
        assert loss.reason is NotAcquiredReason.RUNNING
        assert service.fail(lease, {"error": "meanwhile"})
        assert not rival.acquire(OPTIONS).acquired
        assert time.monotonic() - began_s < 2
        connection.commit()
    assert known(won(rival).previous).checkpoint == {"done": 5}


def test_a_rollback_drops_the_checkpoint(service: JobSchedulerService, database_url: str) -> None:
    """C7.6: to a savepoint, too; the one before stays, and the run is still ours."""
    lease = won(service)
    service.checkpoint(lease, {"done": 1})
    with psycopg.connect(database_url) as connection:
        service.checkpoint(lease, {"done": 2}, connection=connection)
        connection.rollback()
        assert saved(database_url) == [(1, {"done": 1})]
        connection.execute("SAVEPOINT here")
        service.checkpoint(lease, {"done": 3}, connection=connection)
        connection.execute("ROLLBACK TO here")
        connection.commit()
    assert saved(database_url) == [(1, {"done": 1})]
    assert service.heartbeat(lease)


def test_with_the_outcome_in_one_transaction(service: JobSchedulerService, database_url: str) -> None:
    """C7.2, C7.6: saved, then completed; not the other way round, which does no harm."""
    lease = won(service)
    with psycopg.connect(database_url) as connection:
        service.checkpoint(lease, {"done": 2, "of": 2}, connection=connection)
        service.complete(lease, connection=connection)
        with pytest.raises(LostJobLeaseError):
            service.checkpoint(lease, {"done": 3}, connection=connection)
        assert lease.hold is not None
        assert lease.hold.lost_reason is None
        connection.commit()
    assert row_of(database_url, lease.id)["status"] == "SUCCESS"
    assert saved(database_url) == [(1, {"done": 2, "of": 2})]


def test_a_checkpoint_that_came_while_a_takeover_was_under_way_is_seen(
    service: JobSchedulerService, database_url: str
) -> None:
    """C7.6: the statement that takes the run began before the checkpoint was committed, and locked the row after.

    A policy makes that statement, of a role of its own, wait between the two.
    """
    role = f"waits_{uuid4().hex[:12]}"
    execute(
        database_url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA public TO {role}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE}, {ATTEMPTS}, {CHECKPOINTS} TO {role}; "
        f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY; "
        f"CREATE POLICY waits ON {TABLE} TO {role} USING ((SELECT count(pg_advisory_xact_lock_shared(7))) = 1)",
    )
    lease = won(service)
    service.checkpoint(lease, {"done": 1})
    dead(database_url, lease)
    taken: list[JobAcquired] = []
    with JobSchedulerService(make_conninfo(database_url, user=role, password="secret")) as late:
        with psycopg.connect(database_url) as gate:
            gate.execute("SELECT pg_advisory_xact_lock(7)")
            thread = threading.Thread(target=lambda: taken.append(won(late)))
            thread.start()
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            eventually(lambda: execute(database_url, waiting))
            service.checkpoint(lease, {"done": 2})
            gate.commit()
        thread.join()
    execute(database_url, f"DROP OWNED BY {role}; DROP ROLE {role}")
    previous = known(taken[0].previous)
    assert (previous.died, previous.checkpoint) == (True, {"done": 2})


# Weather


@pytest.fixture
def proxy(database_url: str) -> Iterator[FaultProxy]:
    with FaultProxy.in_front_of(database_url) as running:
        yield running


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
async def test_a_win_whose_answer_was_lost_knows_the_same(
    proxy: FaultProxy, database_url: str, rival: JobSchedulerService, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4.6, C7.6: the statement is sent again, and finds what the first try had found, in the history."""
    monkeypatch.setattr(operations, "CALL_LIMIT_S", 1.0)
    first = won(rival)
    rival.checkpoint(first, {"done": 3})
    rival.fail(first, {"error": "no"})
    with JobSchedulerService(proxy.url(database_url)) as far:
        far.list_runs()
        getattr(proxy, cut)(b"WITH seen AS")
        lease = await asyncio.to_thread(won, far)
        assert proxy.matched == 1
    previous = known(lease.previous)
    assert (lease.attempt, previous.attempt, previous.status) == (2, 1, JobSchedulerStatus.FAIL)
    assert (previous.data, previous.checkpoint) == ({"error": "no"}, {"done": 3})
    assert previous.holder == "node-b"


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
async def test_it_is_tried_again_when_the_connection_is_cut(
    proxy: FaultProxy, database_url: str, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7.6: before or after its commit; twice is the same as once. Both services."""
    monkeypatch.setattr(operations, "CALL_LIMIT_S", 2.0)
    async with AsyncJobSchedulerService(proxy.url(database_url)) as async_service:
        with JobSchedulerService(proxy.url(database_url)) as service:
            for n, each in enumerate([Either(service), Either(async_service)]):
                lease = await each.acquire(JobAcquireOptions(code="import", run_key=str(n)))
                getattr(proxy, cut)(b"WITH held AS")
                await each.do("checkpoint", lease, {"n": n})
                assert proxy.matched == n + 1
    assert sorted(data["n"] for _, data in saved(database_url)) == [0, 1]


async def test_a_database_that_cannot_be_reached(
    proxy: FaultProxy, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7.6: is said as such, after some tries, and the lease is not lost by it."""
    monkeypatch.setattr(operations, "CALL_LIMIT_S", 1.0)
    with JobSchedulerService(proxy.url(database_url)) as service:
        lease = await asyncio.to_thread(won, service)
        proxy.refuse_new(True)
        proxy.reset_all()
        with pytest.raises(JobDatabaseError) as caught:
            await asyncio.to_thread(service.checkpoint, lease, {"done": 1})
        assert caught.value.problem is DatabaseProblem.UNREACHABLE
        assert lease.hold is not None
        assert lease.hold.look() is None
        proxy.refuse_new(False)
        await asyncio.to_thread(service.checkpoint, lease, {"done": 1})
    assert saved(database_url) == [(1, {"done": 1})]


async def test_a_cancelled_save_ends_before_it_raises(async_service: AsyncJobSchedulerService) -> None:
    """C6.6, C7.6: no connection is left busy, and what was sent is saved."""
    lease = await Either(async_service).acquire()
    task = asyncio.create_task(async_service.checkpoint(lease, {"done": 1}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await async_service.checkpoint(lease, {"done": 2})
    assert await async_service.heartbeat(lease)


@pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (Debian: pgbouncer)")
def test_it_works_through_a_transaction_pooler(database_url: str) -> None:
    """C4.8, C7.6: saved by itself and in a transaction of a pooled connection, and found by the next attempt."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, pgbouncer(database_url, Path(folder)) as url:
        with JobSchedulerService(url) as service:
            for n in range(1, 8):
                lease = won(service)
                assert (lease.previous and lease.previous.checkpoint) == ({"done": n - 1} if n > 1 else None)
                if n % 2:
                    service.checkpoint(lease, {"done": n})
                else:
                    with psycopg.connect(url, prepare_threshold=None) as connection:
                        service.checkpoint(lease, {"done": n}, connection=connection)
                service.fail(lease)


# Roles


@pytest.fixture
def role(database_url: str) -> Iterator[str]:
    """A role with the rights of C9.4 on the table of runs alone."""
    name = f"app_{uuid4().hex[:12]}"
    execute(database_url, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'; REVOKE ALL ON SCHEMA public FROM PUBLIC")
    execute(database_url, f"GRANT USAGE ON SCHEMA public TO {name}")
    execute(database_url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE} TO {name}")
    yield name
    execute(database_url, f"DROP OWNED BY {name}")
    execute(database_url, f"DROP ROLE {name}")


@pytest.mark.parametrize(
    ("table", "work"),
    [
        (CHECKPOINTS, lambda service, lease: service.checkpoint(lease, {"done": 1})),
        (CHECKPOINTS, lambda service, _: service.list_runs()),
        (CHECKPOINTS, lambda service, lease: service.find_run(lease.id)),
        (ATTEMPTS, lambda service, lease: service.list_attempts(lease.id)),
    ],
    ids=["checkpoint", "list_runs", "find_run", "list_attempts"],
)
def test_a_missing_grant_is_one_error_that_mends_it(
    database_url: str, role: str, table: str, work: Callable[[JobSchedulerService, JobLease], object]
) -> None:
    """C9.4: the statement that is named, run as the owner, is enough."""
    with JobSchedulerService(make_conninfo(database_url, user=role, password="secret")) as service:
        lease = won(service)
        with pytest.raises(JobDatabaseError) as caught:
            work(service, lease)
        assert caught.value.problem is DatabaseProblem.GRANT_MISSING
        (grant,) = named_grants(caught.value)
        assert grant == f'GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO "{role}";'
        execute(database_url, grant)
        work(service, lease)


def test_taking_over_needs_no_right_on_the_history(database_url: str, role: str, rival: JobSchedulerService) -> None:
    """C9.4: a role that was there before the history takes runs over, and finds how they stood."""
    first = won(rival)
    rival.checkpoint(first, {"done": 1})
    rival.fail(first, {"error": "no"})
    with JobSchedulerService(make_conninfo(database_url, user=role, password="secret")) as service:
        previous = known(won(service).previous)
    assert (previous.data, previous.checkpoint) == ({"error": "no"}, {"done": 1})


def test_only_the_owner_is_told_what_was_before(database_url: str, role: str, rival: JobSchedulerService) -> None:
    """C11: the function that reads the history past all rights asks for the owner token."""
    rival.fail(won(rival), {"error": "secret"})
    lease = won(rival)
    query = 'SELECT "job-scheduler_previous"(%s::regclass, %s, %s)'
    url = make_conninfo(database_url, user=role, password="secret")
    assert execute(url, query, TABLE, lease.id, uuid4()) == [(None,)]
    assert "secret" in str(execute(url, query, TABLE, lease.id, lease.owner_token))


def test_a_revoked_function_is_named_with_its_mend(database_url: str, role: str) -> None:
    """C9.4: where the rights that everybody has on functions were taken away."""
    execute(database_url, 'REVOKE EXECUTE ON FUNCTION "job-scheduler_previous"(oid, uuid, uuid) FROM PUBLIC')
    with JobSchedulerService(make_conninfo(database_url, user=role, password="secret")) as service:
        with pytest.raises(JobDatabaseError) as caught:
            service.acquire(OPTIONS)
        (grant,) = named_grants(caught.value)
        assert [fault for fault in service.check_schema() if grant in fault]
        execute(database_url, grant)
        won(service)


def test_ids_are_uuids_and_nothing_of_the_owner_is_kept(database_url: str, service: JobSchedulerService) -> None:
    """C11: neither table holds an owner token."""
    first = won(service)
    service.checkpoint(first, {"done": 1})
    service.fail(first)
    second = won(service)
    text = str(execute(database_url, f"SELECT a::text, c::text FROM {ATTEMPTS} a, {CHECKPOINTS} c"))
    assert str(UUID(str(first.id))) in text
    assert str(first.owner_token) not in text
    assert str(second.owner_token) not in text
