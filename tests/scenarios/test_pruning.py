"""Removing old runs: what goes, what never does, and what stays decided (C10.7)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tenure import JobAcquired, JobAcquireOptions, JobSchedulerService
from tenure.scheduling.values import Outcome, Verdict
from tests.support.nestjs import NestNode
from tests.support.rows import TABLE, execute
from tests.support.scheduling import (
    JOBS,
    MINUTE,
    TickNode,
    count_rows,
    expire,
    known_for,
    make_old,
    options_for,
    run_key,
    watermark_of,
    won,
)

DAY = timedelta(days=1)
KEEP = 30 * DAY


@pytest.fixture
def node(service: JobSchedulerService) -> TickNode:
    """A node whose job is registered."""
    made = TickNode(service)
    made.register()
    return made


@pytest.fixture
def tick(database_url: str, node: TickNode) -> datetime:
    """The tick after the watermark of a job that has been known for a day."""
    return known_for(database_url, DAY) + MINUTE


def acquired(service: JobSchedulerService, options: JobAcquireOptions) -> JobAcquired:
    result = service.acquire(options)
    assert isinstance(result, JobAcquired)
    return result


def keys_left(url: str) -> set[str | None]:
    return {row[0] for row in execute(url, f'SELECT "runKey" FROM {TABLE}')}


def test_what_is_unfinished_or_initial_or_of_another_kind_is_never_removed(
    database_url: str, node: TickNode, tick: datetime
) -> None:
    """C10.7: however old it is."""
    service = node.service
    ticks = [tick + n * MINUTE for n in range(7)]
    service.complete(won(node.claim(ticks[0])))
    won(node.claim(ticks[1]))
    won(node.claim(ticks[2]))
    service.fail(won(node.claim(ticks[3])))
    node.claim(ticks[4], overlap="queue")
    node.trigger("manual:waiting")
    node.trigger("manual:done")
    service.complete(won(node.retake(JobAcquireOptions(code="sync-orders", run_key="manual:done"))))
    service.complete(acquired(service, JobAcquireOptions(code="seed", type="INITIAL")))
    service.complete(acquired(service, JobAcquireOptions(code="sync-orders", run_key="invoice 12")))
    expire(database_url, ticks[2])
    make_old(database_url, 400 * DAY)
    assert node.prune(KEEP) == 2
    assert keys_left(database_url) == {
        *(run_key(each) for each in ticks[1:5]),
        "manual:waiting",
        None,
        "invoice 12",
    }
    assert watermark_of(database_url) == ticks[4]


def test_runs_are_kept_as_long_as_was_asked_for(database_url: str, node: TickNode, tick: datetime) -> None:
    """Retention: failed ones, which are exhausted, for a time of their own."""
    node.service.complete(won(node.claim(tick)))
    lease = won(node.claim(tick + MINUTE))
    node.service.fail(lease)
    assert node.retake(options_for(tick + MINUTE), max_attempts=1).verdict is Verdict.EXHAUSTED
    node.decide([tick + 2 * MINUTE], tick + MINUTE, Outcome.SKIPPED)
    make_old(database_url, 20 * DAY)
    assert node.prune(30 * DAY, 90 * DAY) == 0
    make_old(database_url, 20 * DAY)
    assert node.prune(30 * DAY, 90 * DAY) == 2
    make_old(database_url, 60 * DAY)
    assert node.prune(30 * DAY, 90 * DAY) == 1
    assert count_rows(database_url) == 0
    assert execute(database_url, 'SELECT count(*) FROM "public"."job-scheduler_attempts"') == [(0,)]


def test_removal_goes_in_batches(database_url: str, node: TickNode, tick: datetime) -> None:
    """Retention: each of them is one statement that looks at so many runs, and the last one says so."""
    ticks = [tick + n * MINUTE for n in range(1_050)]
    node.decide(ticks, tick - MINUTE)
    make_old(database_url)
    first = node.prune_once(KEEP, KEEP, limit=100)
    assert (first.removed, first.more) == (100, True)
    assert node.prune(KEEP, limit=100) == 950
    kept = [ticks[-1] + n * MINUTE for n in range(1, 301)]
    node.decide(kept, ticks[-1])
    once = node.prune_once(KEEP, KEEP, limit=100)
    assert (once.removed, once.more) == (0, False)


def test_a_code_that_no_scheduler_knows_keeps_a_watermark(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.7: runs by plain acquires and NestJS nodes: what was removed is refused, what came later is not."""
    plain = [tick - n * DAY for n in (3, 2, 1)]
    for each in plain[:2]:
        node.service.complete(acquired(node.service, options_for(each, "plain")))
    with NestNode(database_url) as nest:
        assert nest.acquire(options_for(tick, "nest").lock_key, "nest")
        assert nest.complete()
    make_old(database_url)
    assert node.prune(KEEP) == 2
    assert execute(database_url, f'SELECT "fingerprint", "watermark" FROM {JOBS} WHERE "code" = \'plain\'') == [
        (None, plain[1])
    ]
    assert not node.service.acquire(options_for(plain[0], "plain")).acquired
    assert not node.service.acquire(options_for(plain[1], "plain")).acquired
    assert node.service.acquire(options_for(plain[2], "plain")).acquired
    assert node.claim(plain[2], "plain").verdict is Verdict.UNKNOWN
    heard = node.register("plain")
    assert heard.clock - heard.jobs["plain"].watermark < MINUTE, "a job that is new never runs for the past"


ODD_KEYS = {
    "2026-02-30T03:00:00.000Z": 1,
    "0000-01-01T00:00:00.000Z": 0,
    "2026-13-01T00:00:00.000Z": 0,
    "9999-12-31T23:59:59.999Z": 0,
}


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_that_only_looks_like_a_tick_stops_nothing(database_url: str, node: TickNode, key: str) -> None:
    """C11: a day that there is not, a year, a month, a tick to come; what was removed is refused all the same."""
    options = JobAcquireOptions(code="odd", run_key=key)
    node.service.complete(acquired(node.service, options))
    make_old(database_url)
    assert node.prune(KEEP) == ODD_KEYS[key]
    assert not node.service.acquire(options).acquired


def test_the_watermark_moves_in_the_same_transaction(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.7: whoever sees that the row is gone sees where the watermark is: both bear one transaction's mark."""
    execute(
        database_url,
        "CREATE TABLE removals (transaction text); CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO removals SELECT pg_current_xact_id(); RETURN OLD; END'; "
        f"CREATE TRIGGER noted BEFORE DELETE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION noted()",
    )
    node.service.complete(acquired(node.service, options_for(tick, "plain")))
    make_old(database_url)
    assert node.prune(KEEP) == 1
    assert execute(database_url, f"SELECT xmin::text FROM {JOBS} WHERE \"code\" = 'plain'") == execute(
        database_url, "SELECT transaction FROM removals"
    )


def test_nodes_that_were_silent_for_a_day_are_forgotten(database_url: str, node: TickNode) -> None:
    """C10.6: those that live come back with their next beat, whatever happened."""
    nodes = '"public"."job-scheduler_nodes"'
    execute(database_url, f'UPDATE {nodes} SET "seenAt" = "seenAt" - interval \'25 hours\'')
    node.prune(KEEP)
    assert execute(database_url, f"SELECT count(*) FROM {nodes}") == [(0,)]
    node.beat()
    assert execute(database_url, f"SELECT count(*) FROM {nodes}") == [(1,)]
