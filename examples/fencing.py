"""Keep a node that lost its lease out of a store that PostgreSQL does not watch: fencing tokens.

A lease says who may work; it cannot stop a node that was frozen between its last look at the lease and its next write.
A store outside PostgreSQL can: it remembers the largest fencing token it has seen and refuses smaller ones. Each later
lease of a run has a larger token, so the first write of the new owner shuts the former one out.

Run it with `python examples/fencing.py postgresql://…` (or DATABASE_URL), on a database with tenure's schema.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from tenure import JobAcquired, JobAcquireOptions, JobSchedulerService

LEASE_MS = 500


class StaleTokenError(Exception):
    """Say that a newer owner has written already."""


class ReportStore:
    """Keep reports in SQLite, and take each only under the newest fencing token seen for its key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connect()) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS reports (key TEXT PRIMARY KEY, token INTEGER, body TEXT)")

    def put(self, key: str, body: str, *, token: int) -> None:
        """Store a report, or raise `StaleTokenError`; comparing and writing are one statement."""
        with closing(self._connect()) as connection:
            written = connection.execute(
                "INSERT INTO reports VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE "
                "SET token = excluded.token, body = excluded.body WHERE excluded.token >= reports.token",
                (key, token, body),
            ).rowcount
        if not written:
            raise StaleTokenError(f"token {token} is older than the newest that was seen for {key!r}")

    def get(self, key: str) -> str:
        """Give a report."""
        with closing(self._connect()) as connection:
            (body,) = connection.execute("SELECT body FROM reports WHERE key = ?", (key,)).fetchone()
        return str(body)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None)


def acquire(service: JobSchedulerService, options: JobAcquireOptions) -> JobAcquired:
    """Ask until this node has the run."""
    while True:
        outcome = service.acquire(options)
        if outcome.acquired is True:
            return outcome
        time.sleep(0.05)


def main(database_url: str, directory: Path) -> None:
    """Let a node freeze past its lease, another take over, and the first one wake up and write."""
    store = ReportStore(directory / "reports.sqlite3")
    # Renewal by hand only, as for a node whose whole process stands still.
    options = JobAcquireOptions(code="report", run_key=uuid4().hex, lease_ms=LEASE_MS, heartbeat_ms=0)
    with (
        JobSchedulerService(database_url, owner_label="node-a") as a,
        JobSchedulerService(database_url, owner_label="node-b") as b,
    ):
        frozen = acquire(a, options)
        print("node-a holds the run, and freezes.")
        successor = acquire(b, options)
        assert successor.fencing_token > frozen.fencing_token
        store.put("report", "by node-b", token=successor.fencing_token)
        b.complete(successor)
        print("node-b took the run over, with a larger token, and wrote its report.")
        try:
            store.put("report", "by node-a", token=frozen.fencing_token)
        except StaleTokenError:
            print("node-a woke up, wrote, and was refused.")
        print(f"The report is {store.get('report')}.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(sys.argv[1] if len(sys.argv) > 1 else os.environ["DATABASE_URL"], Path(temporary))
