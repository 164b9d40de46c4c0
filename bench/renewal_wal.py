"""What a renewal costs with PostgreSQL's default settings: WAL, heap-only share, statements a round (C5.2, C5.4).

Run it with ``python -m bench.renewal_wal``. It starts a durable server of its own, holds leases through the public
API, and lets the keeper renew them. The WAL is what PostgreSQL itself books on the statement: once after a checkpoint
has settled, and once over the rounds right after a checkpoint, when each page goes into the WAL whole.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg

from tenure import AsyncJobSchedulerService, JobAcquireOptions
from tenure.embedded import EmbeddedPostgres

TABLE = '"public"."job-scheduler"'
HEARTBEAT_MS = 400
SETTLING_ROUNDS = 5
PATIENCE_S = 120.0
SETTINGS = {"shared_preload_libraries": "pg_stat_statements"}
BOOKED = (
    "SELECT coalesce(sum(calls), 0), coalesce(sum(wal_bytes), 0) FROM pg_stat_statements AS s "
    "JOIN pg_database AS d ON d.oid = s.dbid WHERE datname = current_database() AND query LIKE 'WITH asked AS%'"
)


class Reading(NamedTuple):
    """What the server has counted so far."""

    statements: int
    wal_bytes: int
    updates: int
    heap_only: int


class Figures(NamedTuple):
    """What some rounds cost."""

    leases: int
    statements_a_round: int
    wal_bytes: float
    wal_bytes_after_checkpoint: float
    rounds_after_checkpoint: int
    heap_only_share: float

    def __str__(self) -> str:
        return (
            f"{self.leases:>5} leases: {self.wal_bytes:.1f} B of WAL a renewal, {self.heap_only_share:.2%} heap-only, "
            f"{self.statements_a_round} statement(s) a round; {self.wal_bytes_after_checkpoint:.1f} B over the first "
            f"{self.rounds_after_checkpoint} rounds from a checkpoint on"
        )


def main() -> None:
    """Measure 200 and 1,000 leases, or what is asked for, and print one line for each."""
    parser = argparse.ArgumentParser(description="Measure what a renewal costs with PostgreSQL's default settings.")
    parser.add_argument("--leases", type=int, nargs="+", default=[200, 1_000])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="50 leases and 5 rounds")
    given = parser.parse_args()
    counts, rounds = ([50], 5) if given.quick else (given.leases, given.rounds)
    with EmbeddedPostgres.start(durable=True, settings=SETTINGS) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            version = connection.execute("SHOW server_version").fetchall()[0][0]
        print(f"PostgreSQL {version}, default settings, one round each {HEARTBEAT_MS} ms, {rounds} rounds")
        for leases in counts:
            print(asyncio.run(measure(server, leases, rounds)))


async def measure(server: EmbeddedPostgres, leases: int, rounds: int) -> Figures:
    """Hold so many leases in a fresh database, and read the server's counters before and after some rounds."""
    name = f"renewal_{leases}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    url, ended = server.url(name), asyncio.Event()

    async def hold() -> None:
        await ended.wait()

    async with AsyncJobSchedulerService(url) as service:
        await service.migrate()
        async with asyncio.TaskGroup() as nodes:
            for n in range(leases):
                options = JobAcquireOptions(
                    code="bench", run_key=f"2026-07-20T03:{n:06}", lease_ms=120_000, heartbeat_ms=HEARTBEAT_MS
                )
                nodes.create_task(service.run_exclusive(options, hold))
            try:
                return await asyncio.to_thread(watch, url, leases, rounds)
            finally:
                ended.set()


def watch(url: str, leases: int, rounds: int) -> Figures:
    """Read the counters: with all leases in step, after a checkpoint, and once that has settled."""
    with psycopg.connect(url, autocommit=True) as observer:
        observer.execute("CREATE EXTENSION pg_stat_statements")
        running = f"SELECT count(*) FROM {TABLE} WHERE \"status\" = 'RUNNING'".encode()
        wait(lambda: observer.execute(running).fetchall()[0][0] == leases)
        after_rounds(observer, SETTLING_ROUNDS)
        checkpoint = read(observer)
        observer.execute("CHECKPOINT")  # page images begin when it begins, not when it returns
        settled = after_rounds(observer, SETTLING_ROUNDS)
        end = after_rounds(observer, rounds)
        # rows of one round that bear more than one transaction were renewed by more than one statement
        transactions = observer.execute(f"SELECT count(DISTINCT xmin::text) FROM {TABLE}".encode()).fetchall()[0][0]
    return Figures(
        leases=leases,
        statements_a_round=transactions,
        wal_bytes=wal_a_renewal(settled, end, leases),
        wal_bytes_after_checkpoint=wal_a_renewal(checkpoint, settled, leases),
        rounds_after_checkpoint=settled.statements - checkpoint.statements,
        heap_only_share=(end.heap_only - checkpoint.heap_only) / (end.updates - checkpoint.updates),
    )


def wal_a_renewal(before: Reading, after: Reading, leases: int) -> float:
    """Divide the WAL between two readings by the renewals."""
    return (after.wal_bytes - before.wal_bytes) / ((after.statements - before.statements) * leases)


def after_rounds(observer: psycopg.Connection[Any], rounds: int) -> Reading:
    """Wait for so many more statements, and read."""
    start = read(observer).statements
    wait(lambda: read(observer).statements >= start + rounds)
    return read(observer)


def read(observer: psycopg.Connection[Any]) -> Reading:
    """Read the counters; those of the table lag by a second, which a share does not mind."""
    statements, wal_bytes = observer.execute(BOOKED.encode()).fetchall()[0]
    updates, heap_only = observer.execute(
        f"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = '{TABLE}'::regclass".encode()
    ).fetchall()[0]
    return Reading(int(statements), int(wal_bytes), updates, heap_only)


def wait(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a limit."""
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until_s:
            raise SystemExit(f"The rounds did not come within {PATIENCE_S:g} s.")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
