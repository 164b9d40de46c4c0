"""Measure how long pages take with a long history behind them: `python -m tests.browser.measure`."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

from tenure import JobSchedulerService
from tests.browser.serving import ask, dashboard
from tests.support.many_runs import code_of, fill
from tests.support.servers import create_database, start_test_server


def measured_ms(address: str, page: str, times: int) -> list[float]:
    """Load a page so often, one load after the other, and give how long each took."""
    took: list[float] = []
    for _ in range(times):
        began_s = time.perf_counter()
        assert ask(address, page).status == 200
        took.append((time.perf_counter() - began_s) * 1000)
    return sorted(took)


def main(arguments: Sequence[str]) -> None:
    """Fill a database, serve the page and print a line for each kind of page."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.measure", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--times", type=int, default=100)
    chosen = parser.parse_args(arguments)
    with start_test_server() as server:
        url = create_database(server, "measured")
        with JobSchedulerService(url) as service:
            service.migrate()
        fill(url, runs=chosen.runs, jobs=chosen.jobs)
        with dashboard(url) as address:
            for page in ("/", f"/job?code={code_of(1)}", "/nodes"):
                measured_ms(address, page, 5)
                took = measured_ms(address, page, chosen.times)
                p95 = took[int(len(took) * 0.95)]
                print(
                    f"{page:24} median {statistics.median(took):4.0f} ms, p95 {p95:4.0f} ms, worst {took[-1]:4.0f} ms"
                )


if __name__ == "__main__":
    main(sys.argv[1:])
