"""Many relays, killed relays, lost answers, outages, poolers and poor roles (C7.4, C4.8, C9.4)."""

from __future__ import annotations

import asyncio
import functools
import logging
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from tenure import DatabaseProblem, JobDatabaseError, JobSchedulerService, JobServiceStateError
from tenure.embedded import EmbeddedPostgres
from tenure.outbox import AsyncOutbox, Outbox, OutboxMessage
from tenure.statements import OutboxStatements, Table
from tests.scenarios.test_costs import CountingProxy
from tests.scenarios.test_processes import in_fork
from tests.scenarios.test_schema import app_url, role, role_url, standby  # noqa: F401 - fixtures
from tests.support.boxes import OUTBOX, BlockingBox, LoopBox, MakeBox, end_claims, rows
from tests.support.pgbouncer import PROGRAM, pgbouncer
from tests.support.proxy import FaultProxy
from tests.support.rows import execute
from tests.support.servers import create_database, error_lines, log_offset, start_test_server
from tests.support.waiting import eventually, eventually_async
from tests.support.worker_outbox import DELIVERIES
from tests.support.worker_outbox import main as relay_for_ever

TYPES = 7
MESSAGES = 2_000
BOXES = [pytest.param(BlockingBox, id="blocking"), pytest.param(LoopBox, id="async")]
both_boxes = pytest.mark.parametrize("make", BOXES)


def fill(url: str, messages: int, types: int = TYPES) -> None:
    """Put messages in the outbox, as `enqueue_once` does, all at once."""
    execute(
        url,
        f'INSERT INTO {OUTBOX} ("idempotencyKey", "type", "payload", "enqueueToken") '
        "SELECT 'k' || n, 't' || n %% %s, "
        "jsonb_build_object('n', n), gen_random_uuid() FROM generate_series(1, %s) AS n ORDER BY n",
        types,
        messages,
    )


def unsent(url: str) -> int:
    return int(execute(url, f'SELECT count(*) FROM {OUTBOX} WHERE "doneAt" IS NULL')[0][0])


def in_order_of_each_type(ids: list[tuple[int, str]]) -> bool:
    """Say whether the first deliveries of each type came in the order of the ids."""
    seen: dict[str, list[int]] = defaultdict(list)
    for message_id, kind in ids:
        if message_id not in seen[kind]:
            seen[kind].append(message_id)
    return all(found == sorted(found) for found in seen.values())


# Many relays


@both_boxes
async def test_four_relays_send_2000_messages_once_each_in_order(
    make: MakeBox, server: EmbeddedPostgres, database_url: str
) -> None:
    """C7.4: without a kill or a failure nothing is sent twice, and no type is worked on by two relays at once."""
    fill(database_url, MESSAGES)
    since = log_offset(server)
    published: list[tuple[int, str]] = []
    at_work: Counter[str] = Counter()
    crowded: list[str] = []
    until = asyncio.Event()

    def publish(message: OutboxMessage) -> None:
        at_work[message.type] += 1
        if at_work[message.type] > 1:
            crowded.append(message.type)
        published.append((message.id, message.type))
        time.sleep(0.0002)
        at_work[message.type] -= 1

    relays = [make(database_url) for _ in range(4)]
    running = [
        asyncio.create_task(box.run(publish, until, batch=50, poll=timedelta(milliseconds=20))) for box in relays
    ]
    await eventually_async(lambda: len(published) >= MESSAGES, 60)
    until.set()
    await asyncio.gather(*running)
    for box in relays:
        await box.close()
    assert len(published) == len(set(published)) == MESSAGES
    assert in_order_of_each_type(published)
    assert crowded == []
    assert unsent(database_url) == 0
    assert error_lines(server, since) == []


def test_order_is_kept_while_messages_come_in(database_url: str) -> None:
    """C7.4: four relays race with enqueues that commit in the order of their ids."""
    published: list[tuple[int, str]] = []
    stop = threading.Event()
    with ExitStack() as stack:
        relays = [stack.enter_context(Outbox(database_url)) for _ in range(4)]
        threads = [
            threading.Thread(
                target=box.run,
                args=(lambda message: published.append((message.id, message.type)),),
                kwargs={"stop": stop, "batch": 3, "poll": timedelta(milliseconds=10)},
            )
            for box in relays
        ]
        for thread in threads:
            thread.start()
        with Outbox(database_url) as box:
            for number in range(600):
                box.enqueue_once(f"k{number}", f"t{number % 3}", {})
        eventually(lambda: len(published) >= 600, 30)
        stop.set()
        for thread in threads:
            thread.join()
    assert len(published) == len(set(published)) == 600
    assert in_order_of_each_type(published)


# Killed relays


def test_killed_relays_are_succeeded(database_url: str) -> None:
    """C7.4: each is killed after a publish that it could not record: sent at least once, in order, few twice."""
    execute(database_url, DELIVERIES)
    fill(database_url, 300)
    context = multiprocessing.get_context("spawn")
    for round_ in range(4):
        doomed = context.Process(target=relay_for_ever, args=(database_url, 23))
        doomed.start()
        eventually(functools.partial(has_delivered, database_url, 23 * (round_ + 1)), 30)
        assert doomed.pid
        os.kill(doomed.pid, signal.SIGKILL)
        doomed.join()
    last = context.Process(target=relay_for_ever, args=(database_url, None))
    last.start()
    try:
        eventually(lambda: unsent(database_url) == 0, 30)
    finally:
        last.kill()
        last.join()
    delivered = execute(database_url, "SELECT id, type, attempt FROM deliveries ORDER BY number")
    assert {row[0] for row in delivered} == set(range(1, 301))
    assert len(delivered) == 304
    assert sum(attempt == 2 for *_, attempt in delivered) == 4
    assert in_order_of_each_type([(message_id, kind) for message_id, kind, _ in delivered])


def has_delivered(url: str, at_least: int) -> bool:
    return bool(execute(url, "SELECT count(*) FROM deliveries")[0][0] >= at_least)


# Stopping


@both_boxes
async def test_a_relay_stops_after_the_message_in_hand(make: MakeBox, database_url: str) -> None:
    """C7.4: the rest of its batch is free at once."""
    fill(database_url, 50, types=1)
    until = asyncio.Event()
    loop = asyncio.get_running_loop()
    published: list[int] = []

    def publish(message: OutboxMessage) -> None:
        published.append(message.id)
        if len(published) == 10:
            loop.call_soon_threadsafe(until.set)
            time.sleep(0.05)

    box = make(database_url)
    await asyncio.wait_for(box.run(publish, until), 5)
    before = len(published)
    assert 10 <= before < 50
    assert await box.relay(lambda message: published.append(message.id)) == 50 - before
    await box.close()


async def test_a_cancelled_relay_gives_its_batch_back(database_url: str) -> None:
    """C7.4: cancelled while it publishes; no connection is left busy, and nothing is lost."""
    fill(database_url, 5, types=1)
    begun = asyncio.Event()

    async def hangs(message: OutboxMessage) -> None:
        begun.set()
        await asyncio.sleep(3600)

    published: list[int] = []

    async def publish(message: OutboxMessage) -> None:
        published.append(message.id)

    async with AsyncOutbox(database_url) as box:
        running = asyncio.create_task(box.run(hangs))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await box.relay(publish) == 5
    assert published == [1, 2, 3, 4, 5]


async def test_cancelled_at_any_moment_nothing_is_lost(database_url: str) -> None:
    """C7.4: at every await in turn."""
    fill(database_url, 40, types=1)
    published: set[int] = set()

    async def publish(message: OutboxMessage) -> None:
        await asyncio.sleep(0)
        published.add(message.id)

    async with AsyncOutbox(database_url) as box:
        for steps in range(1, 60):
            running = asyncio.create_task(box.relay(publish, batch=3, max_attempts=60))
            for _ in range(steps):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        end_claims(database_url)  # a claim whose answer came too late, at worst
        while await box.relay(publish, max_attempts=60):  # each cancelled handing over has counted as an attempt
            pass
    assert published == set(range(1, 41))
    assert unsent(database_url) == 0


# Weather


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
@both_boxes
async def test_a_lost_answer_to_an_enqueue_is_asked_for_again(make: MakeBox, database_url: str, cut: str) -> None:
    """C7.4: `True` if our own first try had inserted it, and one row."""
    with FaultProxy.in_front_of(database_url) as proxy:
        box = make(proxy.url(database_url))
        assert await box.enqueue("warm") is True
        getattr(proxy, cut)(b"enqueueToken")
        assert await box.enqueue("k") is True
        assert await box.enqueue("k") is False
        await box.close()
    assert len(rows(database_url)) == 2


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
@pytest.mark.parametrize("statement", [b"WITH RECURSIVE kinds", b"WITH settled"])
@both_boxes
async def test_a_lost_answer_to_a_relay_repeats_nothing(
    make: MakeBox, database_url: str, cut: str, statement: bytes
) -> None:
    """C7.4: a claim and a record are sent again with the same token, and know what they have done."""
    fill(database_url, 6, types=2)
    published: list[tuple[int, int]] = []
    with FaultProxy.in_front_of(database_url) as proxy:
        box = make(proxy.url(database_url))
        await box.enqueue("last", "t0")
        getattr(proxy, cut)(statement)
        assert await box.relay(lambda message: published.append((message.id, message.attempt))) == 7
        await box.close()
    assert published == [(number, 1) for number in range(1, 8)]
    assert [row[1] for row in rows(database_url)] == [1] * 7


@both_boxes
async def test_a_relay_survives_an_outage(make: MakeBox, caplog: pytest.LogCaptureFixture) -> None:
    """C7.4, lessons C (underway#91): it waits with back-off, says so rarely, and goes on."""
    with start_test_server() as own:
        url = create_database(own, "outage")
        with JobSchedulerService(url) as service:
            await asyncio.to_thread(service.migrate)
        fill(url, 3, types=1)
        published: list[str] = []
        box, until = make(url), asyncio.Event()
        with caplog.at_level(logging.INFO, "tenure"):
            running = asyncio.create_task(box.run(lambda message: published.append(message.idempotency_key), until))
            await eventually_async(lambda: len(published) == 3)
            await asyncio.to_thread(own.restart, "immediate")
            await asyncio.to_thread(fill_more, url)
            await eventually_async(lambda: len(published) == 6, 20)
            until.set()
            await asyncio.wait_for(running, 5)
        await box.close()
    assert published == ["k1", "k2", "k3", "more0", "more1", "more2"]
    assert caplog.text.count("The relay cannot go on") <= 1


def fill_more(url: str) -> None:
    with Outbox(url) as box:
        for number in range(3):
            box.enqueue_once(f"more{number}", "t1", {})


def test_a_relay_that_waits_for_the_database_stops_at_once(database_url: str) -> None:
    """C7.4: whatever it waits for."""
    stop = threading.Event()
    with Outbox("postgresql://nobody@127.0.0.1:1/none") as box:
        thread = threading.Thread(target=box.run, args=(print,), kwargs={"stop": stop})
        thread.start()
        time.sleep(0.3)
        assert thread.is_alive()
        stop.set()
        thread.join(2)
        assert not thread.is_alive()


# Poolers, roles, standbys, forks


@pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (Debian: pgbouncer)")
@both_boxes
async def test_it_works_through_a_transaction_pooler(
    make: MakeBox, server: EmbeddedPostgres, database_url: str
) -> None:
    """C4.8: claims, records and enqueues, from four relays over four server connections."""
    since = log_offset(server)
    published: list[int] = []
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, pgbouncer(database_url, Path(folder)) as url:
        boxes = [make(url) for _ in range(4)]
        for number in range(100):
            assert await boxes[number % 4].enqueue(f"k{number}", f"t{number % TYPES}") is True
        while unsent(database_url):
            await asyncio.gather(*(box.relay(lambda message: published.append(message.id), batch=10) for box in boxes))
        for box in boxes:
            await box.close()
    assert sorted(published) == list(range(1, 101))
    assert error_lines(server, since) == []


def test_rights_on_rows_are_enough(database_url: str, app_url: str) -> None:  # noqa: F811 - a fixture
    """C9.4: `USAGE` on the schema and the four rights on the tables; no right on the sequence."""
    with Outbox(app_url) as box:
        assert box.enqueue_once("k", "mail", {}) is True
        assert box.relay(lambda message: None) == 1
        assert box.prune(timedelta(0)) == 1
        assert box.dead() == []


@pytest.mark.parametrize("right", ["SELECT", "INSERT", "UPDATE", "DELETE"])
def test_a_missing_grant_is_named_and_mends_it(
    database_url: str,
    role: str,  # noqa: F811 - a fixture
    app_url: str,  # noqa: F811 - a fixture
    right: str,
) -> None:
    """C9.4: on the table of the outbox."""
    execute(database_url, f"REVOKE {right} ON {OUTBOX} FROM {role}")
    with Outbox(app_url) as box:
        with pytest.raises(JobDatabaseError, match="GRANT") as refused:
            box.enqueue_once("k", "mail", {})
            box.relay(lambda message: None)
            box.prune(timedelta(0))
        assert refused.value.problem is DatabaseProblem.GRANT_MISSING
        execute(database_url, str(refused.value).split("As the owner, run: ")[1])
        assert box.enqueue_once("another", "mail", {}) is True
        assert box.relay(lambda message: None) >= 1
        assert box.prune(timedelta(0)) >= 1


def test_a_missing_table_names_the_command_that_makes_it(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """C9.4: an older schema, say; a relay that runs for ever does not wait for it."""
    execute(database_url, f"DROP TABLE {OUTBOX}")
    with Outbox(database_url) as box:
        for call in (lambda: box.enqueue_once("k", "mail", {}), lambda: box.run(print)):
            with pytest.raises(JobDatabaseError, match="tenure schema apply") as refused:
                call()
            assert refused.value.problem is DatabaseProblem.SCHEMA_MISSING


def test_a_standby_is_named(standby: tuple[EmbeddedPostgres, EmbeddedPostgres]) -> None:  # noqa: F811 - a fixture
    """C9.4: and served once it is promoted; a relay waits for that."""
    _, server = standby
    with Outbox(server.url()) as box:
        calls: list[Callable[[], object]] = [
            lambda: box.enqueue_once("k", "mail", {}),
            lambda: box.relay(print),
            box.prune,
        ]
        for call in calls:
            with pytest.raises(JobDatabaseError) as refused:
                call()
            assert refused.value.problem is DatabaseProblem.READ_ONLY
        assert box.dead() == []
        published, stop = threading.Event(), threading.Event()
        thread = threading.Thread(target=box.run, args=(lambda message: published.set(),), kwargs={"stop": stop})
        thread.start()
        execute(server.url(), "SELECT pg_promote()")
        assert box.enqueue_once("k", "mail", {}) is True
        assert published.wait(15)
        stop.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_starts_afresh(database_url: str) -> None:
    """Lessons C (psycopg#395): with a connection string it works; a pool that was given is refused."""
    with Outbox(database_url) as box, ConnectionPool(database_url, min_size=1) as pool, Outbox(pool) as pooled:
        assert box.enqueue_once("parent", "mail", {}) is True
        assert pooled.enqueue_once("pooled", "mail", {}) is True
        assert in_fork(lambda: box.enqueue_once("child", "mail", {})) == {"returned": True}
        assert in_fork(lambda: pooled.enqueue_once("x", "mail", {}))["raised"] == JobServiceStateError.__name__
        assert box.relay(lambda message: None) == 3


# Costs


@pytest.fixture
def counting(database_url: str) -> Iterator[CountingProxy]:
    """A proxy that counts, in front of the database."""
    with CountingProxy.in_front_of(database_url) as made:
        yield made


def test_an_idle_relay_is_one_statement_and_writes_nothing(counting: CountingProxy, database_url: str) -> None:
    """C7.4: no WAL and no transaction id, also with rows that must wait."""
    position = "SELECT pg_current_wal_insert_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text"
    with Outbox(counting.url(database_url)) as box:
        box.relay(print)
        assert counting.round_trips(lambda: box.relay(print)) == 1
        fill(database_url, 20, types=2)
        execute(database_url, f"UPDATE {OUTBOX} SET \"dueAt\" = 'infinity'")
        execute(database_url, "CHECKPOINT")
        box.relay(print)
        with psycopg.connect(database_url, autocommit=True) as connection:
            before = connection.execute(position.encode()).fetchall()
            found = [quiet(connection, position, box) for _ in range(20)]
        assert before[0] in found or any(first == second for first, second in pairwise(found))


def quiet(connection: psycopg.Connection[Any], position: str, box: Outbox) -> tuple[Any, ...]:
    box.relay(print)
    return tuple(connection.execute(position.encode()).fetchall()[0])


def test_a_batch_is_claimed_by_one_statement_and_each_message_settled_by_one(
    counting: CountingProxy, database_url: str
) -> None:
    """C7.4: 1 + n round trips for n messages."""
    fill(database_url, 50, types=3)
    with Outbox(counting.url(database_url)) as box:
        box.relay(lambda message: None, batch=20)  # psycopg prepares what comes often, with a message more
        for _ in range(6):
            box.relay(lambda message: None, batch=1)
        assert counting.round_trips(lambda: box.relay(lambda message: None, batch=20)) == 21
        assert counting.round_trips(lambda: box.enqueue_once("k", "mail", {})) == 1


def test_a_claim_reads_no_more_than_it_may_take(database_url: str) -> None:
    """C7.4: neither 50,000 rows that were sent nor a backlog of as many, nor a type that is alone behind it."""
    fill(database_url, 100_000, types=5)
    execute(database_url, f'UPDATE {OUTBOX} SET "doneAt" = clock_timestamp() WHERE "id" <= 50000')
    execute(database_url, f'UPDATE {OUTBOX} SET "type" = \'zz\' WHERE "id" = 100000')
    execute(database_url, f"VACUUM (ANALYZE) {OUTBOX}")
    query = OutboxStatements(Table()).claim
    values = {"claim_token": str(uuid4()), "claim_ms": 60_000, "batch": 20}
    with psycopg.connect(database_url, autocommit=True) as connection:
        cursor = psycopg.RawCursor(connection)
        cursor.execute(
            b"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON) " + query.text,
            [values[name] for name in query.parameters],
        )
        ((plan,),) = cursor.fetchall()
    read = list(rows_read(plan[0]["Plan"]))
    assert read
    assert "Seq Scan" not in str(plan)
    assert max(read) <= 6 * 20, plan


def rows_read(node: dict[str, Any]) -> Iterator[int]:
    """Give how many rows each scan of the table came upon, whether it kept them or not."""
    if node.get("Relation Name"):
        yield node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
    for inner in node.get("Plans", []):
        yield from rows_read(inner)


@both_boxes
async def test_a_claim_changes_no_index(make: MakeBox, database_url: str) -> None:
    """C7.4: claims are heap-only updates; that a message was sent is not."""
    fill(database_url, 40, types=40)
    box = make(database_url)
    with pytest.raises(KeyboardInterrupt):
        await box.relay(interrupt)
    await box.close()
    counts = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'job-scheduler_outbox'"
    await eventually_async(lambda: execute(database_url, counts)[0][0] >= 80)
    ((updated, heap_only),) = execute(database_url, counts)
    assert heap_only >= 0.9 * updated


def interrupt(message: OutboxMessage) -> None:
    raise KeyboardInterrupt
