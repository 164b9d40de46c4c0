"""Removal while nodes tick: a removed tick never runs again, and says why (C10.7)."""

from __future__ import annotations

from datetime import timedelta

from tenure import JobAcquireOptions, JobNotAcquired, JobSchedulerService, NotAcquiredReason
from tenure.scheduling import Every, Retention, run_key
from tenure.scheduling.events import RunStarted
from tenure.scheduling.retention import PRUNE_CODE
from tenure.scheduling.values import Verdict
from tests.support.rows import TABLE, execute
from tests.support.schedulers import RARE, SECOND, MakeNode, known_before, nothing, outcomes, rows, trigger
from tests.support.scheduling import JOBS, TickNode, make_old, watermark_of
from tests.support.waiting import eventually

DAY = timedelta(days=1)
KEEP = Retention(keep=30 * DAY, keep_failed=30 * DAY)


def test_a_lagging_node_is_refused_a_tick_that_was_removed_and_told_why(make_node: MakeNode, database_url: str) -> None:
    """C10.7: tick 2 is claimed, the rows are removed, then a node that lags asks for tick 1."""
    first, second = known_before(database_url, "j", 2)
    node = make_node()
    node.job("j", nothing, catch_up="latest")
    node.start()
    eventually(lambda: outcomes(database_url, "j") == [(first, "skipped"), (second, "succeeded")])
    make_old(database_url)
    with JobSchedulerService(database_url, owner_label="node-lags") as service:
        lagging = TickNode(service, fingerprint=RARE.fingerprint)
        assert lagging.prune(30 * DAY) == 2
        for tick in (first, second):
            refused = lagging.claim(tick, "j", previous_tick=RARE.previous(tick))
            assert refused.verdict is Verdict.REMOVED
            assert refused.lost == JobNotAcquired(reason=NotAcquiredReason.REMOVED)
            assert service.acquire(JobAcquireOptions(code="j", run_key=run_key(tick))) == refused.lost
    assert rows(database_url, "j") == []
    assert watermark_of(database_url, "j") == second


def test_a_node_whose_sight_is_old_runs_no_removed_tick(make_node: MakeNode, database_url: str) -> None:
    """C10.7: it was down while the ticks were run and removed; it goes on with the next one."""
    known_before(database_url, "j", 3)
    one, two = make_node("node-a"), make_node("node-b")
    one.job("j", nothing, catch_up="all")
    one.start()
    eventually(lambda: [how for _, how in outcomes(database_url, "j")] == ["succeeded"] * 3)
    one.stop()
    make_old(database_url)
    with JobSchedulerService(database_url) as service:
        assert TickNode(service).prune(30 * DAY) == 3
    two.job("j", nothing, catch_up="all")
    two.job("often", nothing, Every(SECOND))
    two.start()
    eventually(lambda: len(rows(database_url, "often")) >= 2)
    assert not two.heard(RunStarted, "j")
    assert rows(database_url, "j") == []


def test_the_removal_is_a_job_of_ours_that_one_node_runs(make_node: MakeNode, database_url: str) -> None:
    """C10.7: daily, on one node, in batches; it tells how many, and removes neither INITIAL nor unfinished runs."""
    nodes = [make_node(label, retention=KEEP) for label in ("node-a", "node-b", "node-c")]
    for node in nodes:
        node.initial("seed", nothing)
        node.job("j", nothing)
        node.start()
    assert execute(database_url, f'SELECT "schedule", "timezone" FROM {JOBS} WHERE "code" = \'{PRUNE_CODE}\'') == [
        ("0 0 * * *", "UTC")
    ]
    for _ in range(3):
        trigger(database_url, "j")
    eventually(lambda: [how for _, how in outcomes(database_url, "j")] == ["succeeded"] * 3)
    with JobSchedulerService(database_url) as service:
        assert service.acquire(JobAcquireOptions(code="plain", run_key="2026-07-20T03:00:00.000Z")).acquired
    make_old(database_url)
    trigger(database_url, PRUNE_CODE)
    eventually(lambda: [how for _, how in outcomes(database_url, PRUNE_CODE)] == ["succeeded"])
    assert execute(database_url, f'SELECT "data" FROM {TABLE} WHERE "code" = \'{PRUNE_CODE}\'') == [({"removed": 3},)]
    assert sum(len(node.heard(RunStarted, PRUNE_CODE)) for node in nodes) == 1
    left = execute(database_url, f'SELECT "code", "status"::text FROM {TABLE} WHERE "code" <> \'{PRUNE_CODE}\'')
    assert sorted(left) == [("plain", "RUNNING"), ("seed", "SUCCESS")]


def test_nothing_is_removed_where_nobody_asks_for_it(make_node: MakeNode, database_url: str) -> None:
    """C10.7: `retention=None` registers no such job."""
    node = make_node(retention=None)
    node.job("j", nothing)
    node.start()
    assert execute(database_url, f'SELECT "code" FROM {JOBS}') == [("j",)]
