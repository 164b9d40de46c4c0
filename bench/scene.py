"""The server that all measures share, the table that the bare driver works on, and the meters."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg

from bench.measure import Sample
from tenure import JobAcquireOptions, JobSchedulerService
from tenure.embedded import EmbeddedPostgres

TABLE: Final = '"public"."job-scheduler"'
BARE: Final = '"public"."bare"'
CODE: Final = "bench"


@dataclass(frozen=True, slots=True)
class Effort:
    """Say how much is measured."""

    repeats: int
    batch: int
    leases: tuple[int, ...]
    rounds: int
    watched_s: float
    ticks: int
    contenders: tuple[int, ...]
    starts: int
    history: int
    looks: int


QUICK: Final = Effort(
    repeats=5,
    batch=60,
    leases=(200, 1_000),
    rounds=3,
    watched_s=2.0,
    ticks=80,
    contenders=(1, 2, 4),
    starts=5,
    history=40_000,
    looks=20,
)
FULL: Final = Effort(
    repeats=15,
    batch=400,
    leases=(200, 1_000),
    rounds=30,
    watched_s=10.0,
    ticks=2_000,
    contenders=(1, 2, 4),
    starts=15,
    history=1_000_000,
    looks=100,
)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Hold what the meters show."""

    wal_bytes: int
    server_cpu_us: float | None
    client_cpu_s: float
    wall_s: float

    def since(self, before: _Reading, operations: int) -> Sample:
        """Give what each of so many operations took since an earlier reading."""
        server = None
        if self.server_cpu_us is not None and before.server_cpu_us is not None:
            server = (self.server_cpu_us - before.server_cpu_us) / operations
        return Sample(
            (self.wall_s - before.wall_s) * 1e6 / operations,
            (self.client_cpu_s - before.client_cpu_s) * 1e6 / operations,
            server,
            (self.wal_bytes - before.wal_bytes) / operations,
        )


@dataclass(slots=True)
class Scene:
    """Hold the running server, and what looks at it from the side."""

    server: EmbeddedPostgres
    effort: Effort
    onlooker: psycopg.Connection[Any]
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def url(self) -> str:
        """Give the URL of the database."""
        return self.server.url()

    def options(self) -> list[JobAcquireOptions]:
        """Name a batch of runs that nobody asked for yet."""
        return [
            JobAcquireOptions(code=CODE, run_key=f"2026-07-20T03:00:00.{next(self._numbers):09}Z")
            for _ in range(self.effort.batch)
        ]

    def measured(self, work: Callable[[], None], operations: int) -> Sample:
        """Do the work, and give what each of its operations took on average."""
        before = self._read()
        work()
        return self._read().since(before, operations)

    async def measured_async(self, work: Callable[[], Awaitable[None]], operations: int) -> Sample:
        """As `measured`, on the running loop."""
        before = self._read()
        await work()
        return self._read().since(before, operations)

    def value(self, statement: str, *values: Any) -> Any:
        """Give the first field of the first row."""
        row = self.onlooker.execute(statement.encode(), values or None).fetchone()
        assert row is not None, "the statement gives a row"
        return row[0]

    def _read(self) -> _Reading:
        return _Reading(self._wal_bytes(), self._server_cpu_us(), time.process_time(), time.perf_counter())

    def _wal_bytes(self) -> int:
        return int(self.value("SELECT pg_current_wal_insert_lsn() - CAST('0/0' AS pg_lsn)"))

    def _server_cpu_us(self) -> float | None:
        """Give the CPU that the sessions of others have used so far; `None` where the kernel does not tell."""
        pids = self.onlooker.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchall()
        try:
            return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for (pid,) in pids) / 1_000
        except OSError:
            return None


@contextmanager
def opened(effort: Effort) -> Generator[Scene]:
    """Start a server with durability as shipped, with the schema and a bare table of the same columns and keys."""
    with (
        # Autovacuum would fall upon one case and not upon another.
        EmbeddedPostgres.start(durable=True, settings={"autovacuum": "off"}) as server,
        psycopg.connect(server.url(), autocommit=True) as onlooker,
    ):
        with JobSchedulerService(server.url()) as service:
            service.migrate()
        onlooker.execute(f"CREATE TABLE {BARE} (LIKE {TABLE} INCLUDING ALL)".encode())
        yield Scene(server, effort, onlooker)
