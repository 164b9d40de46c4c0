"""A fleet of ticking nodes under faults, and what its tables say afterwards; `python -m` plays it for long."""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
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
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    born: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def start_node(self) -> None:
        """Start one more node, under a name of its own."""
        self.born += 1
        name = f"node-{self.born}"
        command = [sys.executable, "-m", "tests.scheduling.ticking_node", self.url, name, str(self.jobs)]
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


def play(
    server: EmbeddedPostgres, url: str, *, jobs: int, seconds: float, fault_every_s: float, restarts: int
) -> Fleet:
    """Let the nodes tick under faults for a while, then without, until nothing is left unfinished."""
    with JobSchedulerService(url) as service:
        service.migrate()
    execute(url, EFFECTS)
    fleet, dice = Fleet(url, jobs), random.Random()
    for _ in range(NODES):
        fleet.start_node()
    try:
        eventually(lambda: execute(url, "SELECT count(*) FROM effects")[0][0] > 0, 60)
        ends_s = time.monotonic() + seconds
        restarts_at = [time.monotonic() + seconds * (n + 1) / (restarts + 1) for n in range(restarts)]
        while (now_s := time.monotonic()) < ends_s:
            if restarts_at and now_s >= restarts_at[0]:
                restarts_at.pop(0)
                server.restart("immediate")
                fleet.faults["server restarted"] += 1
            time.sleep(min(fault_every_s * dice.uniform(0.5, 1.5), max(ends_s - time.monotonic(), 0)))
            fleet.end_node(dice.choice(list(fleet.nodes)), dice.choice([signal.SIGKILL, signal.SIGTERM]))
        eventually(lambda: not unfinished(url), 60)
    finally:
        fleet.end()
    return fleet


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
    """Play for ten minutes, or as long as is said, and judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.scheduling.fleet")
    parser.add_argument("--seconds", type=float, default=600.0)
    given = parser.parse_args(arguments)
    with start_test_server() as server:
        url = create_database(server, "fleet")
        fleet = play(server, url, jobs=10, seconds=given.seconds, fault_every_s=5.0, restarts=2)
        wrong = problems(url)
        counts = execute(
            url, 'SELECT COALESCE("outcome", \'succeeded\'), count(*), max("attempt") FROM "job-scheduler" GROUP BY 1'
        )
    for problem in wrong:
        print(f"FAILED: {problem}")
    told = ", ".join(f"{count} {outcome} (at most {attempts} attempts)" for outcome, count, attempts in counts)
    print(f"{told}; faults: {dict(fleet.faults)}; {len(wrong)} problems; {timedelta(seconds=given.seconds)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
