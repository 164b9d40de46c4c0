"""SIGTERM: claim nothing more, let callbacks end while renewing, release what is left; twice: at once (C10.8)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tenure.lease import LostReason
from tenure.scheduling import Every, JobRun, Retry
from tenure.scheduling.events import RunExhausted, RunStarted
from tests.scheduling.holding import StartProcess
from tests.support.rows import TABLE, execute
from tests.support.schedulers import (
    RARE,
    SECOND,
    MakeNode,
    known_before,
    nodes_of,
    nothing,
    outcomes,
    rows,
    standing_by,
)
from tests.support.waiting import eventually


@contextmanager
def taking_less_than(limit_s: float) -> Iterator[None]:
    """Fail if it takes longer; the limits here are far from what either outcome takes."""
    began_s = time.monotonic()
    yield
    assert time.monotonic() - began_s < limit_s


def test_a_callback_may_end_and_is_renewed_meanwhile(
    start: StartProcess, make_node: MakeNode, database_url: str, free: Path
) -> None:
    """C10.8, C5.2: for two leases after the signal; nobody else takes it up, and the process ends in order."""
    (tick,) = known_before(database_url, "j", 1)
    process = start(lease_s=0.9)
    eventually(lambda: process.has_said("began"))
    other = standing_by(make_node)
    process.signal()
    renewed = execute(database_url, f'SELECT "modifiedAt" FROM {TABLE}')[0]
    later = f"SELECT \"modifiedAt\" - %s > interval '1.8 s' FROM {TABLE}"
    eventually(lambda: execute(database_url, later, *renewed) == [(True,)])
    assert outcomes(database_url, "j") == [(tick, "RUNNING")]
    free.touch()
    assert process.end() == 0
    assert [line["what"] for line in process.said] == ["began", "told to stop", "ended", "left"]
    assert rows(database_url, "j") == [(tick, "SUCCESS", "succeeded", 1)]
    assert not other.heard(RunStarted)


def test_nothing_more_is_claimed(start: StartProcess, database_url: str, free: Path) -> None:
    """C10.8: from the signal on, while what runs goes on."""
    process = start(schedule="second")
    eventually(lambda: process.has_said("began"))
    process.signal(signal.SIGINT)
    # claims that were under way end; the next ticks are nobody's
    eventually(lambda: execute(database_url, SILENT) == [(True,)])
    free.touch()
    assert process.end() == 0
    assert len(process.has_said("began")) == len(process.has_said("told to stop")) == len(process.has_said("ended"))
    assert {how for _, how in outcomes(database_url, "j")} <= {"succeeded", "released"}


SILENT = f"SELECT max(\"scheduledAt\") < clock_timestamp() - interval '2 s' FROM {TABLE}"


def test_what_is_left_is_released_and_the_same_tick_is_retried_elsewhere(
    start: StartProcess, make_node: MakeNode, database_url: str
) -> None:
    """C10.8: long before its lease would have run out, and without using up an attempt: there is only one here."""
    (tick,) = known_before(database_url, "j", 1)
    process = start(drain_s=0.3)
    eventually(lambda: process.has_said("began"))
    other = standing_by(make_node, retry=Retry(max_attempts=1))
    with taking_less_than(30):
        process.signal()
        eventually(lambda: rows(database_url, "j") == [(tick, "SUCCESS", "succeeded", 2)], 30)
    assert process.end() == 0
    (began,) = other.heard(RunStarted)
    assert (began.scheduled_at, began.attempt) == (tick, 2)
    assert not other.heard(RunExhausted)
    assert not process.has_said("ended")


def test_a_second_signal_forces(start: StartProcess, make_node: MakeNode, database_url: str) -> None:
    """C10.8: the time of grace ends at once; the run is released, not left to expire."""
    (tick,) = known_before(database_url, "j", 1)
    process = start(drain_s=3_600)
    eventually(lambda: process.has_said("began"))
    process.signal()
    eventually(lambda: process.has_said("told to stop"))
    standing_by(make_node, retry=Retry(max_attempts=1))
    assert process.popen.poll() is None
    with taking_less_than(30):
        process.signal()
        assert process.end(30) == 0
        eventually(lambda: rows(database_url, "j") == [(tick, "SUCCESS", "succeeded", 2)], 30)


def test_a_killed_nodes_run_waits_for_its_lease(start: StartProcess, make_node: MakeNode, database_url: str) -> None:
    """C10.4: a death is not a stop in order: it uses up an attempt, and nobody may be quicker than the lease."""
    (tick,) = known_before(database_url, "j", 1)
    process = start(lease_s=1.5)
    eventually(lambda: process.has_said("began"))
    standing_by(make_node, retry=Retry(max_attempts=2))
    os.kill(process.popen.pid, signal.SIGKILL)
    process.end()
    assert outcomes(database_url, "j") == [(tick, "RUNNING")]
    ((renewed,),) = execute(database_url, f'SELECT "modifiedAt" FROM {TABLE}')
    eventually(lambda: rows(database_url, "j") == [(tick, "SUCCESS", "succeeded", 2)])
    assert execute(database_url, f"SELECT \"startedAt\" - %s >= interval '1.5 s' FROM {TABLE}", renewed) == [(True,)]


@pytest.mark.parametrize("answers", ["returns", "raises"])
def test_a_thread_that_goes_on_after_its_release_is_told(database_url: str, answers: str) -> None:
    """C10.8, C5.6: it sees `stopping`, then a lost lease; however it ends then, its tick is to be retried elsewhere."""
    (tick,) = known_before(database_url, "j", 1)
    seen: list[Any] = []
    ended = threading.Event()

    def work(run: JobRun) -> dict[str, str]:
        seen.append(run)
        while run.lost is None:
            pass
        seen.extend([run.stopping, run.lost])
        ended.set()
        if answers == "raises":
            run.check()
        return {"by": "the released"}

    with nodes_of(database_url, "Scheduler") as make_node:
        node = make_node("node-a", drain=SECOND / 5)
        node.job("j", work, RARE, lease=60 * SECOND, retry=Retry(max_attempts=1))
        node.start()
        eventually(lambda: seen)
    assert ended.wait(10)
    assert seen[1:] == [True, LostReason.RELEASED]
    assert rows(database_url, "j") == [(tick, "FAIL", "released", 1)]
    assert not node.heard(RunExhausted)


def test_a_stop_with_nothing_to_do_is_quick(make_node: MakeNode) -> None:
    """C10.8: the time of grace is a limit, not a pause."""
    node = make_node("node-a", drain=3_600 * SECOND)
    node.job("j", nothing, Every(60 * SECOND))
    node.start()
    with taking_less_than(15):
        node.stop()
