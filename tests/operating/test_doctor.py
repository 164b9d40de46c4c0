"""The doctor: what it finds, why it matters, and the mend; from facts alone, and on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tenure import AsyncJobSchedulerService, JobSchedulerService
from tenure.operating import DoctorFacts, Finding, Level, Pooling, TableFacts, examination, judge, worst
from tests.support.pgbouncer import PROGRAM, pgbouncer
from tests.support.rows import execute, session_url
from tests.support.scheduling import JOBS, TickNode

TABLE = TableFacts(
    name='"public"."job-scheduler"',
    live=1_000,
    dead=10,
    size_bytes=2_097_152,
    updates=100,
    hot_updates=99,
    last_autovacuum=datetime(2026, 7, 20, 3, tzinfo=UTC),
    autovacuum=True,
)
WELL = DoctorFacts(
    version=160_004,
    role="app",
    in_recovery=False,
    read_only=False,
    isolation="read committed",
    synchronous_commit="on",
    fsync=True,
    pooling=Pooling.NONE,
    round_trip=timedelta(milliseconds=1),
    clock_offset=timedelta(milliseconds=3),
    timeouts_ms={"statement_timeout": 0, "idle_session_timeout": 0},
    tables=(TABLE,),
    zones=("UTC",),
    tzdata="the system's 2026a (/usr/share/zoneinfo)",
)
TROUBLES: dict[str, tuple[dict[str, Any], Level, str, str]] = {
    "old server": ({"version": 130_010}, Level.BAD, "PostgreSQL 13.10", "Upgrade to 14 or newer."),
    "standby": ({"in_recovery": True}, Level.BAD, "a standby", "target_session_attrs=read-write"),
    "read-only": ({"read_only": True}, Level.BAD, "default_transaction_read_only is on", "= off"),
    "isolation": ({"isolation": "serializable"}, Level.WARN, "serializable", "40001"),
    "no fsync": ({"fsync": False}, Level.BAD, "fsync is off", "Set fsync = on"),
    "asynchronous": ({"synchronous_commit": "off"}, Level.WARN, "synchronous_commit is off", "synchronous_commit = on"),
    "statement pooling": ({"pooling": Pooling.STATEMENT}, Level.BAD, "one in statement mode", "pool_mode"),
    "slow": ({"round_trip": timedelta(milliseconds=150)}, Level.WARN, "150.0 ms", "longer leases"),
    "hopeless": (
        {"round_trip": timedelta(seconds=1), "shortest_lease_ms": 5_000},
        Level.BAD,
        "the shortest lease is 5s",
        "longer leases",
    ),
    "ahead": ({"clock_offset": timedelta(seconds=5)}, Level.WARN, "5s ahead of the database's", "NTP"),
    "behind": ({"clock_offset": timedelta(seconds=-5)}, Level.WARN, "behind the database's", "NTP"),
    "schema": ({"faults": ("Migration 0005 is not applied.",)}, Level.BAD, "Migration 0005", "tenure schema check"),
    "grants": ({"faults": ("The role lacks UPDATE. GRANT it.",)}, Level.WARN, "The role lacks UPDATE.", "GRANT it."),
    "timeout": (
        {"timeouts_ms": {"statement_timeout": 200}},
        Level.WARN,
        "200ms",
        "Set statement_timeout to at least 1s for this role, or to 0.",
    ),
    "idle sessions": (
        {"timeouts_ms": {"idle_session_timeout": 5_000}, "shortest_lease_ms": 60_000},
        Level.WARN,
        "5s",
        "Set idle_session_timeout to at least 20s",
    ),
    "no time zones": ({"tzdata": None, "zones": ("Europe/Paris",)}, Level.BAD, "no time zone data", "tzdata"),
    "unknown here": ({"zones_unknown_here": ("Mars/Olympus",)}, Level.BAD, "is not known here", "tzdata"),
    "unknown there": ({"zones_unknown_there": ("Mars/Olympus",)}, Level.WARN, "not known to the server", "tzdata"),
    "differing": ({"zones_differing": ("Europe/Paris",)}, Level.WARN, "shows other times here", "tzdata"),
    "no autovacuum": ({"autovacuum": False}, Level.BAD, "off", "Set autovacuum = on"),
    "bloat": ({"tables": (replace(TABLE, dead=20_000),)}, Level.WARN, "20,000 dead", "VACUUM"),
    "not this table": (
        {"tables": (replace(TABLE, autovacuum=False),)},
        Level.BAD,
        "autovacuum is off",
        "RESET (autovacuum_enabled)",
    ),
    "old transaction": (
        {"oldest_transaction": timedelta(hours=2)},
        Level.WARN,
        "the oldest is open for 2h",
        "pg_terminate_backend",
    ),
}


def test_a_healthy_database_has_nothing_to_mend() -> None:
    """And yet each line says what was found and why that matters."""
    found = judge(WELL)
    assert worst(found) is Level.OK
    assert all(each.level is Level.OK and each.found and each.why and each.mend is None for each in found)
    assert len({each.subject for each in found}) == len(found)


@pytest.mark.parametrize("name", TROUBLES)
def test_each_trouble_is_one_line_with_its_mend(name: str) -> None:
    """C11: only what is wrong is said to be wrong."""
    changes, level, said, mend = TROUBLES[name]
    (found,) = [each for each in judge(replace(WELL, **changes)) if each.level is not Level.OK]
    assert found.level is level
    assert said in found.found
    assert mend in str(found.mend)
    assert worst((found,)) is level


def test_poolers_are_no_trouble_but_for_statements() -> None:
    """C4.5: session and transaction mode are fine; what one's own connections must do is said."""
    for pooling in (Pooling.SESSION, Pooling.TRANSACTION):
        found = {each.subject: each for each in judge(replace(WELL, pooling=pooling))}
        assert (found["pooler"].level, found["pooler"].found) == (Level.OK, f"one in {pooling.value} mode")
        assert found["prepared statements"].found == "not used by tenure"


# On a real server


def examined(url: str) -> dict[str, Finding]:
    """Give what is found by subject; the worst comes first where there are several of one."""
    with JobSchedulerService(url) as service:
        found = service.examine(examination.look)
    return {each.subject: each for each in sorted(found, key=lambda each: each.level is Level.BAD)}


def test_a_real_server_is_looked_at(database_url: str, service: JobSchedulerService) -> None:
    """The tests' own is without durability, which is said; a clock that is shared has no offset to speak of."""
    TickNode(service).register()
    found = examined(database_url)
    assert [each.subject for each in found.values() if each.level is not Level.OK] == ["durability"]
    assert found["writable"].found == "a primary, writable"
    assert found["pooler"].found in ("none", "one in transaction mode")
    assert found["time zones"].found == "the same here and there: UTC"
    assert found['table "public"."job-scheduler_actions"'].level is Level.OK


def test_what_is_wrong_is_found(database_url: str, service: JobSchedulerService) -> None:
    """Settings of the role, a schema that differs, a zone that nobody knows."""
    TickNode(service).register()
    execute(database_url, f"UPDATE {JOBS} SET \"timezone\" = 'Mars/Olympus'")
    execute(database_url, 'DROP INDEX "public"."job-scheduler_due_idx"')
    execute(database_url, 'ALTER TABLE "public"."job-scheduler" SET (autovacuum_enabled = false)')
    url = session_url(database_url, default_transaction_isolation="serializable", statement_timeout="500ms")
    found = examined(url)
    bad = {each.subject for each in found.values() if each.level is Level.BAD}
    assert bad == {"durability", "schema", "time zones", 'table "public"."job-scheduler"'}
    assert "job-scheduler_due_idx" in found["schema"].found
    assert {each.subject for each in found.values() if each.level is Level.WARN} == {"isolation", "statement_timeout"}


def test_a_database_without_the_schema_is_no_error(empty_database_url: str) -> None:
    """C9.2: it says so, and goes on with all else."""
    found = examined(empty_database_url)
    assert found["schema"].level is Level.BAD
    assert "tenure schema apply" in found["schema"].found
    assert found["server"].level is Level.OK


def test_a_role_that_may_not_is_told_the_grant(database_url: str) -> None:
    """C9.4: the mend is the GRANT."""
    execute(database_url, "CREATE ROLE onlooker LOGIN PASSWORD 'secret'")
    try:
        url = psycopg.conninfo.make_conninfo(database_url, user="onlooker", password="secret")
        found = examined(url)
        assert found["grants"].level is Level.WARN
        assert "GRANT " in str(found["grants"].mend)
        assert found["server"].level is Level.OK
    finally:
        execute(database_url, "DROP OWNED BY onlooker; DROP ROLE onlooker")


@pytest.fixture(params=["session", "transaction", "statement"])
def pooled(request: pytest.FixtureRequest, server: Any, database_url: str, tmp_path: Path) -> Iterator[tuple[str, str]]:
    if PROGRAM is None:
        pytest.skip("PgBouncer is not installed")
    direct = server.url(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"])
    with pgbouncer(direct, tmp_path, more=f"pool_mode = {request.param}\n") as url:
        yield url, str(request.param)


def test_a_pooler_is_told_by_its_mode(pooled: tuple[str, str]) -> None:
    """C4.5: without asking it, for its console is not everybody's."""
    url, mode = pooled
    assert examined(url)["pooler"].found == f"one in {mode} mode"


async def test_the_async_service_examines_too(database_url: str) -> None:
    """C1.2: in a thread."""
    async with AsyncJobSchedulerService(database_url) as service:
        found = await service.examine(examination.look)
    assert worst(found) is Level.BAD
