"""NestJS and tenure nodes on one table: one winner a run, fenced and taken over both ways (C3.4, C4.1, C4.3, C9.2).

The table is the one that TypeORM made, adopted; a NestJS node is played by its statements, over its own connection.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tenure import (
    AsyncJobSchedulerService,
    JobAcquired,
    JobAcquireOptions,
    JobExecutionLease,
    JobNotAcquired,
    JobSchedulerService,
    JobSchedulerStatus,
    LostJobLeaseError,
    LostReason,
    NotAcquiredReason,
)
from tenure.adoption import adopt
from tenure.embedded import EmbeddedPostgres
from tests.support.nestjs import NestNode, lock_key, make_nestjs_table
from tests.support.rows import TABLE, age, execute, row_of
from tests.support.servers import error_lines, log_offset
from tests.support.waiting import eventually

RUN_KEY = "2026-07-20T03:00:00.000Z"
KEYS = 400
PATIENCE_S = 60
MINUTE = timedelta(seconds=61)
VECTORS = json.loads((Path(__file__).resolve().parents[1] / "vectors" / "identity.json").read_text())["valid"]


@pytest.fixture
def url(empty_database_url: str) -> str:
    """A database in which NestJS nodes were first, and whose table tenure adopted."""
    make_nestjs_table(empty_database_url)
    adopt(empty_database_url)
    return empty_database_url


@pytest.fixture
def nest(url: str) -> Iterator[NestNode]:
    with NestNode(url) as node:
        yield node


@pytest.fixture
def tenure(url: str) -> Iterator[JobSchedulerService]:
    with JobSchedulerService(url, owner_label="node-a") as service:
        yield service


def options(run_key: str = RUN_KEY, lease_ms: int = 60_000) -> JobAcquireOptions:
    return JobAcquireOptions(code="mixed", run_key=run_key, lease_ms=lease_ms, heartbeat_ms=0)


def key(run_key: str = RUN_KEY) -> str:
    return lock_key("mixed", run_key)


def won(service: JobSchedulerService, wanted: JobAcquireOptions | None = None) -> JobAcquired:
    result = service.acquire(wanted or options())
    assert isinstance(result, JobAcquired)
    return result


def lost(service: JobSchedulerService, wanted: JobAcquireOptions | None = None) -> JobNotAcquired:
    result = service.acquire(wanted or options())
    assert isinstance(result, JobNotAcquired)
    return result


# The same keys


@pytest.mark.parametrize("run_key", [RUN_KEY, "", "ÿ ж 漢 🎉", 'say "hi"\\', "a/b"])
def test_both_compute_the_same_key(run_key: str) -> None:
    """C2.5, C10.1: SHA-256 over what JSON.stringify gives; toISOString makes the run key."""
    if run_key:
        assert JobAcquireOptions(code="mixed", run_key=run_key).lock_key == lock_key("mixed", run_key)
    initial = JobAcquireOptions(code="mixed", type="INITIAL")
    assert initial.lock_key == lock_key("mixed", None, "INITIAL")


def test_a_run_key_is_the_instant_as_to_iso_string_prints_it() -> None:
    """C10.1: milliseconds, three digits, and Z; the how-to shows this line."""
    tick = datetime(2026, 7, 20, 3, tzinfo=UTC)
    assert tick.isoformat(timespec="milliseconds").replace("+00:00", "Z") == RUN_KEY


def test_every_vector_names_one_run_for_both(url: str, nest: NestNode, tenure: JobSchedulerService) -> None:
    """C2.5: a NestJS node that holds the vector's key keeps a tenure node from the run, for each key of the list."""
    keys = {vector["lock_key"]: vector for vector in VECTORS if vector.get("type", "SCHEDULE") == "SCHEDULE"}
    assert len(keys) > 100
    for held, vector in keys.items():
        assert nest.acquire(held, vector["stored_code"])
        loss = lost(tenure, JobAcquireOptions(code=vector["code"], run_key=vector["run_key"]))
        assert loss.reason is NotAcquiredReason.RUNNING
    assert execute(url, f"SELECT count(*) FROM {TABLE}") == [(len(keys),)]


# The race


def race(url: str, run_keys: list[str]) -> dict[str, list[str]]:
    """Let two NestJS nodes, two blocking tenure nodes and two async ones race for each key; give who won it."""
    barrier = threading.Barrier(6)
    wins: dict[str, list[str]] = {run_key: [] for run_key in run_keys}
    failures: list[BaseException] = []

    def contend(kind: str, acquire: Any) -> None:
        try:
            for run_key in run_keys:
                barrier.wait(PATIENCE_S)
                if acquire(run_key):
                    wins[run_key].append(kind)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    def nestjs(node: NestNode) -> None:
        contend("nestjs", lambda run_key: node.acquire(key(run_key), "mixed"))

    def blocking(service: JobSchedulerService) -> None:
        contend("blocking", lambda run_key: service.acquire(options(run_key)).acquired)

    def on_loop() -> None:
        with asyncio.Runner() as runner:
            service = AsyncJobSchedulerService(url)
            try:
                contend("async", lambda run_key: runner.run(service.acquire(options(run_key))).acquired)
            finally:
                runner.run(service.close())

    with ExitStack() as stack:
        work = [
            *(threading.Thread(target=nestjs, args=[stack.enter_context(NestNode(url))]) for _ in range(2)),
            *(
                threading.Thread(target=blocking, args=[stack.enter_context(JobSchedulerService(url))])
                for _ in range(2)
            ),
            *(threading.Thread(target=on_loop) for _ in range(2)),
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    assert failures == []
    return wins


def kinds(wins: dict[str, list[str]]) -> Counter[str]:
    return Counter("nestjs" if kind == "nestjs" else "tenure" for winners in wins.values() for kind in winners)


def test_one_winner_a_key_and_both_kinds_win(server: EmbeddedPostgres, url: str) -> None:
    """C4.1: fresh runs, six nodes, no ERROR line."""
    since = log_offset(server)
    wins = race(url, [str(n) for n in range(KEYS)])
    assert {run_key: winners for run_key, winners in wins.items() if len(winners) != 1} == {}
    assert min(kinds(wins)["nestjs"], kinds(wins)["tenure"]) > 0
    assert execute(url, f'SELECT count(*), max("attempt") FROM {TABLE}') == [(KEYS, 1)]
    assert execute(url, f'SELECT count(DISTINCT "fencingToken") FROM {TABLE}') == [(KEYS,)]
    assert error_lines(server, since) == []


@pytest.mark.parametrize("state", ["FAIL", "expired"])
def test_one_winner_a_takeover_and_both_kinds_win(url: str, state: str) -> None:
    """C4.1, C4.3: rows left by both kinds are each taken over once, as attempt 2, under a larger token."""
    with NestNode(url) as nest, JobSchedulerService(url) as tenure:
        for n in range(300):
            assert nest.acquire(key(str(n)), "mixed") if n % 2 else tenure.acquire(options(str(n))).acquired
    settled = "\"status\" = 'FAIL'" if state == "FAIL" else '"modifiedAt" = "modifiedAt" - interval \'1 hour\''
    execute(url, f"UPDATE {TABLE} SET {settled}")
    [(newest,)] = execute(url, f'SELECT max("fencingToken") FROM {TABLE}')
    wins = race(url, [str(n) for n in range(300)])
    assert {run_key: winners for run_key, winners in wins.items() if len(winners) != 1} == {}
    assert min(kinds(wins)["nestjs"], kinds(wins)["tenure"]) > 0
    rows = execute(url, f'SELECT "lockKey", "attempt", "fencingToken", "owner", "leaseMs" FROM {TABLE}')
    assert {row[1] for row in rows} == {2}
    assert len({row[2] for row in rows}) == 300
    assert min(row[2] for row in rows) > newest
    by_tenure = {key(run_key) for run_key, winners in wins.items() if winners != ["nestjs"]}
    assert {row[0] for row in rows if row[3] and row[4] == 60_000} == by_tenure
    assert {row[0] for row in rows if row[3] is None and row[4] is None} == {row[0] for row in rows} - by_tenure


# Takeovers, and former owners


@pytest.mark.parametrize("end", ["expired", "failed"])
def test_a_nestjs_takeover_bumps_token_and_attempt_and_clears_the_holder(
    url: str, nest: NestNode, tenure: JobSchedulerService, end: str
) -> None:
    """C4.3: and the tenure node that held the run can change nothing any more, and is told why."""
    lease = won(tenure)
    if end == "failed":
        assert tenure.fail(lease)
    else:
        age(url, lease.id, MINUTE)
    assert nest.acquire(key(), "mixed", lease_ms=60_000)
    row = row_of(url, lease.id)
    assert (row["attempt"], row["fencingToken"] > lease.fencing_token) == (2, True)
    assert (row["leaseMs"], row["owner"], row["finishedAt"]) == (None, None, None)
    assert nest.id == lease.id
    assert not tenure.heartbeat(lease)
    assert not tenure.complete(lease, {"late": True})
    assert not tenure.fail(lease, {"late": True})
    assert row_of(url, lease.id) == row
    assert nest.complete('{"rows": 1}')
    loss = lost(tenure)
    assert (loss.reason, loss.attempt, loss.holder) == (NotAcquiredReason.SUCCEEDED, 2, None)
    assert loss.finished_at == row_of(url, lease.id)["modifiedAt"]


@pytest.mark.parametrize("end", ["expired", "failed"])
def test_a_tenure_takeover_fences_the_nestjs_node(
    url: str, nest: NestNode, tenure: JobSchedulerService, end: str
) -> None:
    """C3.4, C4.3: whose late heartbeat, SUCCESS and FAIL change nothing."""
    assert nest.acquire(key(), "mixed")
    before = row_of(url, key())
    if end == "failed":
        assert nest.fail('{"error": "no"}')
    else:
        age(url, nest.id, MINUTE)
    lease = won(tenure)
    assert (lease.id, lease.attempt) == (nest.id, 2)
    assert lease.fencing_token > before["fencingToken"]
    row = row_of(url, lease.id)
    assert (row["leaseMs"], row["owner"], row["runKey"]) == (60_000, "node-a", RUN_KEY)
    assert not nest.heartbeat()
    assert not nest.complete('{"late": true}')
    assert not nest.fail('{"late": true}')
    assert row_of(url, lease.id) == row
    assert not nest.acquire(key(), "mixed")
    assert tenure.complete(lease)
    assert not nest.acquire(key(), "mixed", lease_ms=3)


def test_a_run_goes_to_and_fro(url: str, nest: NestNode, tenure: JobSchedulerService) -> None:
    """C4.3: tokens grow and attempts count whoever takes over."""
    seen: list[tuple[int, int]] = []
    for turn in range(10):
        if turn % 2:
            assert nest.acquire(key(), "mixed")
            row = row_of(url, key())
            seen.append((row["attempt"], row["fencingToken"]))
            assert nest.fail()
        else:
            lease = won(tenure)
            seen.append((lease.attempt, lease.fencing_token))
            assert tenure.fail(lease)
    assert [attempt for attempt, _ in seen] == list(range(1, 11))
    assert [token for _, token in seen] == sorted({token for _, token in seen})


def test_a_running_callback_is_told_of_a_nestjs_takeover(url: str, nest: NestNode) -> None:
    """C5.5, C6.5: `taken over`, and the former owner's end is not recorded."""
    wanted = JobAcquireOptions(code="mixed", run_key=RUN_KEY, lease_ms=2_000, heartbeat_ms=50)

    def callback(lease: JobExecutionLease) -> None:
        assert eventually(lambda: nest.acquire(key(), "mixed", lease_ms=0))
        assert eventually(lambda: lease.lost) is LostReason.TAKEN_OVER

    with JobSchedulerService(url) as service:
        with pytest.raises(LostJobLeaseError) as caught:
            service.run_exclusive(wanted, callback)
    assert caught.value.reason is LostReason.TAKEN_OVER
    assert nest.heartbeat()
    assert row_of(url, key())["status"] == "RUNNING"


async def test_an_async_callback_is_cancelled_by_a_nestjs_takeover(url: str, nest: NestNode) -> None:
    """C5.6."""
    wanted = JobAcquireOptions(code="mixed", run_key=RUN_KEY, lease_ms=2_000, heartbeat_ms=50)
    cancelled = False

    async def callback(lease: JobExecutionLease) -> None:
        nonlocal cancelled
        assert nest.acquire(key(), "mixed", lease_ms=0)
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            cancelled = True
            raise

    async with AsyncJobSchedulerService(url) as service:
        with pytest.raises(LostJobLeaseError) as caught:
            await service.run_exclusive(wanted, callback)
    assert cancelled
    assert caught.value.reason is LostReason.TAKEN_OVER
    assert nest.complete()


# What each sees of the other


def test_a_live_nestjs_lease_is_judged_by_the_callers_own_length(
    url: str, nest: NestNode, tenure: JobSchedulerService
) -> None:
    """C3.4: its row does not say how long it is."""
    assert nest.acquire(key(), "mixed")
    age(url, nest.id, timedelta(seconds=30))
    loss = lost(tenure, options(lease_ms=60_000))
    assert (loss.reason, loss.holder) == (NotAcquiredReason.RUNNING, None)
    assert loss.expires_at == row_of(url, nest.id)["modifiedAt"] + timedelta(minutes=1)
    assert nest.heartbeat()
    assert lost(tenure, options(lease_ms=20_000)).reason is NotAcquiredReason.RUNNING
    age(url, nest.id, timedelta(seconds=30))
    assert won(tenure, options(lease_ms=20_000)).attempt == 2


def test_a_nestjs_rival_judges_by_its_own_length(url: str, nest: NestNode, tenure: JobSchedulerService) -> None:
    """The how-to says so: a shorter lease on a NestJS node takes a live run from a tenure node."""
    lease = won(tenure)
    age(url, lease.id, timedelta(seconds=10))
    assert not nest.acquire(key(), "mixed", lease_ms=60_000)
    assert nest.acquire(key(), "mixed", lease_ms=5_000)
    assert not tenure.heartbeat(lease)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Ho_Chi_Minh", "America/New_York", "Australia/Lord_Howe"])
def test_sessions_in_any_zone_agree(url: str, tenure: JobSchedulerService, zone: str) -> None:
    """C3.5: on timestamptz a live 60 s lease is not stolen, and a dead one not kept for hours."""
    with NestNode(url, time_zone=zone) as there, NestNode(url, time_zone="Pacific/Auckland") as here:
        assert there.acquire(key(), "mixed", lease_ms=60_000)
        assert not here.acquire(key(), "mixed", lease_ms=60_000)
        assert lost(tenure).reason is NotAcquiredReason.RUNNING
        age(url, there.id, MINUTE)
        assert won(tenure).attempt == 2
        age(url, there.id, MINUTE)
        assert here.acquire(key(), "mixed", lease_ms=60_000)


def test_onlookers_see_what_a_nestjs_node_did(nest: NestNode, tenure: JobSchedulerService) -> None:
    """C4.4: its runs are listed with their data and when they ended, without a holder."""
    assert nest.acquire(key(), "mixed")
    running = tenure.find_run(key())
    assert running is not None
    assert (running.status, running.holder, running.lease_ms) == (JobSchedulerStatus.RUNNING, None, None)
    assert nest.complete('{"rows": 3}')
    [done] = tenure.list_runs(code="mixed")
    assert (done.status, done.data, done.id) == (JobSchedulerStatus.SUCCESS, {"rows": 3}, nest.id)
    assert done.created_at <= done.modified_at


def test_ids_come_from_whichever_default(url: str, nest: NestNode, tenure: JobSchedulerService) -> None:
    """C9.2: `DEFAULT` gives a NestJS node its `uuid_generate_v4()`, tenure the same, and no two are equal."""
    assert "uuid_generate_v4()" in str(
        execute(url, f"SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = '{TABLE}'::regclass")
    )
    for n in range(20):
        assert nest.acquire(key(f"n{n}"), "mixed")
        assert tenure.acquire(options(f"t{n}")).acquired
    ids = [row[0] for row in execute(url, f'SELECT "id" FROM {TABLE}')]
    assert len(set(ids)) == 40
    assert {found.version for found in ids} == {4}


def test_a_nestjs_node_works_on_a_table_that_tenure_made(database_url: str) -> None:
    """C9.2: without its extension, too."""
    with NestNode(database_url) as node:
        assert node.acquire(key(), "mixed")
        assert node.heartbeat()
        assert node.fail()
        assert node.acquire(key(), "mixed")
        assert node.complete()
    assert row_of(database_url, key())["attempt"] == 2
