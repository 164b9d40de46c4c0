"""What a win, a loss and a renewal cost, and that no statement reads a whole table (C4.1, C4.2, C5.2, C5.4).

Costs are measured where they are paid: messages are counted by a proxy on the wire, WAL and transaction ids by the
server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from tenure import (
    AsyncJobSchedulerService,
    JobAcquired,
    JobAcquireOptions,
    JobLease,
    JobNotAcquired,
    JobSchedulerService,
    JobSchedulerStatus,
    LostJobLeaseError,
)
from tenure.embedded import EmbeddedPostgres
from tenure.operations import renewal
from tenure.statements import Query, Statements, Table
from tests.support.pgbouncer import psycopg_settings
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, execute, set_default
from tests.support.servers import create_database, drop_database
from tests.support.waiting import eventually, eventually_async

LEASES = 200
ROUNDS = 25
HEARTBEAT_MS = 150
WAL_LIMIT_BYTES = 200
HEAP_ONLY_SHARE = 0.99
QUIET_TRIES = 20
ISOLATIONS = ["read committed", "serializable"]
RENEWALS = b"WITH asked AS"
OPTIONS = JobAcquireOptions(code="costs", run_key="2026-07-20T03:00:00.000Z", name="What it costs")


class CountingProxy(FaultProxy):
    """Keep the kind and the text of each message of the clients."""

    def __init__(self, upstream_host: str, upstream_port: int) -> None:
        super().__init__(upstream_host, upstream_port)
        self.seen: list[tuple[bytes, bytes]] = []

    def trigger_for(self, kind: bytes, text: bytes) -> Any:
        self.seen.append((kind, text))
        return super().trigger_for(kind, text)

    def round_trips(self, work: Callable[[], object]) -> int:
        """Count what the client waits for: a Sync or a simple query."""
        before = len(self.seen)
        work()
        return sum(kind in (b"S", b"Q") for kind, _ in self.seen[before:])

    def bodies(self, words: bytes) -> list[bytes]:
        """Give the messages so far that execute a statement which holds these words, parameters included."""
        return [text for kind, text in list(self.seen) if kind in (b"B", b"Q") and words in text]


class Traces(NamedTuple):
    """Everything that a statement which writes would leave."""

    wal_position: str
    next_transaction: int
    sequence: tuple[int, bool]
    rows: list[tuple[Any, ...]]


def traces(connection: psycopg.Connection[Any]) -> Traces:
    """Look, without leaving a trace."""
    position, transaction = connection.execute(
        "SELECT pg_current_wal_insert_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    ).fetchall()[0]
    sequence = connection.execute(
        'SELECT last_value, is_called FROM "public"."job-scheduler_fencingToken_seq"'
    ).fetchall()[0]
    rows = connection.execute(f'SELECT ctid, xmin, xmax, cmin, cmax, * FROM {TABLE} ORDER BY "id"'.encode()).fetchall()
    return Traces(position, transaction, sequence, rows)


def won(service: JobSchedulerService, options: JobAcquireOptions = OPTIONS) -> JobAcquired:
    result = service.acquire(options)
    assert isinstance(result, JobAcquired)
    return result


@pytest.fixture
def proxy(database_url: str) -> Iterator[CountingProxy]:
    """A proxy that counts, in front of the database."""
    with CountingProxy.in_front_of(database_url) as made:
        yield made


def prepare_fresh(_: JobSchedulerService, __: str) -> None:
    """Leave the run to be inserted."""


def prepare_failed(rival: JobSchedulerService, _: str) -> None:
    rival.fail(won(rival))


def prepare_expired(rival: JobSchedulerService, url: str) -> None:
    won(rival)
    execute(url, f'UPDATE {TABLE} SET "modifiedAt" = "modifiedAt" - interval \'1 day\'')


def prepare_running(rival: JobSchedulerService, _: str) -> None:
    won(rival)


def prepare_succeeded(rival: JobSchedulerService, _: str) -> None:
    rival.complete(won(rival), {"loaded": 12})


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(
    ("prepare", "wins"),
    [
        (prepare_fresh, True),
        (prepare_failed, True),
        (prepare_expired, True),
        (prepare_running, False),
        (prepare_succeeded, False),
    ],
)
def test_an_acquire_is_one_round_trip_win_or_lose(
    database_url: str,
    proxy: CountingProxy,
    rival: JobSchedulerService,
    prepare: Callable[[JobSchedulerService, str], None],
    wins: bool,
    isolation: str,
) -> None:
    """C4.1, C4.5: one, whatever becomes of it, also where the default isolation needs a transaction around it."""
    set_default(database_url, "default_transaction_isolation", isolation)
    prepare(rival, database_url)
    with JobSchedulerService(proxy.url(database_url)) as service:
        service.find_run("warm")
        results: list[object] = []
        assert proxy.round_trips(lambda: results.append(service.acquire(OPTIONS))) == 1
    assert isinstance(results[0], JobAcquired if wins else JobNotAcquired)


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_an_async_acquire_is_one_round_trip_win_or_lose(
    database_url: str, proxy: CountingProxy, isolation: str
) -> None:
    """C4.1: as the blocking one."""
    set_default(database_url, "default_transaction_isolation", isolation)
    async with AsyncJobSchedulerService(proxy.url(database_url)) as service:
        await service.find_run("warm")
        before = len(proxy.seen)
        assert isinstance(await service.acquire(OPTIONS), JobAcquired)
        between = len(proxy.seen)
        assert isinstance(await service.acquire(OPTIONS), JobNotAcquired)
        trips = [kind in (b"S", b"Q") for kind, _ in proxy.seen]
    assert sum(trips[before:between]) == 1
    assert sum(trips[between:]) == 1


def test_a_checkpoint_is_one_round_trip(database_url: str, proxy: CountingProxy) -> None:
    """C7.6: saved or refused; and a win that follows another attempt is still one (C4.1)."""
    with JobSchedulerService(proxy.url(database_url)) as service:
        lease = won(service)
        assert proxy.round_trips(lambda: service.checkpoint(lease, {"done": 1})) == 1
        lost = JobLease(lease.id, uuid4())
        with pytest.raises(LostJobLeaseError):
            service.checkpoint(lost, {"done": 2})
        before = len(proxy.seen)
        with pytest.raises(LostJobLeaseError):
            service.checkpoint(lost, {"done": 2})
        assert sum(kind in (b"S", b"Q") for kind, _ in proxy.seen[before:]) == 1
        service.fail(lease)
        wins: list[JobAcquired] = []
        assert proxy.round_trips(lambda: wins.append(won(service))) == 1
        assert wins[0].previous is not None
        assert wins[0].previous.checkpoint == {"done": 1}


def test_renewing_and_settling_by_hand_are_one_round_trip_each(database_url: str, proxy: CountingProxy) -> None:
    """C5.1, C6.1: guarded in one statement, whether it is `True` or `False`."""
    with JobSchedulerService(proxy.url(database_url)) as service:
        lease = won(service)
        lost = JobLease(lease.id, uuid4())
        for work in (service.heartbeat, service.complete, service.fail, service.release):
            assert proxy.round_trips(lambda work=work: work(lost)) == 1  # type: ignore[misc]
        assert proxy.round_trips(lambda: service.heartbeat(lease)) == 1
        assert proxy.round_trips(lambda: service.complete(lease, {"loaded": 12})) == 1


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("prepare", [prepare_running, prepare_succeeded])
def test_a_loss_leaves_no_trace_in_the_database(
    database_url: str,
    service: JobSchedulerService,
    rival: JobSchedulerService,
    prepare: Callable[[JobSchedulerService, str], None],
    isolation: str,
) -> None:
    """C4.2: to a run that is there, 0 B of WAL, no transaction id, no sequence value, no row lock.

    The server writes WAL of its own now and then, so the quietest of some tries counts; what a loss writes, it writes
    in each of them.
    """
    set_default(database_url, "default_transaction_isolation", isolation)
    prepare(rival, database_url)
    assert_no_trace(database_url, service)


def test_a_loss_to_a_row_that_somebody_has_locked_leaves_no_trace(
    database_url: str, service: JobSchedulerService, rival: JobSchedulerService
) -> None:
    """C4.1, C4.2: it does not wait and writes nothing, though the run is free."""
    rival.fail(won(rival))
    with psycopg.connect(database_url) as holder:
        holder.execute(f"SELECT FROM {TABLE} FOR NO KEY UPDATE")
        assert_no_trace(database_url, service)
        holder.rollback()
    assert won(service).attempt == 2


def assert_no_trace(url: str, service: JobSchedulerService) -> None:
    """Lose often, and compare what can be seen before and after."""
    service.acquire(OPTIONS)
    with psycopg.connect(url, autocommit=True, **psycopg_settings(url)) as observer:
        for _ in range(QUIET_TRIES):
            before = traces(observer)
            for _ in range(20):
                assert isinstance(service.acquire(OPTIONS), JobNotAcquired)
            after = traces(observer)
            assert after.rows == before.rows
            assert after.sequence == before.sequence
            if after == before:
                return
    assert after == before


async def test_200_live_leases_are_renewed_by_one_statement_a_round(database_url: str, proxy: CountingProxy) -> None:
    """C5.2: the keeper sends one statement for all, and each of them renews all."""
    ended = asyncio.Event()

    async def hold() -> None:
        await ended.wait()

    async with AsyncJobSchedulerService(proxy.url(database_url)) as service, asyncio.TaskGroup() as nodes:
        for n in range(LEASES):
            options = JobAcquireOptions(code="costs", run_key=f"key {n}", lease_ms=60_000, heartbeat_ms=HEARTBEAT_MS)
            nodes.create_task(service.run_exclusive(options, hold))
        try:
            await eventually_async(lambda: running(database_url) == LEASES, 20, every_s=0.1)
            # leases that began at different times have joined one round after a few
            begun = len(proxy.bodies(RENEWALS))
            await eventually_async(lambda: len(proxy.bodies(RENEWALS)) >= begun + 3)
            await asyncio.to_thread(assert_one_statement_renews_all, database_url, proxy)
        finally:
            ended.set()
    assert execute(database_url, f'SELECT DISTINCT "status"::text FROM {TABLE}') == [("SUCCESS",)]


def running(url: str) -> int:
    return int(execute(url, f"SELECT count(*) FROM {TABLE} WHERE \"status\" = 'RUNNING'")[0][0])


def assert_one_statement_renews_all(url: str, proxy: CountingProxy) -> None:
    """Watch rounds: each statement carries all leases, none comes before its time, one renewed all rows."""
    begun, started_s = len(proxy.bodies(RENEWALS)), time.monotonic()
    eventually(lambda: len(proxy.bodies(RENEWALS)) >= begun + ROUNDS, 30)
    bodies = proxy.bodies(RENEWALS)[begun:]
    assert len(bodies) <= (time.monotonic() - started_s) / (HEARTBEAT_MS / 1000) + 1
    assert min(len(body) for body in bodies) >= LEASES * 2 * len(uuid4().bytes)
    assert execute(url, f"SELECT count(*), count(DISTINCT xmin::text) FROM {TABLE}") == [(LEASES, 1)]


def test_renewals_are_heap_only_and_under_200_bytes_of_wal_each(
    database_url: str, service: JobSchedulerService, record_property: Callable[[str, object], None]
) -> None:
    """C5.2, C5.4: rounds of 200 leases by the keeper's own statement, on rows that were won in the ordinary way."""
    leases: list[JobLease] = [
        won(service, JobAcquireOptions(code="costs", run_key=f"2026-07-20T03:{n:04}")) for n in range(LEASES)
    ]
    call = renewal(Statements(Table()), leases)
    with psycopg.connect(database_url, autocommit=True, **psycopg_settings(database_url)) as connection:
        cursor = psycopg.RawCursor(connection)
        for _ in range(3):
            assert cursor.execute(call.query.text, call.parameters).fetchall() == []
    updates_before, heap_only_before = update_counts(database_url, at_least=3 * LEASES)
    with psycopg.connect(database_url, autocommit=True, **psycopg_settings(database_url)) as connection:
        start = wal_position(connection)
        cursor = psycopg.RawCursor(connection)
        for _ in range(ROUNDS):
            assert cursor.execute(call.query.text, call.parameters).fetchall() == []
        wal_bytes = (wal_position(connection) - start) / (ROUNDS * LEASES)
    expected = updates_before + ROUNDS * LEASES
    updates, heap_only = update_counts(database_url, at_least=expected)
    share = (heap_only - heap_only_before) / (updates - updates_before)
    print(f"renewal of {LEASES} leases: {wal_bytes:.0f} B of WAL each, {share:.1%} heap-only")
    record_property("wal_bytes_per_renewal", wal_bytes)
    assert share >= HEAP_ONLY_SHARE
    assert wal_bytes < WAL_LIMIT_BYTES


def wal_position(connection: psycopg.Connection[Any]) -> int:
    return int(connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchall()[0][0])


def update_counts(url: str, at_least: int) -> tuple[int, int]:
    """Give the table's updates and how many were heap-only, once the sessions that made them have reported."""

    def look() -> tuple[int, int] | None:
        (counts,) = execute(
            url, f"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = '{TABLE}'::regclass"
        )
        return (counts[0], counts[1]) if counts[0] >= at_least else None

    counts = eventually(look)
    assert counts is not None
    return counts


@pytest.fixture(scope="module")
def big_url(server: EmbeddedPostgres) -> Iterator[str]:
    """A database with 100,000 runs, most of them done."""
    url = create_database(server, "t_big")
    with JobSchedulerService(url) as service:
        service.migrate()
    execute(
        url,
        f'INSERT INTO {TABLE} ("lockKey", "code", "type", "status", "ownerToken", "leaseMs", "owner", "runKey") '
        "SELECT 'v2:' || encode(sha256(n::text::bytea), 'base64'), 'code' || n % 50, 'SCHEDULE', "
        "(CASE WHEN n % 100 = 0 THEN 'FAIL' WHEN n % 100 = 1 THEN 'RUNNING' ELSE 'SUCCESS' END)"
        "::\"job-scheduler_status_enum\", gen_random_uuid(), 900000, 'node', 'key ' || n "
        "FROM generate_series(1, 100000) n",
    )
    execute(url, f"VACUUM ANALYZE {TABLE}")
    yield url
    drop_database(server, "t_big")


@pytest.fixture(scope="module")
def big_leases(big_url: str) -> list[UUID]:
    """Ids of 1,000 running rows."""
    return [row[0] for row in execute(big_url, f'SELECT "id" FROM {TABLE} WHERE "status" = \'RUNNING\' LIMIT 1000')]


STATEMENTS = Statements(Table())
PLANNED = [
    *(
        pytest.param(getattr(STATEMENTS, name), {}, id=name)
        for name in (
            "acquire",
            "heartbeat",
            "settle",
            "checkpoint",
            "disown",
            "find_run_by_id",
            "find_run_by_key",
            "list_attempts_by_key",
        )
    ),
    *(pytest.param(STATEMENTS.renew, {"leases": n}, id=f"renew {n}") for n in (1, 200, 1000)),
    *(
        pytest.param(
            STATEMENTS.list_runs(by_code=by_code, status=status),
            {"limit": limit},
            id=f"list {limit}{' by code' if by_code else ''}{f' {status}' if status else ''}",
        )
        for by_code in (False, True)
        for status in (None, *(status.value for status in JobSchedulerStatus))
        for limit in (1, 50, 1000)
    ),
]


READ_ALONG_AN_INDEX = [STATEMENTS.list_runs(by_code=False, status=status) for status in (None, "SUCCESS")]
"""Listings whose filter leaves nearly every row: the newest come first, so the limit ends the reading soon."""


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize(("query", "values"), PLANNED)
def test_every_statement_uses_an_index_on_100_000_rows(
    big_url: str, big_leases: list[UUID], query: Query, values: dict[str, int], mode: str
) -> None:
    """C5.4: no statement reads the whole table, with either kind of plan."""
    ids = "{" + ",".join(map(str, big_leases[: values.get("leases", 1)])) + "}"
    arguments = {
        "lock_key": "v2:absent",
        "code": "code7",
        "name": "A name",
        "type": "SCHEDULE",
        "owner_token": str(uuid4()),
        "lease_ms": 900_000,
        "scheduled_at": None,
        "owner": "node",
        "run_key": "key",
        "id": str(big_leases[0]),
        "ids": ids,
        "owner_tokens": ids,
        "status": "FAIL",
        "data": "{}",
        "outcome": "failed",
        "retry_ms": 60_000,
        "limit": values.get("limit", 50),
    }
    with psycopg.connect(big_url, autocommit=True) as connection:
        connection.execute(f"SET plan_cache_mode = {mode}".encode())
        scans = table_scans(plan_of(connection, query, arguments))
    assert scans, "the statement does not read the table"
    assert not [scan for scan in scans if scan["Node Type"] == "Seq Scan"]
    if query not in READ_ALONG_AN_INDEX:
        assert all("Index Cond" in scan or "Recheck Cond" in scan for scan in scans), "an index is read from end to end"


def test_a_sequential_scan_would_be_seen(big_url: str) -> None:
    """The test above can fail: a statement without an index to use is told apart."""
    query = Query("name", f'SELECT * FROM {TABLE} WHERE "name" = $1'.encode(), ("name",))
    with psycopg.connect(big_url, autocommit=True) as connection:
        scans = table_scans(plan_of(connection, query, {"name": "A name"}))
    assert [scan["Node Type"] for scan in scans] == ["Seq Scan"]


def plan_of(connection: psycopg.Connection[Any], query: Query, arguments: Mapping[str, object]) -> dict[str, Any]:
    """Plan a statement as a driver has it planned, prepared and with its parameters."""
    connection.execute(b"PREPARE planned AS " + query.text)
    values = sql.SQL(", ").join(sql.Literal(arguments[name]) for name in query.parameters)
    rows = connection.execute(sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE planned ({})").format(values)).fetchall()
    plan: dict[str, Any] = rows[0][0][0]["Plan"]
    return plan


def table_scans(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the nodes of a plan that read the table."""
    here = [plan] if plan.get("Relation Name") == "job-scheduler" and "Scan" in plan["Node Type"] else []
    return here + [scan for part in plan.get("Plans", []) for scan in table_scans(part)]
