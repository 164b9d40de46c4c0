"""What operators see at a glance, beside a long history of 200 jobs: time, and statements on the wire."""

from __future__ import annotations

import time
from statistics import median, quantiles
from urllib.parse import urlsplit

from tests.support.many_runs import fill, keep_alive

from bench.measure import Line
from bench.round_trips import Relay
from bench.scene import Scene
from tenure import JobSchedulerService
from tenure.clock import boot_s
from tenure.operating import OperatingStatements, Overview, operations

JOBS = 200
DATABASE = "overview"
REACH_MS = 200.0
MOST_QUERIES = 5
_WARM = 3


def run(scene: Scene) -> list[Line]:
    """Fill a database of its own, and look on, as a page or a terminal does that is open."""
    runs = scene.effort.history
    scene.onlooker.execute(f"CREATE DATABASE {DATABASE}".encode())
    url = scene.server.url(DATABASE)
    with JobSchedulerService(url) as service:
        service.migrate()
        fill(url, runs=runs, jobs=JOBS)
        keep_alive(url)
        statements = OperatingStatements(service.table)
        for _ in range(_WARM):
            _look(service, statements)
        taken_ms = [_taken_ms(service, statements) for _ in range(scene.effort.looks)]
    slowest_ms, queries = quantiles(taken_ms, n=20)[-1], _round_trips(url)
    return [
        Line(
            f"overview of {JOBS} jobs, {runs:,} runs",
            f"{slowest_ms:.0f} ms p95",
            f"median {median(taken_ms):.0f} ms, {queries} round trip{'' if queries == 1 else 's'}",
            None,
            f"≤ {REACH_MS:.0f} ms p95, ≤ {MOST_QUERIES} queries",
            slowest_ms <= REACH_MS and queries <= MOST_QUERIES,
            details={"p95_ms": slowest_ms, "median_ms": median(taken_ms), "queries": queries, "runs": runs},
        )
    ]


def _look(service: JobSchedulerService, statements: OperatingStatements) -> Overview:
    seen = service.perform(operations.overview(statements, now_boot_s=boot_s()))
    assert len(seen.jobs) == JOBS, "each job is shown"
    return seen


def _taken_ms(service: JobSchedulerService, statements: OperatingStatements) -> float:
    began_s = time.perf_counter()
    _look(service, statements)
    return (time.perf_counter() - began_s) * 1e3


def _round_trips(url: str) -> int:
    """Count the round trips of one look, over a connection that is open."""
    with Relay(urlsplit(url).port or 0) as relay, JobSchedulerService(relay.through(url)) as service:
        statements = OperatingStatements(service.table)
        for _ in range(_WARM):
            _look(service, statements)
        before = relay.round_trips
        _look(service, statements)
        return relay.round_trips - before
