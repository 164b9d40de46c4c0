"""A tick whose job still runs, on whatever node: beside it, not at all, or after it (C10.5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tenure.scheduling import Every, JobRun
from tenure.scheduling.events import TickNotRun
from tenure.scheduling.values import Verdict
from tests.support.schedulers import RARE, SECOND, MakeNode, Node, known_before, outcomes, trigger
from tests.support.waiting import eventually


class Runs:
    """Hold every run until the test lets it go, and note which were under way at once."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.begun: list[Any] = []
        self.ended: list[Any] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def __call__(self, run: JobRun) -> Iterator[None]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.begun.append(run.scheduled_at)
        try:
            while not self.free.is_set():
                yield
        finally:
            with self._lock:
                self._now -= 1
                self.ended.append(run.scheduled_at)


def test_a_tick_runs_beside_another_or_not_at_all_or_after_it(make_node: MakeNode, database_url: str) -> None:
    """C10.5: right across nodes. Of `queue` one waits and runs at the end of the other; further ones do not run."""
    held: dict[str, Runs] = {overlap: Runs() for overlap in ("allow", "skip", "queue")}
    nodes = [make_node(label) for label in ("node-a", "node-b")]
    for node in nodes:
        for overlap, runs in held.items():
            node.job(overlap, runs, Every(SECOND), overlap=overlap)
        node.start()
    eventually(lambda: all(len(overlapped(database_url, code)) >= 2 for code in ("skip", "queue")))
    (queued,) = [tick for tick, how in outcomes(database_url, "queue") if how == "queued"]
    assert queued - held["queue"].begun[0] == SECOND, "the first tick after it waits"
    assert held["allow"].most >= 3
    for runs in held.values():
        runs.free.set()
    eventually(lambda: all(len(runs.ended) >= 3 for runs in held.values()))
    assert held["queue"].begun[1] == queued, "who waits goes first"
    assert held["skip"].most == held["queue"].most == 1
    for code, runs in held.items():
        _check_rows_and_events(database_url, nodes, code, runs)


def overlapped(url: str, code: str) -> list[Any]:
    return [tick for tick, how in outcomes(url, code) if how == "overlapped"]


def _check_rows_and_events(url: str, nodes: list[Node], code: str, runs: Runs) -> None:
    """Every tick has a row, no tick that was refused has run, and one node tells of each."""
    ticks = [tick for tick, _ in outcomes(url, code)]
    assert all(later - earlier == SECOND for earlier, later in pairwise(ticks))
    refused = overlapped(url, code)
    assert not set(refused) & set(runs.begun)
    told = [event for node in nodes for event in node.heard(TickNotRun, code)]
    assert set(refused) <= {event.scheduled_at for event in told}
    assert len(told) == len({event.scheduled_at for event in told})
    allowed = {"allow": set(), "skip": {Verdict.OVERLAPPED}, "queue": {Verdict.OVERLAPPED, Verdict.QUEUED}}
    assert {event.verdict for event in told} == allowed[code]


def test_ticks_that_are_caught_up_wait_for_each_other(make_node: MakeNode, database_url: str) -> None:
    """C10.5: a tick that is caught up has time: it runs after the one before, instead of being dropped for it."""
    missed = known_before(database_url, "j", 4)
    runs = Runs()
    nodes = [make_node(label) for label in ("node-a", "node-b")]
    for node in nodes:
        node.job("j", runs, catch_up="all", overlap="skip")
        node.start()
    eventually(lambda: runs.begun == missed[:1])
    runs.free.set()
    eventually(lambda: outcomes(database_url, "j") == [(tick, "succeeded") for tick in missed])
    assert (runs.most, runs.begun) == (1, missed)


def test_a_run_by_hand_does_not_overlap_either(make_node: MakeNode, database_url: str) -> None:
    """C10.5: it waits for the run that is under way, whatever the job does with ticks."""
    (tick,) = known_before(database_url, "j", 1)
    runs = Runs()
    nodes = [make_node(label) for label in ("node-a", "node-b")]
    for node in nodes:
        node.job("j", runs, RARE, overlap="skip")
        node.start()
    eventually(lambda: runs.begun == [tick])
    trigger(database_url, "j")
    trigger(database_url, "j")
    eventually(lambda: [how for _, how in outcomes(database_url, "j")] == ["RUNNING", "triggered", "triggered"])
    runs.free.set()
    eventually(lambda: [how for _, how in outcomes(database_url, "j")] == ["succeeded"] * 3)
    assert runs.most == 1
