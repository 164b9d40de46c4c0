"""How much a node takes on, and a callback that blocks its loop (C5.3, C10.6)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tenure.scheduling import Every, JobRun
from tests.support.rows import TABLE, execute
from tests.support.schedulers import SECOND, MakeNode, known_before, nodes_of, nothing, outcomes, rows
from tests.support.waiting import eventually

CODES = [f"job-{number}" for number in range(5)]


def test_a_node_runs_no_more_at_once_than_it_may(make_node: MakeNode, database_url: str) -> None:
    """C10.6: five jobs are due, two run; the others are claimed only when there is room, so another node may."""
    free, under_way, most, lock = threading.Event(), 0, 0, threading.Lock()

    def work(run: JobRun) -> Iterator[None]:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        while not free.is_set():
            yield
        with lock:
            under_way -= 1

    for code in CODES:
        known_before(database_url, code, 1)
    node = make_node("node-a", max_concurrent_runs=2)
    for code in CODES:
        node.job(code, work)
    node.start()
    eventually(lambda: under_way == 2)
    assert execute(database_url, f"SELECT count(*) FROM {TABLE}") == [(2,)]
    other = make_node("node-b")
    for code in CODES:
        other.job(code, nothing)
    other.start()
    succeeded = f"SELECT count(*) FROM {TABLE} WHERE \"status\" = 'SUCCESS'"
    eventually(lambda: execute(database_url, succeeded) == [(3,)])
    free.set()
    eventually(lambda: execute(database_url, succeeded) == [(5,)])
    assert most == 2


def test_a_callback_that_blocks_the_loop_keeps_its_run_and_harms_no_other_node(database_url: str) -> None:
    """C5.3: for three leases; the run is renewed and nobody takes it up, and jobs tick on the other node."""
    (tick,) = known_before(database_url, "blocking", 1)
    began, free = threading.Event(), threading.Event()

    def block(run: JobRun) -> None:
        began.set()
        assert free.wait(60)

    with nodes_of(database_url, "AsyncScheduler") as make_node:
        blocked = make_node("node-a")
        blocked.job("blocking", block, lease=SECOND)
        blocked.start()
        assert began.wait(10)
        other = make_node("node-b")
        other.job("blocking", nothing, lease=SECOND)
        other.job("often", nothing, Every(SECOND))
        other.start()
        eventually(lambda: len(rows(database_url, "often")) >= 4)
        assert outcomes(database_url, "blocking") == [(tick, "RUNNING")]
        free.set()
        eventually(lambda: rows(database_url, "blocking") == [(tick, "SUCCESS", "succeeded", 1)])
        eventually(blocked.scheduler.healthy)
