"""Who decides that a lease is over, on which clock, and by whose length (C3.4, C3.5, C3.6)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tenure import (
    JobAcquired,
    JobAcquireOptions,
    JobExecutionLease,
    JobLease,
    JobNotAcquired,
    JobSchedulerService,
    JobSchedulerStatus,
    LostJobLeaseError,
    LostReason,
    NotAcquiredReason,
)
from tenure.clock import boot_s
from tenure.operations import Call
from tenure.statements import Statements, Table
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, age, execute, row_of, session_url, set_default
from tests.support.waiting import eventually

LONGEST_MS = 2**53 - 1
OLD_S = 0.2
LATENCY_S = 0.1
STATEMENTS = Statements(Table())
LAST_INSTANT = datetime.max.replace(tzinfo=UTC)

SESSIONS = [
    {"timezone": "UTC", "datestyle": "ISO,MDY"},
    {"timezone": "Asia/Ho_Chi_Minh", "datestyle": "SQL,DMY", "intervalstyle": "sql_standard"},
    {"timezone": "America/New_York", "datestyle": "German", "extra_float_digits": "-10"},
    {"timezone": "Australia/Lord_Howe", "datestyle": "Postgres,MDY", "intervalstyle": "iso_8601"},
]


def options(lease_ms: int, run_key: str = "tick") -> JobAcquireOptions:
    return JobAcquireOptions(code="time", run_key=run_key, lease_ms=lease_ms)


def won(service: JobSchedulerService, lease_ms: int = 60_000, run_key: str = "tick") -> JobAcquired:
    result = service.acquire(options(lease_ms, run_key))
    assert isinstance(result, JobAcquired)
    return result


def lost(service: JobSchedulerService, lease_ms: int = 60_000, run_key: str = "tick") -> JobNotAcquired:
    result = service.acquire(options(lease_ms, run_key))
    assert isinstance(result, JobNotAcquired)
    return result


def foreign_run(url: str, run_key: str = "tick") -> UUID:
    """Insert a run as a NestJS node does, without a lease length."""
    rows = execute(
        url,
        f'INSERT INTO {TABLE} ("id", "lockKey", "code", "type", "status", "ownerToken") '
        "VALUES (DEFAULT, %s, 'time', 'SCHEDULE', 'RUNNING', gen_random_uuid()) RETURNING \"id\"",
        options(60_000, run_key).lock_key,
    )
    run_id: UUID = rows[0][0]
    return run_id


def instants(url: str, run_id: UUID) -> dict[str, datetime | None]:
    """Read a run's instants in a way that no session setting touches."""
    columns = ("createdAt", "startedAt", "modifiedAt", "finishedAt")
    epochs = ", ".join(f'(EXTRACT(EPOCH FROM "{column}") * 1000000)::bigint' for column in columns)
    (row,) = execute(url, f'SELECT {epochs} FROM {TABLE} WHERE "id" = %s', run_id)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return {
        column: None if value is None else epoch + timedelta(microseconds=value)
        for column, value in zip(columns, row, strict=True)
    }


@pytest.mark.parametrize("rivals_ms", [3, 1_000, 59_999, 900_000, LONGEST_MS])
def test_a_live_lease_is_judged_by_its_holders_length(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService, rivals_ms: int
) -> None:
    """C3.4: a deploy that shortens the lease cannot steal a live run (a NestJS rival with 1 s steals a 60 s lease)."""
    lease = won(service, 60_000)
    age(database_url, lease.id, timedelta(seconds=50))
    loss = lost(rival, rivals_ms)
    assert loss.reason is NotAcquiredReason.RUNNING
    modified = instants(database_url, lease.id)["modifiedAt"]
    assert modified is not None
    assert loss.expires_at == modified + timedelta(seconds=60)
    assert service.heartbeat(lease)


@pytest.mark.parametrize("rivals_ms", [3, 1_000, 900_000, LONGEST_MS])
def test_a_dead_lease_is_judged_by_its_holders_length(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService, rivals_ms: int
) -> None:
    """C3.4: a deploy that lengthens the lease does not keep a dead run of a node with the shorter one."""
    lease = won(service, 1_000)
    age(database_url, lease.id, timedelta(milliseconds=1_001))
    taken = won(rival, rivals_ms)
    assert (taken.id, taken.attempt) == (lease.id, 2)
    assert row_of(database_url, lease.id)["leaseMs"] == rivals_ms
    assert not service.heartbeat(lease)


def test_a_lease_of_unknown_length_is_judged_by_the_callers_own(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService
) -> None:
    """C3.4: the row of a NestJS node has none."""
    run_id = foreign_run(database_url)
    age(database_url, run_id, timedelta(seconds=30))
    loss = lost(service, 60_000)
    modified = instants(database_url, run_id)["modifiedAt"]
    assert modified is not None
    assert loss.expires_at == modified + timedelta(seconds=60)
    assert lost(service, LONGEST_MS).expires_at == LAST_INSTANT
    assert won(rival, 29_000).id == run_id


def test_a_reclaim_replaces_the_length_of_the_holder_before(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService
) -> None:
    """C3.4: the length in the row is that of the present lease, never of one before."""
    lease = won(service, 900_000)
    service.fail(lease)
    won(rival, 1_000)
    age(database_url, lease.id, timedelta(seconds=2))
    assert won(service, 900_000).attempt == 3


@pytest.fixture
def nodes(database_url: str) -> Iterator[list[JobSchedulerService]]:
    """Nodes whose sessions disagree on time zone and on how dates look."""
    made = [JobSchedulerService(session_url(database_url, **session)) for session in SESSIONS]
    yield made
    for node in made:
        node.close()


def test_nodes_in_four_time_zones_steal_no_live_lease_and_keep_no_dead_one(
    database_url: str, nodes: list[JobSchedulerService]
) -> None:
    """C3.5: whoever of them holds the run, all others agree on it (ShedLock#91)."""
    for n, holder in enumerate(nodes):
        run_key = f"tick {n}"
        others = [node for node in nodes if node is not holder]
        lease = won(holder, 60_000, run_key)
        age(database_url, lease.id, timedelta(seconds=55))
        for other in others:
            assert lost(other, 60_000, run_key).reason is NotAcquiredReason.RUNNING
        assert holder.heartbeat(lease)
        for attempt, other in enumerate(others, start=2):
            age(database_url, lease.id, timedelta(milliseconds=60_001))
            assert won(other, 60_000, run_key).attempt == attempt
        assert not holder.heartbeat(lease)


def test_instants_are_aware_utc_and_right_in_every_session(
    database_url: str, service: JobSchedulerService, nodes: list[JobSchedulerService]
) -> None:
    """C3.5, C4.4: what a loss and a listing say does not depend on the session that asked."""
    running, done = won(service, 60_000, "running"), won(service, 60_000, "done")
    service.complete(done)
    of_running, of_done = instants(database_url, running.id), instants(database_url, done.id)
    assert of_running["modifiedAt"] is not None
    for node in nodes:
        loss = lost(node, 60_000, "running")
        assert loss.since == of_running["startedAt"]
        assert loss.expires_at == of_running["modifiedAt"] + timedelta(seconds=60)
        assert lost(node, 60_000, "done").finished_at == of_done["finishedAt"]
        runs = {run.id: run for run in node.list_runs()}
        for run_id, expected in ((running.id, of_running), (done.id, of_done)):
            run = runs[run_id]
            told = (run.created_at, run.started_at, run.modified_at, run.finished_at)
            assert told == tuple(expected.values())
            assert all(instant.utcoffset() == timedelta(0) for instant in told if instant)
        left = runs[running.id].lease_left
        assert left is not None
        assert timedelta(0) < left <= timedelta(seconds=60)
        assert runs[done.id].lease_left is None


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe"])
def test_the_zone_of_the_process_and_of_the_database_change_nothing(
    database_url: str, service: JobSchedulerService, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """C3.5: `TZ`, `PGTZ`, and defaults that were set for the database or the role."""
    lease = won(service, 60_000)
    set_default(database_url, "timezone", zone)
    monkeypatch.setenv("PGTZ", "Asia/Ho_Chi_Minh")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for url in (database_url, session_url(database_url, timezone=zone)):
            with JobSchedulerService(url) as other:
                assert lost(other).since == instants(database_url, lease.id)["startedAt"]
        age(database_url, lease.id, timedelta(seconds=61))
        with JobSchedulerService(database_url) as other:
            assert won(other).attempt == 2
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_nodes_own_clock_decides_nothing(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3.5: a node may be years off, either way (ShedLock#132, hangfire#1929)."""
    lease = won(service, 60_000)
    for off_s in (-3e8, 3e8):
        monkeypatch.setattr(time, "time", lambda off_s=off_s, now=time.time: now() + off_s)
        assert lost(rival).expires_at == lost(service).expires_at
        assert service.heartbeat(lease)
    age(database_url, lease.id, timedelta(seconds=61))
    taken = won(rival)
    assert rival.complete(taken)
    started = instants(database_url, lease.id)["startedAt"]
    now = execute(database_url, "SELECT clock_timestamp()")[0][0]
    assert started is not None
    assert now - started < timedelta(minutes=5)


def test_the_longest_legal_lease_overflows_nowhere(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService
) -> None:
    """C3.1, C3.5: 2**53 - 1 ms, as an age, whoever asks (NestJS: above 2.1e14 ms an SQL error)."""
    lease = won(service, LONGEST_MS)
    assert JobExecutionLease.of(lease).lost is None
    for instant in ("0044-03-15 BC", "9999-12-30"):
        execute(database_url, f"UPDATE {TABLE} SET \"modifiedAt\" = '{instant}'")
        for rivals_ms in (3, LONGEST_MS):
            loss = lost(rival, rivals_ms)
            assert loss.reason is NotAcquiredReason.RUNNING
            assert loss.expires_at == LAST_INSTANT
    assert service.heartbeat(lease)
    (run,) = rival.list_runs()
    assert run.lease_ms == LONGEST_MS
    assert run.lease_left is not None
    assert run.lease_left > timedelta(days=104_000_000)
    assert service.complete(lease)


def test_the_longest_legal_lease_is_kept_and_settled(database_url: str, service: JobSchedulerService) -> None:
    """C3.1, C3.2: the keeper waits for its beat, not for ever and not at full speed."""
    result = service.run_exclusive(
        JobAcquireOptions(code="time", run_key="tick", lease_ms=LONGEST_MS, heartbeat_ms=LONGEST_MS // 2 - 1),
        lambda lease: (lease.lost, lease.check()),
    )
    assert result.result == (None, None)
    assert row_of(database_url, options(60_000).lock_key)["status"] == "SUCCESS"


def test_the_shortest_legal_lease_expires(service: JobSchedulerService, rival: JobSchedulerService) -> None:
    """C3.1: 3 ms is short, not endless."""
    won(service, 3)
    assert isinstance(eventually(lambda: rival_result(rival)), JobAcquired)


def rival_result(rival: JobSchedulerService) -> JobAcquired | None:
    result = rival.acquire(options(60_000))
    return result if isinstance(result, JobAcquired) else None


@pytest.mark.parametrize("ahead", ["1 hour", "40 years", "7900 years"])
def test_a_row_from_the_future_is_not_stolen_and_its_holder_brings_it_back(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService, ahead: str
) -> None:
    """C3.5: after the server's clock was set back, a live lease stays live, and is counted from its next renewal."""
    lease = won(service, 60_000)
    execute(database_url, f'UPDATE {TABLE} SET "modifiedAt" = "modifiedAt" + interval \'{ahead}\'')
    loss = lost(rival)
    assert loss.reason is NotAcquiredReason.RUNNING
    assert loss.expires_at is not None
    assert loss.expires_at > datetime.now(UTC) + timedelta(minutes=30)
    (run,) = rival.list_runs()
    assert run.lease_left is not None
    assert run.lease_left > timedelta(minutes=30)
    assert service.heartbeat(lease)
    age(database_url, lease.id, timedelta(seconds=61))
    assert won(rival).attempt == 2


@pytest.mark.parametrize("ahead", ["1 hour", "7900 years"])
def test_a_settled_row_from_the_future_is_what_it_says(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService, ahead: str
) -> None:
    """C3.5, C4.1: FAIL is free and SUCCESS is locked at any time."""
    service.fail(won(service, run_key="failed"))
    service.complete(won(service, run_key="done"))
    execute(
        database_url,
        f'UPDATE {TABLE} SET "modifiedAt" = "modifiedAt" + interval \'{ahead}\', '
        f'"finishedAt" = "finishedAt" + interval \'{ahead}\'',
    )
    assert won(rival, run_key="failed").attempt == 2
    assert lost(rival, run_key="done").reason is NotAcquiredReason.SUCCEEDED


@pytest.mark.parametrize("instant", ["infinity", "294276-12-31"])
def test_a_row_beyond_the_calendar_breaks_no_listing(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService, instant: str
) -> None:
    """C3.5, C11: one odd row, written by hand, is no reason to show none, and a loss to it is a loss."""
    won(service)
    execute(database_url, f"UPDATE {TABLE} SET \"modifiedAt\" = '{instant}'")
    assert lost(rival).reason is NotAcquiredReason.RUNNING
    assert len(rival.list_runs()) == 1


class OldTransaction:
    """A transaction whose `now()` lies back."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._cursor = psycopg.RawCursor(connection)
        self._cursor.execute("SELECT now()")
        eventually(lambda: self.seconds_old() > OLD_S)

    def seconds_old(self) -> float:
        return float(self._ask("SELECT EXTRACT(EPOCH FROM clock_timestamp() - now())"))

    def send(self, call: Call) -> list[tuple[Any, ...]]:
        return self._cursor.execute(call.query.text, call.parameters).fetchall()

    def newest_of(self, column: str) -> float:
        """Give how far a column of the only row lies ahead of this transaction's start."""
        return float(self._ask(f'SELECT EXTRACT(EPOCH FROM "{column}" - now()) FROM {TABLE}'))

    def _ask(self, question: str) -> Any:
        return self._cursor.execute(question.encode()).fetchall()[0][0]


@pytest.fixture
def old(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that is not in autocommit."""
    with psycopg.connect(database_url) as connection:
        yield connection


def acquire_call(owner_token: UUID, lease_ms: int = 60_000) -> Call:
    wanted = options(lease_ms)
    return Call.of(
        STATEMENTS.acquire,
        lock_key=wanted.lock_key,
        code=wanted.code,
        name=None,
        type="SCHEDULE",
        owner_token=owner_token,
        lease_ms=lease_ms,
        owner="old",
        run_key=wanted.run_key,
        scheduled_at=None,
    )


def test_a_win_in_an_old_transaction_is_dated_when_it_was_won(old: psycopg.Connection[Any]) -> None:
    """C3.5: `clock_timestamp()`, never `now()` (ShedLock#3577, #3682: expired when committed)."""
    transaction = OldTransaction(old)
    assert transaction.send(acquire_call(uuid4()))[0][0] == "won"
    for column in ("createdAt", "modifiedAt", "startedAt"):
        assert transaction.newest_of(column) > OLD_S


def test_a_reclaim_in_an_old_transaction_is_dated_when_it_was_won(
    service: JobSchedulerService, old: psycopg.Connection[Any]
) -> None:
    """C3.5: as a fresh win."""
    service.fail(won(service))
    transaction = OldTransaction(old)
    assert transaction.send(acquire_call(uuid4()))[0][0] == "won"
    for column in ("modifiedAt", "startedAt"):
        assert transaction.newest_of(column) > OLD_S


def test_expiry_is_judged_now_and_not_when_the_transaction_began(
    database_url: str, service: JobSchedulerService, old: psycopg.Connection[Any]
) -> None:
    """C3.5: a lease that ended after an old transaction began has ended."""
    transaction = OldTransaction(old)
    lease = won(service, 60_000)
    age(database_url, lease.id, timedelta(seconds=60) - timedelta(seconds=OLD_S / 2))
    eventually(lambda: transaction.newest_of("modifiedAt") + 60 < transaction.seconds_old())
    assert transaction.send(acquire_call(uuid4()))[0][0] == "won"


@pytest.mark.parametrize("statement", ["heartbeat", "renew", "settle", "disown"])
def test_whatever_an_old_transaction_writes_is_dated_when_it_is_written(
    service: JobSchedulerService, old: psycopg.Connection[Any], statement: str
) -> None:
    """C3.5: renewals and settlements too."""
    lease = won(service)
    values: dict[str, Any] = {
        "id": lease.id,
        "owner_token": lease.owner_token,
        "ids": [lease.id],
        "owner_tokens": [lease.owner_token],
        "status": "FAIL",
        "data": None,
        "outcome": "failed",
        "retry_ms": 60_000,
    }
    query = getattr(STATEMENTS, statement)
    transaction = OldTransaction(old)
    transaction.send(Call(query, tuple(values[name] for name in query.parameters)))
    assert transaction.newest_of("modifiedAt") > OLD_S
    if statement in ("settle", "disown"):
        assert transaction.newest_of("finishedAt") > OLD_S
    if statement == "settle":
        assert transaction.newest_of("retryAt") > OLD_S + 60


def test_a_nestjs_insert_in_an_old_transaction_is_dated_when_it_is_written(
    database_url: str, old: psycopg.Connection[Any]
) -> None:
    """C3.5: the defaults of the columns are as good as the statements."""
    transaction = OldTransaction(old)
    old.execute(
        f'INSERT INTO {TABLE} ("lockKey", "code", "type", "status", "ownerToken", "createdAt", "modifiedAt") '
        "VALUES ('v2:x', 'time', 'SCHEDULE', 'RUNNING', gen_random_uuid(), DEFAULT, DEFAULT)".encode()
    )
    for column in ("createdAt", "modifiedAt", "startedAt"):
        assert transaction.newest_of(column) > OLD_S


@pytest.mark.parametrize(("lease_ms", "trusted_s"), [(4_000, 3.8), (10_000, 9.5), (60_000, 59.0), (900_000, 899.0)])
def test_a_holder_trusts_its_lease_from_the_moment_of_sending_less_a_margin(
    database_url: str, lease_ms: int, trusted_s: float
) -> None:
    """C3.6: 5 % or 1 s before the end, whichever is less, counted from the sending and not from the answer."""
    with (
        FaultProxy.in_front_of(database_url) as proxy,
        JobSchedulerService(proxy.url(database_url)) as service,
    ):
        service.find_run("warm")
        proxy.latency(LATENCY_S)
        before_s = boot_s()
        lease = won(service, lease_ms)
        assert_window(lease, before_s, trusted_s)
        before_s = boot_s()
        assert service.heartbeat(lease)
        assert_window(lease, before_s, trusted_s)


def assert_window(lease: JobAcquired, before_s: float, trusted_s: float) -> None:
    """Hold the local deadline against when the call began and when its answer came."""
    answered_s = boot_s()
    assert lease.hold is not None
    window = lease.hold.window
    assert before_s <= window.sent_boot_s <= answered_s - 2 * LATENCY_S
    assert window.deadline_boot_s == pytest.approx(window.sent_boot_s + trusted_s)


def test_a_renewal_that_was_refused_moves_no_deadline(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService
) -> None:
    """C3.6: only a successful one counts."""
    lease = won(service)
    assert lease.hold is not None
    before = lease.hold.window
    age(database_url, lease.id, timedelta(seconds=61))
    won(rival)
    assert not service.heartbeat(lease)
    assert lease.hold.window == before
    assert lease.hold.lost_reason is LostReason.TAKEN_OVER


def test_a_holder_gives_up_before_a_rival_can_win(service: JobSchedulerService, rival: JobSchedulerService) -> None:
    """C3.6: with renewal off, once a rival was let in, the holder knows of the end; no thread tells it."""
    knew: list[LostReason | None] = []

    def until_taken(lease: JobExecutionLease) -> None:
        def taken() -> bool:
            taken = rival.acquire(options(60_000)).acquired
            knew.append(lease.lost)
            return taken

        knew.append(lease.lost)
        eventually(taken)

    wanted = JobAcquireOptions(code="time", run_key="tick", lease_ms=400, heartbeat_ms=0)
    with pytest.raises(LostJobLeaseError):
        service.run_exclusive(wanted, until_taken)
    assert knew[0] is None
    (run,) = rival.list_runs(status=JobSchedulerStatus.RUNNING)
    assert run.attempt == 2
    assert knew[-1] is LostReason.EXPIRED


def test_a_lease_that_is_made_by_hand_has_no_deadline_of_its_own(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService
) -> None:
    """C3.6: the database alone decides for it."""
    lease = won(service)
    by_hand = JobLease(str(lease.id), str(lease.owner_token))
    age(database_url, lease.id, timedelta(days=1))
    assert rival.heartbeat(by_hand)
    assert by_hand.hold is None
