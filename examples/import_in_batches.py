"""Import 100,000 rows in batches, so that whoever comes after a crash goes on where it happened (C7.6).

Run it with ``python examples/import_in_batches.py DATABASE_URL``, after `tenure schema apply`. Kill it as often as you
like and run it again, on any host: each row is imported once. Meanwhile `tenure ls` shows how far it has come.

Each batch and its checkpoint are one transaction, so neither is there without the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta

import psycopg

from tenure import JobAcquireOptions, JobExecutionLease, JobSchedulerService

ROWS = 100_000
BATCH = 500
RUN = JobAcquireOptions(code="import-prices", run_key="2026-07-20", lease_ms=1_000)


def source(after: int, count: int) -> Iterator[tuple[int, str]]:
    """Read some rows of what is to be imported: a file, an API, another database."""
    for number in range(after + 1, after + count + 1):
        yield number, f"price of article {number}"


def import_prices(database_url: str, lease: JobExecutionLease) -> int:
    """Import what is left."""
    previous = lease.previous
    done: int = previous.checkpoint["done"] if previous and previous.checkpoint else 0
    print(f"attempt {lease.attempt} goes on after row {done}", flush=True)
    with psycopg.connect(database_url) as connection:
        while done < ROWS:
            with connection.transaction(), connection.cursor() as cursor:
                with cursor.copy("COPY prices FROM STDIN") as lines:
                    for row in source(done, BATCH):
                        lines.write_row(row)
                done += BATCH
                lease.checkpoint({"done": done, "of": ROWS}, connection=connection)
    return done


def main(database_url: str) -> None:
    """Import on this node, or wait for the node that does, and take over if it dies."""
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(2026)")  # nodes that start together make the table once
        connection.execute("CREATE TABLE IF NOT EXISTS prices (number integer, text text)")
    with JobSchedulerService(database_url) as service:
        outcome = service.run_exclusive(
            RUN, lambda lease: import_prices(database_url, lease), wait=timedelta(minutes=1)
        )
    print(f"imported {outcome.result} rows" if outcome.acquired else "imported already", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
