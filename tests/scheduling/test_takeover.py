"""Runs that failed, took too long or whose node died are finished by themselves, or say why not (C10.4, C10.5)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tenure import JobSchedulerService
from tenure.errors import JobTimeoutError
from tenure.scheduling import JobRun, Retry
from tenure.scheduling.events import RunEnded, RunExhausted, RunStarted
from tests.support.rows import TABLE, execute
from tests.support.schedulers import RARE, SECOND, MakeNode, known_before, outcomes, rows, trigger
from tests.support.scheduling import TickNode, expire, tick_row, won
from tests.support.waiting import eventually

AT_ONCE = Retry(max_attempts=3, first=timedelta(0))
LOOKED = 'SELECT count(*) FROM "job-scheduler_nodes" WHERE "seenAt" > "startedAt" + interval \'0.2 s\''
SOON = Retry(max_attempts=3, first=SECOND / 5, most=SECOND)


def fail(run: JobRun) -> None:
    raise ValueError(f"attempt {run.attempt}")


def died(url: str, code: str, attempts: int = 1) -> Any:
    """Leave the run of a due tick as a node does that died in it; give its tick."""
    (tick,) = known_before(url, code, 1)
    with JobSchedulerService(url, owner_label="node-dead") as service:
        node = TickNode(service, fingerprint=RARE.fingerprint)
        won(node.claim(tick, code, previous_tick=RARE.previous(tick)))
    execute(url, f'UPDATE {TABLE} SET "attempt" = %s WHERE "code" = %s', attempts, code)
    return tick


def test_the_run_of_a_node_that_died_is_taken_up_by_itself(make_node: MakeNode, database_url: str) -> None:
    """C10.4: under the same key, once, as the next attempt, and not before its lease has run out."""
    tick = died(database_url, "j")
    seen: list[JobRun] = []
    nodes = [make_node(label) for label in ("node-a", "node-b", "node-c")]
    for node in nodes:
        node.job("j", seen.append)
        node.start()
    eventually(lambda: execute(database_url, LOOKED) == [(3,)])
    assert outcomes(database_url, "j") == [(tick, "RUNNING")]
    expire(database_url, tick, "j")
    eventually(lambda: outcomes(database_url, "j") == [(tick, "succeeded")])
    (run,) = seen
    assert (run.attempt, run.scheduled_at, run.is_catch_up) == (2, tick, True)
    assert run.idempotency_key == tick_row(database_url, tick, "j")["lockKey"]
    assert run.previous is not None
    assert sum(len(node.heard(RunStarted)) for node in nodes) == 1


def test_a_live_run_is_left_alone(make_node: MakeNode, database_url: str) -> None:
    """C10.4, C5.2: it is renewed past its lease, and nobody takes it up."""
    known_before(database_url, "j", 1)
    ended = threading.Event()

    def hold(run: JobRun) -> Iterator[None]:
        while not ended.is_set():
            yield

    nodes = [make_node(label) for label in ("node-a", "node-b")]
    for node in nodes:
        node.job("j", hold, lease=SECOND * 0.6)
        node.start()
    eventually(lambda: rows(database_url, "j"))
    first = execute(database_url, f'SELECT "modifiedAt" FROM {TABLE}')
    eventually(
        lambda: (
            execute(database_url, f"SELECT \"modifiedAt\" - %s > interval '1.2 s' FROM {TABLE}", *first[0]) == [(True,)]
        )
    )
    ended.set()
    eventually(lambda: [how for _, how in outcomes(database_url, "j")] == ["succeeded"])
    assert sum(len(node.heard(RunStarted)) for node in nodes) == 1
    assert rows(database_url, "j")[0][3] == 1


def test_a_failure_is_tried_again_after_its_pause(make_node: MakeNode, database_url: str) -> None:
    """C10.5: with back-off, by the database's clock; the attempts follow each other under one key."""
    (tick,) = known_before(database_url, "j", 1)
    keys: list[str] = []
    ends: list[float] = []

    def work(run: JobRun) -> None:
        keys.append(run.idempotency_key)
        ends.append(time.monotonic())
        if run.attempt < 3:
            fail(run)

    for label in ("node-a", "node-b"):
        node = make_node(label)
        node.job("j", work, retry=SOON)
        node.start()
    eventually(lambda: rows(database_url, "j") == [(tick, "SUCCESS", "succeeded", 3)])
    assert len(set(keys)) == 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(ends)]
    assert pauses[0] >= 0.1
    assert pauses[1] >= 0.2


def test_what_failed_here_succeeds_elsewhere(make_node: MakeNode, database_url: str) -> None:
    """C10.4: a node that cannot do the work does not keep the others from it."""
    (tick,) = known_before(database_url, "j", 1)
    bad, good = make_node("node-bad"), make_node("node-good")
    bad.job("j", fail, retry=Retry(max_attempts=1_000, first=timedelta(0)))
    bad.start()
    eventually(lambda: bad.heard(RunEnded))
    good.job("j", lambda run: {"by": "good"}, retry=Retry(max_attempts=1_000, first=timedelta(0)))
    good.start()
    eventually(lambda: outcomes(database_url, "j") == [(tick, "succeeded")], 20)
    row = tick_row(database_url, tick, "j")
    assert (row["owner"], row["data"]) == ("node-good", {"by": "good"})
    assert isinstance(bad.heard(RunEnded)[0].error, ValueError)


def test_a_run_that_used_up_its_attempts_is_told_once_and_the_next_tick_runs(
    make_node: MakeNode, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """C10.4: three nodes, one report; the row keeps the last error, and the job goes on."""
    first, second = known_before(database_url, "j", 2)
    nodes = [make_node(label) for label in ("node-a", "node-b", "node-c")]

    def work(run: JobRun) -> None:
        if run.scheduled_at == first:
            fail(run)

    for node in nodes:
        node.job("j", work, catch_up="all", overlap="skip", retry=AT_ONCE)
        node.start()
    eventually(lambda: outcomes(database_url, "j") == [(first, "exhausted"), (second, "succeeded")])
    assert tick_row(database_url, first, "j")["data"] == {"error": "ValueError: attempt 3"}
    told = eventually(lambda: [event for node in nodes for event in node.heard(RunExhausted)])
    trigger(database_url, "j")  # whoever takes this up has looked for what is unfinished since
    eventually(lambda: len(rows(database_url, "j")) == 3 and rows(database_url, "j")[2][1] == "SUCCESS")
    assert told == [event for node in nodes for event in node.heard(RunExhausted)]
    assert told == [RunExhausted(code="j", scheduled_at=first)]
    assert [record.getMessage() for record in caplog.records if "used up" in record.getMessage()] == [
        f"The run of job 'j' for {first.isoformat()} has used up its attempts and is not tried again by itself."
    ]


def test_a_run_whose_nodes_died_too_often_is_exhausted(make_node: MakeNode, database_url: str) -> None:
    """C10.4: a run that kills its node does not go round all nodes for ever; it is told once, and never called."""
    tick = died(database_url, "j", attempts=3)
    expire(database_url, tick, "j")
    nodes = [make_node(label) for label in ("node-a", "node-b")]
    for node in nodes:
        node.job("j", fail, retry=AT_ONCE)
        node.start()
    eventually(lambda: outcomes(database_url, "j") == [(tick, "exhausted")])
    told = eventually(lambda: [event for node in nodes for event in node.heard(RunExhausted)])
    assert told == [RunExhausted(code="j", scheduled_at=tick)]
    assert not any(node.heard(RunStarted) for node in nodes)


def test_a_timeout_is_an_outcome_of_its_own_and_is_tried_again(make_node: MakeNode, database_url: str) -> None:
    """C10.5: until its retry the row says `timed out`; then the next attempt runs as after any failure."""
    (tick,) = known_before(database_url, "j", 1)

    def work(run: JobRun) -> Iterator[None]:
        while run.attempt == 1:
            yield

    node = make_node()
    node.job("j", work, timeout=SECOND / 5, retry=Retry(first=SECOND))
    node.start()
    eventually(lambda: rows(database_url, "j") == [(tick, "FAIL", "timed out", 1)])
    eventually(lambda: rows(database_url, "j") == [(tick, "SUCCESS", "succeeded", 2)])
    eventually(lambda: len(node.heard(RunEnded)) == 2)
    failed, succeeded = node.heard(RunEnded)
    assert isinstance(failed.error, JobTimeoutError)
    assert succeeded.error is None


def test_a_callback_that_answers_its_timeout_with_another_error_has_failed_of_that(
    make_node: MakeNode, database_url: str
) -> None:
    """C10.5, C6.3: the callback's own exception is what is recorded."""
    (tick,) = known_before(database_url, "j", 1)

    def work(run: JobRun) -> Iterator[None]:
        try:
            while True:
                yield
        finally:
            raise RuntimeError("the clean-up failed")

    node = make_node()
    node.job("j", work, timeout=SECOND / 5, retry=Retry(first=60 * SECOND))
    node.start()
    eventually(lambda: rows(database_url, "j") == [(tick, "FAIL", "failed", 1)])
    assert tick_row(database_url, tick, "j")["data"] == {"error": "RuntimeError: the clean-up failed"}


def test_the_last_timeout_exhausts_the_run(make_node: MakeNode, database_url: str) -> None:
    """C10.5: a timeout is tried again by the same rules as any failure."""
    (tick,) = known_before(database_url, "j", 1)

    def work(run: JobRun) -> Iterator[None]:
        while True:
            yield

    node = make_node()
    node.job("j", work, timeout=SECOND / 10, retry=Retry(max_attempts=2, first=timedelta(0)))
    node.start()
    eventually(lambda: rows(database_url, "j") == [(tick, "FAIL", "exhausted", 2)])
    assert "JobTimeoutError" in str(tick_row(database_url, tick, "j")["data"])
    eventually(lambda: node.heard(RunExhausted))
