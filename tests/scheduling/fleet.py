"""A fleet of ticking nodes under faults, and what its tables say afterwards; `python -m` plays it for long."""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tenure import JobSchedulerService
from tenure.embedded import EmbeddedPostgres
from tests.scheduling.ticking_node import EFFECTS
from tests.support.rows import execute
from tests.support.servers import create_database, start_test_server
from tests.support.waiting import eventually

NODES = 3


@dataclass
class Fleet:
    """Keep that many nodes alive, except when one is ended on purpose."""

    url: str
    jobs: int
    work_s: float = 0.0
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    born: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def start_node(self) -> None:
        """Start one more node, under a name of its own."""
        self.born += 1
        name = f"node-{self.born}"
        given = [f"--jobs={self.jobs}", f"--work-s={self.work_s}"]
        command = [sys.executable, "-m", "tests.scheduling.ticking_node", self.url, name, *given]
        self.nodes[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def end_node(self, name: str, number: signal.Signals) -> None:
        """End a node, at once or in order, and start another one."""
        process = self.nodes.pop(name)
        process.send_signal(number)
        process.wait(30)
        self.faults[number.name] += 1
        self.start_node()

    def end(self) -> None:
        """End all nodes in order."""
        for process in self.nodes.values():
            process.terminate()
        for process in self.nodes.values():
            process.wait(30)


@contextmanager
def fleet_on(url: str, *, jobs: int, work_s: float = 0.0) -> Iterator[Fleet]:
    """Start a fleet on a fresh database, wait for its first effect, and for its last run in the end; then end it."""
    with JobSchedulerService(url) as service:
        service.migrate()
    execute(url, EFFECTS)
    fleet = Fleet(url, jobs, work_s)
    for _ in range(NODES):
        fleet.start_node()
    try:
        eventually(lambda: execute(url, "SELECT count(*) FROM effects")[0][0] > 0, 60)
        yield fleet
        eventually(lambda: not unfinished(url), 60)
    finally:
        fleet.end()


def play(fleet: Fleet, server: EmbeddedPostgres, *, seconds: float, fault_every_s: float, restarts: int) -> None:
    """Kill nodes, or end them in order, for a while, and restart the server that many times."""
    dice = random.Random()
    ends_s = time.monotonic() + seconds
    restarts_at = [time.monotonic() + seconds * (n + 1) / (restarts + 1) for n in range(restarts)]
    while (now_s := time.monotonic()) < ends_s:
        if restarts_at and now_s >= restarts_at[0]:
            restarts_at.pop(0)
            server.restart("immediate")
            fleet.faults["server restarted"] += 1
        time.sleep(min(fault_every_s * dice.uniform(0.5, 1.5), max(ends_s - time.monotonic(), 0)))
        fleet.end_node(dice.choice(list(fleet.nodes)), dice.choice([signal.SIGKILL, signal.SIGTERM]))


def roll(fleet: Fleet, *, restarts: int) -> None:
    """Restart the oldest node that many times, in order, each time close to a tick."""
    dice = random.Random()
    for _ in range(restarts):
        time.sleep((dice.uniform(0.7, 1.3) - time.time()) % 1)
        fleet.end_node(next(iter(fleet.nodes)), signal.SIGTERM)


def unfinished(url: str) -> list[tuple[Any, ...]]:
    """Give the runs that are not done."""
    return execute(
        url, 'SELECT "code", "runKey", "status", "outcome" FROM "job-scheduler" WHERE "status" <> \'SUCCESS\''
    )


def problems(url: str) -> list[str]:
    """Say what is wrong: ticks without a row, effects that are doubled, lost, or of no success."""
    found: list[str] = []
    gaps = execute(
        url,
        'SELECT j."code", t FROM (SELECT "code", min("scheduledAt") AS first FROM "job-scheduler" GROUP BY 1) AS f '
        'JOIN "job-scheduler_jobs" AS j USING ("code") '
        "CROSS JOIN LATERAL generate_series(f.first, j.\"watermark\", interval '1 second') AS t "
        'WHERE NOT EXISTS (SELECT FROM "job-scheduler" AS r WHERE r."code" = j."code" AND r."scheduledAt" = t)',
    )
    found += [f"{code} has no row for {tick}" for code, tick in gaps]
    doubled = execute(url, "SELECT code, tick, count(*) FROM effects GROUP BY 1, 2 HAVING count(*) > 1")
    found += [f"{code} at {tick} had its effect {times} times" for code, tick, times in doubled]
    unlike = execute(
        url,
        'SELECT r."code", r."scheduledAt", r."outcome", e.code IS NOT NULL FROM "job-scheduler" AS r '
        'LEFT JOIN effects AS e ON e.code = r."code" AND e.tick = r."scheduledAt" '
        "WHERE (e.code IS NOT NULL) <> "
        "(r.\"status\" = 'SUCCESS' AND COALESCE(r.\"outcome\", 'succeeded') = 'succeeded')",
    )
    found += [
        f"{code} at {tick} ended {outcome!r}, and its effect is there: {there}" for code, tick, outcome, there in unlike
    ]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Play for ten minutes, or as long as is said, or roll; and judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.scheduling.fleet")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long nodes are killed and servers restarted")
    parser.add_argument("--rolling", type=int, metavar="N", help="restart nodes in order N times around a tick instead")
    given = parser.parse_args(arguments)
    began_s = time.monotonic()
    with start_test_server() as server:
        url = create_database(server, "fleet")
        if given.rolling:
            with fleet_on(url, jobs=3, work_s=0.5) as fleet:
                roll(fleet, restarts=given.rolling)
        else:
            with fleet_on(url, jobs=10) as fleet:
                play(fleet, server, seconds=given.seconds, fault_every_s=5.0, restarts=2)
        wrong = problems(url)
        counts = execute(
            url, 'SELECT COALESCE("outcome", \'succeeded\'), count(*), max("attempt") FROM "job-scheduler" GROUP BY 1'
        )
    for problem in wrong:
        print(f"FAILED: {problem}")
    told = ", ".join(f"{count} {outcome} (at most {attempts} attempts)" for outcome, count, attempts in counts)
    print(f"{told}; faults: {dict(fleet.faults)}; {len(wrong)} problems; {time.monotonic() - began_s:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
