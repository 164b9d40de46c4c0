"""What the scheduler's statements cost: nothing for a tick that is decided, and nothing for history (C4.2, C10.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tenure import JobNotAcquired, JobSchedulerService
from tenure.operations import Call
from tenure.scheduling import operations
from tenure.scheduling.values import Retake, TickClaim, Verdict
from tests.scenarios.test_costs import QUIET_TRIES, CountingProxy, traces, update_counts
from tests.support.rows import TABLE, execute
from tests.support.scheduling import CODE, JOBS, MINUTE, TickNode, known_for, make_old, options_for, won

HISTORY = 100_000
DAY = timedelta(days=1)


@pytest.fixture
def node(service: JobSchedulerService) -> TickNode:
    """A node whose job is registered."""
    made = TickNode(service)
    made.register()
    return made


@pytest.fixture
def proxy(database_url: str) -> Iterator[CountingProxy]:
    """A proxy that counts, in front of the database."""
    with CountingProxy.in_front_of(database_url) as made:
        yield made


@pytest.mark.parametrize("state", ["running", "succeeded", "removed"])
def test_a_claim_of_a_tick_that_is_decided_leaves_no_trace(database_url: str, node: TickNode, state: str) -> None:
    """C4.2, C10.7: no WAL, no transaction id, no sequence value, no lock, whether its row is there or not."""
    tick = known_for(database_url, DAY) + MINUTE
    lease = won(node.claim(tick))
    if state != "running":
        node.service.complete(lease)
    if state == "removed":
        make_old(database_url)
        assert node.prune(30 * DAY) == 1
    with psycopg.connect(database_url, autocommit=True) as observer:
        for _ in range(QUIET_TRIES):
            before = traces(observer), observer.execute(f"SELECT ctid, xmin, xmax FROM {JOBS}").fetchall()
            for _ in range(20):
                assert node.claim(tick).verdict in (Verdict.DECIDED, Verdict.REMOVED)
                assert isinstance(node.service.acquire(options_for(tick)), JobNotAcquired)
            after = traces(observer), observer.execute(f"SELECT ctid, xmin, xmax FROM {JOBS}").fetchall()
            assert (after[0].rows, after[0].sequence, after[1]) == (before[0].rows, before[0].sequence, before[1])
            if after == before:
                return
    assert after == before


def test_each_statement_is_one_round_trip(database_url: str, node: TickNode, proxy: CountingProxy) -> None:
    """C4.1: whatever becomes of it."""
    watermark = known_for(database_url, DAY)
    with JobSchedulerService(proxy.url(database_url)) as service:
        far = TickNode(service)
        far.register()
        for work in (
            lambda: far.register("another", CODE),
            far.beat,
            lambda: far.claim_once(watermark + MINUTE),
            lambda: far.claim_once(watermark + MINUTE),
            far.unfinished,
            lambda: far.retake_once(options_for(watermark + MINUTE)),
            lambda: far.decide([watermark + 2 * MINUTE], watermark + MINUTE),
            lambda: far.trigger("manual:x"),
            lambda: far.prune_once(DAY, DAY),
        ):
            assert proxy.round_trips(work) == 1


def write_history(url: str, count: int) -> None:
    """Make runs of the job that have ended, a tenth of them exhausted."""
    execute(
        url,
        f'INSERT INTO {TABLE} ("lockKey", "code", "type", "status", "ownerToken", "leaseMs", "runKey", "scheduledAt", '
        '"outcome", "finishedAt") '
        f"SELECT 'history ' || n, '{CODE}', 'SCHEDULE', CAST(CASE WHEN n % 10 = 0 THEN 'FAIL' ELSE 'SUCCESS' END "
        "AS \"job-scheduler_status_enum\"), gen_random_uuid(), 60000, 'key ' || n, "
        "clock_timestamp() - make_interval(mins => n), CASE WHEN n % 10 = 0 THEN 'exhausted' END, clock_timestamp() "
        f"FROM generate_series(1, {count}) n",
    )


def explained(url: str, call: Call, mode: str = "force_custom_plan") -> Mapping[str, Any]:
    """Run a statement, undo it, and give its plan with what it read."""
    with psycopg.connect(url) as connection:
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        cursor = psycopg.RawCursor(connection)
        cursor.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + call.query.text, call.parameters)
        rows = cursor.fetchall()
        connection.rollback()
    plan: Mapping[str, Any] = rows[0][0][0]["Plan"]
    return plan


def pages(plan: Mapping[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def calls(node: TickNode, url: str) -> dict[str, Call]:
    """Give what a node sends again and again."""
    watermark = known_for(url, DAY)
    first, late = options_for(watermark + MINUTE), options_for(watermark - MINUTE)

    def claimed(tick: Any, options: Any) -> Call:
        wanted = TickClaim(
            options=options, tick=tick, previous_tick=None, fingerprint=node.fingerprint, overlap="queue"
        )
        return operations.claim(node.statements, wanted, node.life.node, "x", now_boot_s=0, clock=lambda: 0).call

    retake = Retake(options=first, max_attempts=5, overlap="skip")
    return {
        "unfinished": operations.unfinished(node.statements, {CODE: 60_000}, now_boot_s=0).call,
        "claim": claimed(watermark + MINUTE, first),
        "late claim": claimed(watermark - MINUTE, late),
        "retake": operations.retake(node.statements, retake, node.life.node, "x", now_boot_s=0, clock=lambda: 0).call,
        "beat": operations.beat(node.statements, node.life, {CODE: "x"}, None, now_boot_s=0).call,
    }


def test_looking_for_unfinished_runs_costs_what_they_cost(
    database_url: str, node: TickNode, record_property: Any
) -> None:
    """C10.4: with 100,000 ended runs of the job no statement reads more than a few pages more than with 100."""
    write_history(database_url, 100)
    execute(database_url, f"VACUUM ANALYZE {TABLE}")
    few = {name: pages(explained(database_url, call)) for name, call in calls(node, database_url).items()}
    execute(database_url, f"DELETE FROM {TABLE}")
    write_history(database_url, HISTORY)
    execute(database_url, f"VACUUM ANALYZE {TABLE}")
    many = {name: pages(explained(database_url, call)) for name, call in calls(node, database_url).items()}
    print(f"pages read with 100 ended runs {few}, with {HISTORY} {many}")
    record_property("pages", {"few": few, "many": many})
    assert {name: count for name, count in many.items() if count > 3 * few[name] + 20} == {}


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_no_statement_reads_the_whole_table(database_url: str, node: TickNode, mode: str) -> None:
    """C10.4: nor does removal, which goes along the fencing tokens."""
    write_history(database_url, 20_000)
    execute(database_url, f"VACUUM ANALYZE {TABLE}")
    every = calls(node, database_url)
    every["prune"] = operations.prune(node.statements, DAY, DAY, now_boot_s=0, limit=100).call
    for name, call in every.items():
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(f"SET plan_cache_mode = {mode}".encode())
            cursor = psycopg.RawCursor(connection)
            text = explained_text(cursor, call)
        assert not re.search(r'Seq Scan on public."job-scheduler"', text), (name, text)


def explained_text(cursor: psycopg.RawCursor[Any], call: Call) -> str:
    """Plan a statement as it is when it was prepared."""
    cursor.execute(b"EXPLAIN (VERBOSE) " + call.query.text, call.parameters, prepare=True)
    return "\n".join(row[0] for row in cursor.fetchall())


def test_renewals_of_ticks_are_heap_only(database_url: str, node: TickNode) -> None:
    """C5.4: the columns and the index of the scheduler change nothing for renewals."""
    watermark = known_for(database_url, DAY)
    leases = [won(node.claim(watermark + n * MINUTE)) for n in range(1, 51)]
    for lease in leases:
        assert node.service.heartbeat(lease)
        assert node.service.heartbeat(lease)
    node.service.close()
    updates, heap_only = update_counts(database_url, at_least=100)
    assert updates == heap_only == 100
