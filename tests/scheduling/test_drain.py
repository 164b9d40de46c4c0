"""SIGTERM: claim nothing more, let callbacks end while renewing, release what is left; twice: at once (C10.8)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import LostJobLeaseError
from tenure.lease import LostReason
from tenure.scheduling import Every, JobRun, Retry
from tenure.scheduling.events import RunExhausted, RunStarted
from tests.support.rows import TABLE, execute
from tests.support.schedulers import RARE, SECOND, Kind, MakeNode, known_before, nodes_of, outcomes, rows
from tests.support.waiting import eventually

START = Callable[..., "Process"]


class Process:
    """A node in a process of its own, and the lines that it says."""

    def __init__(self, given: dict[str, Any]) -> None:
        command = [sys.executable, "-W", "error", "-m", "tests.scheduling.holding_node", json.dumps(given)]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def has_said(self, what: str) -> list[dict[str, Any]]:
        """Give the lines of one kind."""
        return [line for line in list(self.said) if line["what"] == what]

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal."""
        self.popen.send_signal(number)

    def end(self, limit_s: float = 20.0) -> int:
        """Wait for the end, and give the exit code."""
        code = self.popen.wait(limit_s)
        self._reader.join(5)
        return code

    def close(self) -> None:
        """End it, if it has not."""
        self.popen.kill()
        self.popen.wait(10)
        self._reader.join(5)
        assert self.popen.stdout is not None
        self.popen.stdout.close()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        self.said.extend(map(json.loads, self.popen.stdout))


@pytest.fixture
def free(tmp_path: Path) -> Path:
    """The file that lets runs end."""
    return tmp_path / "free"


@pytest.fixture
def start(database_url: str, kind: Kind, free: Path) -> Iterator[START]:
    """Start a node in a process; it is ended in the end."""
    started: list[Process] = []

    def start(**given: Any) -> Process:
        told = {"lease_s": 60, "drain_s": 20, "schedule": "rare", "label": "node-a", "kind": kind, **given}
        started.append(Process({"url": database_url, "free": str(free), **told}))
        return started[-1]

    yield start
    for process in started:
        process.close()


@contextmanager
def taking_less_than(limit_s: float) -> Iterator[None]:
    """Fail if it takes longer; the limits here are far from what either outcome takes."""
    began_s = time.monotonic()
    yield
    assert time.monotonic() - began_s < limit_s


def nothing(run: JobRun) -> None:
    """Do nothing."""


def test_a_callback_may_end_and_is_renewed_meanwhile(
    start: START, make_node: MakeNode, database_url: str, free: Path
) -> None:
    """C10.8, C5.2: for two leases after the signal; nobody else takes it up, and the process ends in order."""
    (tick,) = known_before(database_url, "j", 1)
    process = start(lease_s=0.9)
    eventually(lambda: process.has_said("began"))
    other = make_node("node-b")
    other.job("j", nothing)
    other.start()
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


def test_nothing_more_is_claimed(start: START, database_url: str, free: Path) -> None:
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
    start: START, make_node: MakeNode, database_url: str
) -> None:
    """C10.8: long before its lease would have run out, and without using up an attempt: there is only one here."""
    (tick,) = known_before(database_url, "j", 1)
    process = start(drain_s=0.3)
    eventually(lambda: process.has_said("began"))
    other = make_node("node-b")
    other.job("j", nothing, retry=Retry(max_attempts=1))
    other.start()
    with taking_less_than(30):
        process.signal()
        eventually(lambda: rows(database_url, "j") == [(tick, "SUCCESS", "succeeded", 2)], 30)
    assert process.end() == 0
    (began,) = other.heard(RunStarted)
    assert (began.scheduled_at, began.attempt) == (tick, 2)
    assert not other.heard(RunExhausted)
    assert not process.has_said("ended")


def test_a_second_signal_forces(start: START, make_node: MakeNode, database_url: str) -> None:
    """C10.8: the time of grace ends at once; the run is released, not left to expire."""
    (tick,) = known_before(database_url, "j", 1)
    process = start(drain_s=3_600)
    eventually(lambda: process.has_said("began"))
    process.signal()
    eventually(lambda: process.has_said("told to stop"))
    other = make_node("node-b")
    other.job("j", nothing, retry=Retry(max_attempts=1))
    other.start()
    assert process.popen.poll() is None
    with taking_less_than(30):
        process.signal()
        assert process.end(30) == 0
        eventually(lambda: rows(database_url, "j") == [(tick, "SUCCESS", "succeeded", 2)], 30)


def test_a_killed_nodes_run_waits_for_its_lease(start: START, make_node: MakeNode, database_url: str) -> None:
    """C10.4: a death is not a stop in order: it uses up an attempt, and nobody may be quicker than the lease."""
    (tick,) = known_before(database_url, "j", 1)
    process = start(lease_s=1.5)
    eventually(lambda: process.has_said("began"))
    other = make_node("node-b")
    other.job("j", nothing, retry=Retry(max_attempts=2))
    other.start()
    os.kill(process.popen.pid, signal.SIGKILL)
    process.end()
    assert outcomes(database_url, "j") == [(tick, "RUNNING")]
    ((renewed,),) = execute(database_url, f'SELECT "modifiedAt" FROM {TABLE}')
    eventually(lambda: rows(database_url, "j") == [(tick, "SUCCESS", "succeeded", 2)])
    assert execute(database_url, f"SELECT \"startedAt\" - %s >= interval '1.5 s' FROM {TABLE}", renewed) == [(True,)]


def test_a_thread_that_goes_on_after_its_release_is_told(database_url: str) -> None:
    """C10.8, C5.6: it sees `stopping`, then a lost lease; what it returns changes nothing any more."""
    (tick,) = known_before(database_url, "j", 1)
    seen: list[Any] = []
    ended = threading.Event()

    def work(run: JobRun) -> dict[str, str]:
        seen.append(run)
        while run.lost is None:
            time.sleep(0.005)
        try:
            run.check()
        except LostJobLeaseError as error:
            seen.extend([run.stopping, error.reason])
        ended.set()
        return {"by": "the released"}

    with nodes_of(database_url, "Scheduler") as make_node:
        node = make_node("node-a", drain=SECOND / 5)
        node.job("j", work, RARE, lease=60 * SECOND)
        node.start()
        eventually(lambda: seen)
    assert ended.wait(10)
    assert seen[1:] == [True, LostReason.RELEASED]
    assert rows(database_url, "j") == [(tick, "FAIL", "released", 1)]


def test_a_stop_with_nothing_to_do_is_quick(make_node: MakeNode) -> None:
    """C10.8: the time of grace is a limit, not a pause."""
    node = make_node("node-a", drain=3_600 * SECOND)
    node.job("j", nothing, Every(60 * SECOND))
    node.start()
    with taking_less_than(15):
        node.stop()
