"""Run it: ``python -m tests.chaos`` for five minutes, ``--quick`` for less than 40 seconds.

Prints the seed, the faults and the verdict. Exit code 0 if nothing is wrong, 1 otherwise.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tenure import JobSchedulerService
from tests.chaos import tables
from tests.chaos.crew import Crew
from tests.chaos.director import Director
from tests.chaos.plan import LEASE_MS, Plan, run_key
from tests.chaos.verdict import Evidence, Verdict, judge, takeovers
from tests.support.servers import create_database, error_lines, start_test_server


def main(arguments: Sequence[str] | None = None) -> int:
    """Play one run and judge it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Race nodes under faults.")
    parser.add_argument("--quick", action="store_true", help="less than 40 seconds")
    parser.add_argument("--seed", type=int, help="draw the same faults again")
    given = parser.parse_args(arguments)
    seed = random.randrange(10**6) if given.seed is None else given.seed
    plan = Plan.quick(seed) if given.quick else Plan.full(seed)
    began_s = time.monotonic()
    print(f"seed {seed}: {plan.nodes} nodes, {plan.ticks} ticks, leases of {LEASE_MS} ms", flush=True)
    evidence, problems = play(plan)
    found = judge(evidence)
    verdict = Verdict(found.passed, [*found.problems, *problems])
    for problem in verdict.problems:
        print(f"FAILED: {problem}")
    print(f"{verdict} in {time.monotonic() - began_s:.0f} s (seed {seed})")
    return 0 if verdict.ok else 1


def play(plan: Plan) -> tuple[Evidence, list[str]]:
    """Play a run on a server of its own; give what stands in the database, and which nodes fell over."""
    with start_test_server() as server:
        url = create_database(server, "chaos")
        with JobSchedulerService(url) as service:
            service.migrate()
        tables.create(url)
        with Crew(url, plan) as crew:
            director = Director(server, url, crew, plan)
            director.run()
        evidence = Evidence(
            run_keys=[run_key(tick) for tick in range(plan.ticks)],
            runs=tables.runs(url),
            changes=tables.changes(url),
            effects=tables.effects(url),
            log_lines=error_lines(server),
            faults=director.counts,
        )
        _tell(evidence, tables.refusals(url))
        return evidence, director.problems


def _tell(evidence: Evidence, refused: int) -> None:
    made = ", ".join(f"{kind} {times}" for kind, times in evidence.faults.items())
    print(f"faults: {made}")
    ended = sum(change.status == "FAIL" for change in evidence.changes)
    print(
        f"{len(evidence.runs)} runs, {len(evidence.effects)} effects accepted, {refused} refused by the fence, "
        f"{takeovers(evidence.changes)} leases taken over, {ended} failed attempts"
    )


if __name__ == "__main__":
    sys.exit(main())
