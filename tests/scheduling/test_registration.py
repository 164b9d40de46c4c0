"""Which node runs what: each its own jobs, the newer schedule, INITIAL first (C10.6, C8.2, C10.5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tenure import JobDatabaseError, WaitTimeoutError
from tenure.scheduling import Every, JobRun, Retry
from tenure.scheduling.events import RunStarted, ScheduleReplaced, ScheduleSuperseded
from tests.support.rows import TABLE, execute
from tests.support.schedulers import RARE, SECOND, MakeNode, ask, known_before, nothing, outcomes, rows, trigger
from tests.support.waiting import eventually

SECONDS = Every(SECOND)
TWO_SECONDS = Every(2 * SECOND)


def test_each_node_runs_the_jobs_that_it_registered(make_node: MakeNode, database_url: str) -> None:
    """C10.6: no leader; what both have is run by either, what one has by that one, retries included."""
    one, two = make_node("node-a"), make_node("node-b")
    one.job("only one", lambda run: {"by": 1} if run.attempt > 1 else 1 / 0, retry=Retry(first=timedelta(0)))
    two.job("only two", nothing)
    for node in (one, two):
        node.job("both", nothing, SECONDS)
        node.start()
    for code in ("only one", "only two"):
        trigger(database_url, code)
    eventually(lambda: [how for _, how in outcomes(database_url, "only one")] == ["succeeded"])
    eventually(lambda: [how for _, how in outcomes(database_url, "only two")] == ["succeeded"])
    eventually(lambda: len(rows(database_url, "both")) >= 2)
    assert [event.attempt for event in one.heard(RunStarted, "only one")] == [1, 2]
    assert not two.heard(RunStarted, "only one")
    assert not one.heard(RunStarted, "only two")


def test_two_schedules_under_one_code_the_newer_rules_and_both_are_told(
    make_node: MakeNode, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """C10.6: as in a rolling deploy; the older node starts no tick any more, but takes up what is left of the job."""
    old, new = make_node("node-old"), make_node("node-new")
    old.job("j", nothing, SECONDS)
    old.start()
    eventually(lambda: rows(database_url, "j"))
    new.job("j", nothing, TWO_SECONDS)
    new.start()
    eventually(lambda: old.heard(ScheduleSuperseded))
    (replaced,) = new.heard(ScheduleReplaced)
    assert (replaced.replaced.code, replaced.replaced.schedule) == ("j", "1s")
    (superseded,) = old.heard(ScheduleSuperseded)
    assert superseded.code == "j"
    so_far = len(rows(database_url, "j"))
    eventually(lambda: len(rows(database_url, "j")) >= so_far + 2)
    assert all(tick.second % 2 == 0 for tick, *_ in rows(database_url, "j")[so_far:])
    assert len(old.heard(ScheduleSuperseded)) == 1, "it is told once"
    (record,) = ask(database_url, "job_records", timedelta(minutes=1))
    assert record.schedule == "2s"
    assert len(record.disagreeing) == 1
    assert {record.levelname for record in caplog.records if "another schedule" in record.getMessage()} == {"WARNING"}
    assert sum("another schedule" in record.getMessage() for record in caplog.records) == 2


def test_a_superseded_node_still_takes_up_what_is_left_of_the_job(make_node: MakeNode, database_url: str) -> None:
    """C10.4: a run that failed is finished, whoever rules the schedule."""
    old, new = make_node("node-old"), make_node("node-new")
    old.job("j", nothing, SECONDS)
    old.start()
    new.job("j", nothing, RARE)
    new.start()
    eventually(lambda: old.heard(ScheduleSuperseded))
    new.stop()
    key = trigger(database_url, "j")
    done = f'SELECT "outcome" FROM {TABLE} WHERE "runKey" = \'{key}\''
    eventually(lambda: execute(database_url, done) == [("succeeded",)])


def test_a_code_that_nobody_registers_is_shown_as_orphaned_and_not_run(make_node: MakeNode, database_url: str) -> None:
    """C10.6: neither its missed ticks, nor what failed, nor what somebody asks for; its own node finishes them."""
    missed = known_before(database_url, "gone", 2)
    node = make_node("node-a")
    node.job("j", nothing, SECONDS)
    node.start()
    trigger(database_url, "gone")
    eventually(lambda: len(rows(database_url, "j")) >= 2)
    assert [how for _, how in outcomes(database_url, "gone")] == ["triggered"]
    records = {record.code: record for record in ask(database_url, "job_records", timedelta(minutes=1))}
    assert records["gone"].orphaned
    assert not records["j"].orphaned
    back = make_node("node-b")
    back.job("gone", nothing, catch_up="all")
    back.start()
    eventually(lambda: [how for _, how in outcomes(database_url, "gone")] == ["succeeded"] * 3)
    assert [tick for tick, _ in outcomes(database_url, "gone")][:2] == missed


def test_a_stopped_node_is_off_the_list_at_once(make_node: MakeNode, database_url: str) -> None:
    """C10.6: a node that ends in order leaves no trace of itself."""
    node = make_node("node-a")
    node.job("j", nothing)
    node.start()
    assert len(ask(database_url, "node_records")) == 1
    node.stop()
    assert ask(database_url, "node_records") == []
    assert not node.scheduler.healthy()


class TestInitial:
    """C8.2: one node seeds, the others do not serve before it is done."""

    def test_the_others_wait_before_they_serve(self, make_node: MakeNode, database_url: str) -> None:
        known_before(database_url, "j", 1)
        seeded, ran = threading.Event(), list[JobRun]()

        def seed(run: JobRun) -> Iterator[None]:
            ran.append(run)
            while not seeded.is_set():
                yield

        nodes = [make_node(label) for label in ("node-a", "node-b", "node-c")]
        for node in nodes:
            node.initial("seed", seed)
            node.job("j", lambda run: {"seeded": seeded.is_set()})
            node.begin()
        eventually(lambda: ran)
        eventually(lambda: execute(database_url, "SELECT count(*) > 3 FROM pg_stat_activity") == [(True,)])
        assert not any(node.is_started for node in nodes)
        assert rows(database_url, "j") == [], "nothing ticks before"
        seeded.set()
        eventually(lambda: all(node.is_started for node in nodes))
        eventually(lambda: [how for _, how in outcomes(database_url, "j")] == ["succeeded"])
        assert execute(database_url, f'SELECT "data" FROM {TABLE} WHERE "code" = \'j\'') == [({"seeded": True},)]
        (run,) = ran
        assert (run.scheduled_at, run.is_catch_up, run.attempt) == (None, False, 1)

    def test_it_runs_once_for_ever(self, make_node: MakeNode) -> None:
        ran = list[JobRun]()
        for label in ("node-a", "node-b"):
            node = make_node(label)
            node.initial("seed", ran.append)
            node.start()
            node.stop()
        assert len(ran) == 1

    def test_what_it_raises_comes_out_of_the_start_and_the_next_node_tries_again(self, make_node: MakeNode) -> None:
        ran = list[int]()

        def seed(run: JobRun) -> None:
            ran.append(run.attempt)
            if run.attempt == 1:
                raise ValueError("no catalogue")

        first, second = make_node("node-a"), make_node("node-b")
        for node in (first, second):
            node.initial("seed", seed)
        with pytest.raises(ValueError, match="no catalogue"):
            first.start()
        assert not first.scheduler.healthy()
        second.start()
        assert ran == [1, 2]

    def test_the_wait_has_an_end(self, make_node: MakeNode, database_url: str) -> None:
        seeding, late = make_node("node-a"), make_node("node-b", initial_wait=SECOND / 2)
        free = threading.Event()

        def seed(run: JobRun) -> Iterator[None]:
            while not free.is_set():
                yield

        for node in (seeding, late):
            node.initial("seed", seed)
        seeding.begin()
        eventually(lambda: rows(database_url, "seed"))
        with pytest.raises(WaitTimeoutError, match="node-a"):
            late.start()
        free.set()


def test_a_missing_table_is_told_at_the_start(make_node: MakeNode, database_url: str) -> None:
    """C9.4: what somebody must mend comes out of it, instead of a loop that never gets anywhere."""
    execute(database_url, 'DROP TABLE "job-scheduler_nodes"')
    node = make_node()
    node.job("j", nothing)
    with pytest.raises(JobDatabaseError, match="tenure schema"):
        node.start()
