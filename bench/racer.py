"""Be one contender of a race: ask for every tick in turn, complete those that are won, say how many and how long."""

from __future__ import annotations

import os
import sys
import time

from tenure import JobAcquireOptions, JobSchedulerService


def main(code: str, ticks: int) -> None:
    """Wait for a line at the start, run, and print the wins and the seconds."""
    with JobSchedulerService(os.environ["TENURE_DATABASE_URL"]) as service:
        runs = [JobAcquireOptions(code=code, run_key=f"tick {number}") for number in range(ticks)]
        service.find_run("v2:nothing")  # opens the connection
        print("ready", flush=True)
        sys.stdin.readline()
        began_s = time.perf_counter()
        wins = sum(_ask(service, options) for options in runs)
        print(wins, time.perf_counter() - began_s, flush=True)


def _ask(service: JobSchedulerService, options: JobAcquireOptions) -> bool:
    answer = service.acquire(options)
    return answer.acquired is True and service.complete(answer)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
