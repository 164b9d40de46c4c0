"""Renew many live leases: one statement a round, beside one UPDATE each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

import psycopg

from bench import renewal_wal
from bench.bare import BareDriver
from bench.measure import Line, Sample, interleaved
from bench.scene import CODE, TABLE, Scene
from tenure import AsyncJobSchedulerService, JobAcquireOptions, JobLease
from tenure.drivers import resolve
from tenure.embedded import EmbeddedPostgres
from tenure.operations import renewal
from tenure.statements import Statements, Table

ROUND_LIMIT_S: Final = 30.0


def run(scene: Scene) -> list[Line]:
    """Measure the time of a round, its WAL, and what a keeper at one beat a second takes."""
    lines = [_time_line(scene, leases) for leases in scene.effort.leases]
    return [*lines, *_wal_lines(scene), asyncio.run(_client_line(scene, max(scene.effort.leases)))]


def _time_line(scene: Scene, leases: int) -> Line:
    """Renew all of them at once, and a part of them one by one, since that takes its time."""
    table = Table()
    held = _hold(scene, leases)
    ids = [lease.id for lease in held[: scene.effort.batch]]
    call, driver = renewal(Statements(table), held), resolve(scene.url, table)

    def together() -> None:
        assert not driver.fetch(call, limit_s=ROUND_LIMIT_S), "every lease is renewed"

    with psycopg.connect(scene.url, autocommit=True) as connection, closing(driver):
        bare = BareDriver(connection)
        cases: dict[str, Callable[[], Sample]] = {
            "tenure": lambda: scene.measured(together, leases),
            "bare": lambda: scene.measured(lambda: bare.renew(ids), len(ids)),
        }
        for case in cases.values():
            case()
        found = interleaved(cases, scene.effort.repeats)
    return _compared(leases, found["tenure"], found["bare"])


def _compared(leases: int, together: Sample, apart: Sample) -> Line:
    ratio = apart.wall_us / together.wall_us
    return Line(
        f"renewing {leases:,} leases, one statement",
        _round(leases, together),
        f"one UPDATE each {_round(leases, apart)}",
        ratio,
        "≥ 20 times less time",
        ratio >= 20,
    )


def _round(leases: int, beat: Sample) -> str:
    server_us = beat.server_cpu_us or 0.0
    return (
        f"{leases * beat.wall_us / 1e3:,.1f} ms, cpu {leases * (beat.client_cpu_us or 0.0) / 1e3:,.1f}"
        f"+{leases * server_us / 1e3:,.1f} ms, {beat.wal_bytes or 0.0:,.0f} B a beat"
    )


def _wal_lines(scene: Scene) -> list[Line]:
    """Let the keeper renew on a server of its own, which books the WAL of each statement."""
    rounds = scene.effort.rounds
    with EmbeddedPostgres.start(durable=True, settings=renewal_wal.SETTINGS) as server:
        return [_wal_line(asyncio.run(renewal_wal.measure(server, leases, rounds))) for leases in scene.effort.leases]


def _wal_line(figures: renewal_wal.Figures) -> Line:
    return Line(
        f"the keeper with {figures.leases:,} leases",
        f"{figures.wal_bytes:,.0f} B of WAL a beat "
        f"({figures.wal_bytes_after_checkpoint:,.0f} right after a checkpoint), "
        f"{figures.heap_only_share:.1%} heap-only, {figures.statements_a_round} statement(s) a round",
        "",
        None,
        "≤ 200 B, ≥ 99 %, 1 statement",
        figures.wal_bytes <= 200 and figures.heap_only_share >= 0.99 and figures.statements_a_round == 1,
    )


async def _client_line(scene: Scene, leases: int) -> Line:
    """Hold the leases with a keeper that renews once a second, and see what this process and the server spend."""
    ended = asyncio.Event()

    async def hold() -> None:
        await ended.wait()

    async with AsyncJobSchedulerService(scene.url, owner_label="bench") as service, asyncio.TaskGroup() as holders:
        for number in range(leases):
            options = JobAcquireOptions(code=CODE, run_key=f"client {number}", lease_ms=60_000, heartbeat_ms=1_000)
            holders.create_task(service.run_exclusive(options, hold))
        await asyncio.to_thread(_wait_for_all, scene, leases)
        spent = await scene.measured_async(lambda: asyncio.sleep(scene.effort.watched_s), 1)
        ended.set()
    client, server = ((cpu_us or 0.0) / spent.wall_us for cpu_us in (spent.client_cpu_us, spent.server_cpu_us))
    return Line(
        f"keeping {leases:,} leases at 1 beat/s",
        f"{client:.1%} of a core here, {server:.1%} in the server",
        "",
        None,
        "≤ 2 % of a core",
        client <= 0.02,
    )


def _wait_for_all(scene: Scene, leases: int) -> None:
    """Wait until all are held and their renewals fall in step: one transaction renewed them all."""
    held = f'SELECT count(*) = %s AND count(DISTINCT CAST("xmin" AS text)) = 1 FROM {TABLE} WHERE "runKey" LIKE %s'
    until_s = time.monotonic() + ROUND_LIMIT_S
    while not scene.value(held, leases, "client %"):
        assert time.monotonic() < until_s, "the leases fall in step"
        time.sleep(0.1)


def _hold(scene: Scene, leases: int) -> list[JobLease]:
    """Make rows of live leases, all at once."""
    rows = scene.onlooker.execute(
        f"""
        INSERT INTO {TABLE} ("lockKey", "code", "type", "status", "ownerToken", "leaseMs", "owner", "runKey")
        SELECT key, 'bench', 'SCHEDULE', 'RUNNING', gen_random_uuid(), 900000, 'bench', key
        FROM generate_series(1, %s) AS n, LATERAL (SELECT format('%%s leases, %%s', CAST(%s AS text), n)) AS k (key)
        RETURNING "id", "ownerToken"
        """.encode(),
        (leases, leases),
    )
    return [JobLease(row_id, owner_token) for row_id, owner_token in rows]
