"""A database that is away for ten leases, rows that are dropped, and a node that is stopped and woken (C10.4, C11)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from tenure.errors import LostJobLeaseError
from tenure.lease import LostReason
from tenure.scheduling import Every, JobRun
from tenure.scheduling.events import LoopTroubled, RunEnded, RunStarted
from tests.scheduling.fleet import problems, unfinished
from tests.scheduling.holding import StartProcess
from tests.scheduling.ticking_node import EFFECTS
from tests.support.proxy import FaultProxy
from tests.support.rows import TABLE, execute
from tests.support.schedulers import SECOND, Kind, MakeNode, known_before, nothing, outcomes, rows, standing_by, trigger
from tests.support.scheduling import JOBS
from tests.support.waiting import eventually

NODES = '"public"."job-scheduler_nodes"'
LEASE_S = 0.5
OUTAGE_S = 10 * LEASE_S
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@contextmanager
def ticking(url: str, name: str, log: Path, jobs: int = 3) -> Iterator[subprocess.Popen[bytes]]:
    """Start a node in a process of its own, which writes what it logs to a file; it is ended in order."""
    given = [f"--jobs={jobs}", f"--lease-s={LEASE_S}"]
    command = [sys.executable, "-m", "tests.scheduling.ticking_node", url, name, *given]
    with log.open("wb") as lines:
        process = subprocess.Popen(command, stderr=lines)
    try:
        yield process
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(10)


def cpu_s(pid: int) -> float:
    """Give the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def effects(url: str) -> int:
    return int(execute(url, "SELECT count(*) FROM effects")[0][0])


@pytest.mark.direct("a pooler would stand between the node and its outage")
@pytest.mark.parametrize("how", ["refused", "silent"])
def test_an_outage_of_ten_leases_is_waited_out(
    database_url: str, tmp_path: Path, how: Literal["refused", "silent"]
) -> None:
    """C11: less than 5 % of a core, at most one line in the log, and afterwards every tick has its run."""
    execute(database_url, EFFECTS)
    log = tmp_path / "log"
    with FaultProxy.in_front_of(database_url) as proxy, ticking(proxy.url(database_url), "node-a", log) as node:
        eventually(lambda: effects(database_url) >= 3, 30)
        if how == "refused":
            proxy.refuse_new(True)
            proxy.reset_all()
        else:
            proxy.black_hole()
        before_s, logged = cpu_s(node.pid), log.read_text()
        time.sleep(OUTAGE_S)  # the length of the outage is what is tested
        used_s, lines = cpu_s(node.pid) - before_s, log.read_text().removeprefix(logged).splitlines()
        so_far = effects(database_url)
        proxy.heal()
        eventually(lambda: effects(database_url) >= so_far + 3 * OUTAGE_S, 30)
        eventually(lambda: not unfinished(database_url))
    assert used_s < 0.05 * OUTAGE_S
    for who in (
        "The scheduler goes on",
        "Renewing ",
    ):  # besides those of runs that it cut off, which have several lines
        assert len([line for line in lines if line.startswith(who)]) <= 1
    assert not [line for line in lines if "error connecting" in line], "the pool's own tries"
    assert problems(database_url) == []


def test_a_node_is_unhealthy_while_it_hears_nothing(make_node: MakeNode, database_url: str) -> None:
    """C11: after 30 s, made by moving its note of when a loop has turned; and healthy again afterwards."""
    with FaultProxy.in_front_of(database_url) as proxy:
        node = make_node("node-a", url=proxy.url(database_url))
        node.job("j", nothing)
        assert not node.scheduler.healthy()
        node.start()
        assert node.scheduler.healthy()
        proxy.refuse_new(True)
        proxy.reset_all()
        eventually(lambda: node.heard(LoopTroubled))
        assert node.scheduler.healthy(), "not yet"
        node.scheduler._node._turned_boot_s -= 30
        assert not node.scheduler.healthy()
        proxy.heal()
        eventually(node.scheduler.healthy, 20)
        node.stop()
        assert not node.scheduler.healthy()


def test_a_node_that_starts_during_an_outage_waits_for_its_end(make_node: MakeNode, database_url: str) -> None:
    """C11: it starts, says what is wrong once, registers when it can, and ticks."""
    with FaultProxy.in_front_of(database_url) as proxy:
        proxy.refuse_new(True)
        node = make_node("node-a", url=proxy.url(database_url))
        node.job("j", nothing, Every(SECOND))
        node.start()
        eventually(lambda: len(node.heard(LoopTroubled)) >= 2)
        proxy.heal()
        eventually(lambda: rows(database_url, "j"), 20)
        node.stop()


def test_jobs_and_nodes_whose_rows_are_dropped_are_made_known_again(make_node: MakeNode, database_url: str) -> None:
    """C10.5: by whoever runs them; no tick runs twice for it, and none of the past."""
    nodes = [make_node(label) for label in ("node-a", "node-b")]
    for node in nodes:
        node.job("j", nothing, Every(SECOND), catch_up="all")
        node.start()
    eventually(lambda: len(rows(database_url, "j")) >= 2)
    execute(database_url, f"TRUNCATE {JOBS}, {NODES}")
    so_far = len(rows(database_url, "j"))
    eventually(lambda: len(rows(database_url, "j")) >= so_far + 3)
    told = rows(database_url, "j")
    assert {(outcome, attempt) for _, _, outcome, attempt in told} <= {("succeeded", 1), (None, 1)}
    assert sum(len(node.heard(RunStarted)) for node in nodes) == len(told)
    assert execute(database_url, f"SELECT count(*) FROM {NODES}") == [(2,)]


def test_a_run_whose_row_is_dropped_harms_nobody_else(make_node: MakeNode, database_url: str) -> None:
    """C5.5: its callback is told; the next tick runs."""
    first, second = known_before(database_url, "j", 2)
    seen: list[JobRun] = []

    def work(run: JobRun) -> Iterator[None]:
        seen.append(run)
        while run.scheduled_at == first:
            yield

    node = make_node()
    node.job("j", work, catch_up="all", overlap="skip", lease=SECOND)
    node.start()
    eventually(lambda: seen)
    execute(database_url, f"DELETE FROM {TABLE}")
    eventually(lambda: outcomes(database_url, "j") == [(second, "succeeded")])
    ended = eventually(lambda: [event for event in node.heard(RunEnded) if event.scheduled_at == first])
    assert isinstance(ended[0].error, LostJobLeaseError)
    assert ended[0].error.reason is LostReason.ROW_GONE


def test_a_node_that_was_stopped_past_its_lease_goes_on_when_it_wakes(
    start: StartProcess, make_node: MakeNode, kind: Kind, database_url: str, free: Path
) -> None:
    """C5.5, C10.4: as a suspended host: its run was taken over meanwhile; it is told, settles nothing, and works on."""
    (tick,) = known_before(database_url, "j", 1)
    process = start(lease_s=0.9)
    eventually(lambda: process.has_said("began"))
    other = standing_by(make_node)
    os.kill(process.popen.pid, signal.SIGSTOP)
    done = [(tick, "SUCCESS", "succeeded", 2)]
    eventually(lambda: rows(database_url, "j") == done)
    os.kill(process.popen.pid, signal.SIGCONT)
    if kind == "AsyncScheduler":
        eventually(lambda: process.has_said("cancelled"))
    free.touch()
    if kind == "Scheduler":
        eventually(lambda: process.has_said("ended"))
    other.stop()
    trigger(database_url, "j")
    eventually(lambda: len(process.has_said("began")) == 2)
    eventually(lambda: [how for _, how in outcomes(database_url, "j")] == ["succeeded"] * 2)
    assert rows(database_url, "j")[:1] == done


def test_ticks_go_on_while_one_of_two_nodes_is_stopped(database_url: str, tmp_path: Path) -> None:
    """C10.4, C7.2: every tick has its effect once, whatever the stopped one had in hand, and it joins in again."""
    execute(database_url, EFFECTS)
    with ticking(database_url, "node-a", tmp_path / "a") as stopped, ticking(database_url, "node-b", tmp_path / "b"):
        eventually(lambda: execute(database_url, "SELECT count(DISTINCT node) FROM effects") == [(2,)], 30)
        stopped.send_signal(signal.SIGSTOP)
        so_far = effects(database_url)
        eventually(lambda: effects(database_url) >= so_far + 3 * 3)
        stopped.send_signal(signal.SIGCONT)
        ((woken,),) = execute(database_url, "SELECT clock_timestamp()")
        later = "SELECT count(*) > 0 FROM effects WHERE node = 'node-a' AND tick > %s"
        eventually(lambda: execute(database_url, later, woken) == [(True,)], 20)
        eventually(lambda: not unfinished(database_url))
    assert problems(database_url) == []
