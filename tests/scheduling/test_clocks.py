"""Nodes whose clocks are minutes and days off: what is due is decided by the database's clock (C10.2)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from tests.scheduling.fleet import problems, unfinished
from tests.scheduling.ticking_node import EFFECTS
from tests.support.rows import execute
from tests.support.waiting import eventually
from tests.support.wrong_clocks import clock_off_by, needs_wrong_clocks

OFFSETS = {"a-day-ago": "-1d", "behind": "-90s", "ahead": "+90s", "tomorrow": "+1d"}
JOBS = 3
TICKS = 8


@contextmanager
def ticking(url: str) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start one node for each offset, in a process whose wall clock is off by that much; they are ended in order."""
    nodes = {
        name: subprocess.Popen(
            [sys.executable, "-m", "tests.scheduling.ticking_node", url, name, f"--jobs={JOBS}"],
            env={**os.environ, **clock_off_by(offset)},
            stderr=subprocess.PIPE,
        )
        for name, offset in OFFSETS.items()
    }
    try:
        yield nodes
    finally:
        for node in nodes.values():
            node.terminate()
        for node in nodes.values():
            with suppress(subprocess.TimeoutExpired):
                node.wait(20)
            node.kill()


@needs_wrong_clocks
def test_clocks_that_are_off_by_days_change_nothing(database_url: str) -> None:
    """C10.2: one run a tick, at its time by the database, whoever runs it; and each node says how far it is off."""
    execute(database_url, EFFECTS)
    with ticking(database_url) as nodes:
        seen = "SELECT count(DISTINCT tick) FROM effects WHERE node = %s"
        for name in OFFSETS:
            eventually(lambda name=name: execute(database_url, seen, name)[0][0] >= 2, 60)  # type: ignore[misc] # bound
        ((began,),) = execute(database_url, "SELECT max(tick) FROM effects")
        enough = "SELECT count(DISTINCT tick) FROM effects WHERE tick > %s"
        eventually(lambda: execute(database_url, enough, began)[0][0] >= TICKS, 60)
        offsets = dict(execute(database_url, 'SELECT "label", "clockOffsetMs" FROM "job-scheduler_nodes"'))
        for node in nodes.values():
            node.terminate()
        said = {name: node.communicate(timeout=30)[1].decode() for name, node in nodes.items()}
        assert [node.returncode for node in nodes.values()] == [0] * len(OFFSETS)
    eventually(lambda: not unfinished(database_url))
    assert problems(database_url) == []
    wrong = execute(
        database_url,
        "SELECT code, tick, at, node FROM effects "
        "WHERE tick <> date_trunc('second', tick) OR at < tick - interval '250 ms' OR at > tick + interval '30 s'",
    )
    assert wrong == []
    expected = {"a-day-ago": -86_400, "behind": -90, "ahead": 90, "tomorrow": 86_400}
    assert offsets.keys() == expected.keys()
    for name, seconds in expected.items():
        assert abs(timedelta(milliseconds=offsets[name]) - timedelta(seconds=seconds)) < timedelta(seconds=5)
        assert f"{seconds:+}." in said[name], said[name]
