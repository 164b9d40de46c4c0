"""Many nodes decide about the same job at the same moment (C10.2, C10.4, C10.5, C10.7, lessons A)."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tenure import JobAcquired, JobSchedulerService
from tenure.embedded import EmbeddedPostgres
from tenure.operations import win_in
from tenure.scheduling.values import Overlap, Verdict
from tests.scenarios.test_races import CONTENDERS, PATIENCE_S, Crew
from tests.support.racing import all_at_once
from tests.support.rows import TABLE, execute
from tests.support.scheduling import (
    CODE,
    JOBS,
    MINUTE,
    TickNode,
    expire,
    known_for,
    options_for,
    tick_nodes,
    tick_row,
    watermark_of,
    won,
)
from tests.support.servers import error_lines, log_offset

TICKS = 200
ROUNDS = 60
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def quiet(server: EmbeddedPostgres, database_url: str) -> Iterator[None]:
    """Fail a test during which the server logged an error."""
    offset = log_offset(server)
    yield
    assert error_lines(server, offset) == []


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """Sixteen processes for the whole module."""
    made = Crew()
    yield made
    made.close()


@pytest.fixture
def first(database_url: str, service: JobSchedulerService) -> datetime:
    """The first tick of a job that has been known for a day."""
    TickNode(service).register()
    return known_for(database_url, DAY) + MINUTE


def running(url: str) -> int:
    return int(execute(url, f"SELECT count(*) FROM {TABLE} WHERE \"status\" = 'RUNNING'")[0][0])


@dataclass(frozen=True)
class Claims:
    """Claim each tick in turn, all processes at once."""

    url: str
    first: datetime

    def run(self, barrier: Any) -> list[Verdict]:
        with JobSchedulerService(self.url) as service:
            return claim_all(TickNode(service), self.first, barrier)


def claim_all(node: TickNode, first: datetime, barrier: Any) -> list[Verdict]:
    """Claim each tick when everybody does."""
    node.beat()
    heard = []
    for n in range(TICKS):
        tick = first + n * MINUTE
        barrier.wait(PATIENCE_S)
        heard.append(node.claim(tick, previous_tick=tick - MINUTE).verdict)
    return heard


def assert_each_tick_won_once(url: str, first: datetime, heard: list[list[Verdict]]) -> None:
    """One row each, one winner each, one move of the watermark each, and everybody else heard that it was decided."""
    for verdicts in zip(*heard, strict=True):
        assert Counter(verdicts) == {Verdict.WON: 1, Verdict.DECIDED: CONTENDERS - 1}
    ticks = [first + n * MINUTE for n in range(TICKS)]
    rows = execute(url, f'SELECT "scheduledAt", "status"::text, "attempt" FROM {TABLE} ORDER BY 1')
    assert rows == [(tick, "RUNNING", 1) for tick in ticks]
    assert execute(url, f'SELECT "watermark", "turn" FROM {JOBS}') == [(ticks[-1], TICKS)]


def test_16_processes_claim_200_ticks(database_url: str, first: datetime, crew: Crew) -> None:
    """C10.2, C10.6: one row and one winner each, no leader, no ERROR line (agronholm/apscheduler#160)."""
    assert_each_tick_won_once(database_url, first, crew.do(Claims(database_url, first)))  # type: ignore[arg-type]


def test_16_threads_claim_200_ticks(database_url: str, first: datetime) -> None:
    """C10.2: as processes; the service is shared by four of them each."""
    with tick_nodes(database_url, 4) as nodes:
        barrier = threading.Barrier(CONTENDERS)

        heard = all_at_once([partial(claim_all, nodes[n % 4], first, barrier) for n in range(CONTENDERS)])
    assert_each_tick_won_once(database_url, first, heard)


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_two_ticks_that_are_claimed_at_once_do_not_overlap(
    database_url: str, first: datetime, overlap: Overlap
) -> None:
    """C10.5: decided by the database, right across nodes, whichever came first."""
    seen: Counter[tuple[Verdict, Verdict]] = Counter()
    with tick_nodes(database_url, 2) as (one, two):
        for n in range(ROUNDS):
            ticks = [first + (2 * n + 1) * MINUTE, first + (2 * n + 2) * MINUTE]
            heard = all_at_once(
                [partial(one.claim, ticks[0], overlap=overlap), partial(two.claim, ticks[1], overlap=overlap)]
            )
            seen[heard[0].verdict, heard[1].verdict] += 1
            assert running(database_url) == 1
            for answer in heard:
                if answer.won:
                    one.service.complete(answer.won)
            if heard[1].verdict is Verdict.QUEUED:
                one.service.complete(won(two.retake(options_for(ticks[1]), overlap=overlap)))
    waits = Verdict.OVERLAPPED if overlap == "skip" else Verdict.QUEUED
    assert set(seen) <= {(Verdict.WON, waits), (Verdict.REMOVED, Verdict.WON)}
    assert seen[Verdict.WON, waits]


def test_a_retake_and_a_claim_at_once_do_not_overlap(database_url: str, first: datetime) -> None:
    """C10.4, C10.5: of a retry that is due and the next tick one runs, and the other waits or says why not."""
    seen: Counter[tuple[Verdict, Verdict]] = Counter()
    with tick_nodes(database_url, 2) as (one, two):
        one.service.fail(won(one.claim(first, overlap="skip")))
        for n in range(1, ROUNDS):
            tick = first + n * MINUTE
            heard = all_at_once(
                [
                    partial(one.retake, options_for(first), 1_000, overlap="skip"),
                    partial(two.claim, tick, overlap="skip"),
                ]
            )
            seen[heard[0].verdict, heard[1].verdict] += 1
            assert running(database_url) == 1
            if heard[0].won:
                one.service.fail(heard[0].won)
            if heard[1].won:
                two.service.complete(heard[1].won)
    assert set(seen) <= {(Verdict.WON, Verdict.OVERLAPPED), (Verdict.BUSY, Verdict.WON)}


def test_a_dead_run_is_taken_up_by_one_of_8_nodes(database_url: str, first: datetime) -> None:
    """C10.4: each time by one, with the next attempt, until its attempts are used up; that is written by one."""
    with tick_nodes(database_url, 8) as nodes:
        won(nodes[0].claim(first))
        for attempt in range(2, 12):
            expire(database_url, first)
            heard = all_at_once([partial(node.retake, options_for(first), 11) for node in nodes])
            wins = [answer.won for answer in heard if answer.won]
            assert [win.attempt for win in wins] == [attempt]
            assert Counter(each.verdict for each in heard) == {Verdict.WON: 1, Verdict.LOST: 7}
        expire(database_url, first)
        heard = all_at_once([partial(node.retake, options_for(first), 11) for node in nodes])
    assert Counter(each.verdict for each in heard) == {Verdict.EXHAUSTED: 1, Verdict.LOST: 7}
    assert tick_row(database_url, first)["outcome"] == "exhausted"


def test_a_decision_and_claims_at_once(database_url: str, first: datetime) -> None:
    """C10.5, C10.7: either all of the ticks are decided so, or the claim came first and none is."""
    seen: Counter[tuple[Verdict, Verdict]] = Counter()
    with tick_nodes(database_url, 2) as (one, two):
        for n in range(ROUNDS):
            watermark = watermark_of(database_url)
            ticks = [first + (10 * n + k) * MINUTE for k in range(10)]
            both: list[Any] = all_at_once([partial(one.decide, ticks, watermark), partial(two.claim, ticks[0])])
            seen[both[0].verdict, both[1].verdict] += 1
            outcomes = execute(
                database_url, f'SELECT "outcome", count(*) FROM {TABLE} WHERE "scheduledAt" >= %s GROUP BY 1', ticks[0]
            )
            assert outcomes in ([("skipped", 10)], [(None, 1)])
            known_for(database_url, DAY)
            execute(database_url, f'UPDATE {JOBS} SET "watermark" = %s', ticks[-1])
    assert sum(seen.values()) == ROUNDS


def test_a_tick_is_claimed_while_plain_acquires_want_it(database_url: str, first: datetime) -> None:
    """C10.1, C10.4: one run, whoever began it, and its row bears the tick in the end."""
    with tick_nodes(database_url, 4) as nodes:
        for n in range(ROUNDS):
            tick = first + n * MINUTE
            options = options_for(tick)
            heard: list[Any] = all_at_once(
                [
                    *(partial(node.claim, tick) for node in nodes[:2]),
                    *(partial(node.service.acquire, options) for node in nodes[2:]),
                ]
            )
            assert len([each for each in heard if win_in(each)]) == 1
            assert tick_row(database_url, tick)["scheduledAt"] == tick


# Removing


def test_a_removed_tick_is_never_won_again_by_whoever_lags(database_url: str, first: datetime) -> None:
    """C10.7, lessons A (good_job#767): removal beside claims, retakes and plain acquires, for some seconds."""
    wins: Counter[datetime] = Counter()
    ended = threading.Event()
    reached = [first]
    guard = threading.Lock()

    def note(tick: datetime, lease: JobAcquired | None, node: TickNode) -> None:
        if lease is not None:
            with guard:
                wins[tick] += 1
            assert node.service.complete(lease)

    def lead(node: TickNode) -> None:
        for n in range(400):
            tick = first + n * MINUTE
            note(tick, node.claim(tick).won, node)
            reached[0] = tick
        ended.set()

    def lag(node: TickNode) -> None:
        rng = random.Random(node.life.label)
        while not ended.is_set():
            tick = reached[0] - rng.randrange(30) * MINUTE
            note(tick, node.claim(tick).won, node)
            plain = node.service.acquire(options_for(tick))
            note(tick, plain if isinstance(plain, JobAcquired) else None, node)

    def remove(node: TickNode) -> None:
        while not ended.is_set():
            removed.append(node.prune(timedelta(0), limit=50))

    removed: list[int] = []
    with tick_nodes(database_url, 6) as nodes:
        all_at_once(
            [
                partial(lead, nodes[0]),
                *(partial(lag, node) for node in nodes[1:4]),
                *(partial(remove, node) for node in nodes[4:]),
            ],
            timeout_s=100,
        )
        left = int(execute(database_url, f"SELECT count(*) FROM {TABLE}")[0][0])
    assert sum(removed) > 200
    first_ones = {first - n * MINUTE for n in range(1, 31)}
    assert {tick: count for tick, count in wins.items() if count != 1 and tick not in first_ones} == {}
    assert sum(removed) + left == sum(wins.values())


def test_two_removals_at_once_remove_each_run_once(database_url: str, first: datetime) -> None:
    """Retention: nobody waits for anybody, and the watermarks of codes without a job are made once."""
    with tick_nodes(database_url, 4) as nodes:
        for code in (CODE, "plain", "other"):
            execute(
                database_url,
                f'INSERT INTO {TABLE} ("lockKey", "code", "type", "status", "ownerToken", "runKey", "startedAt", '
                '"finishedAt") '
                "SELECT %s || n, %s, 'SCHEDULE', 'SUCCESS', gen_random_uuid(), "
                "to_char((%s + make_interval(mins => n)) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'), "
                "clock_timestamp() - interval '40 days', clock_timestamp() - interval '40 days' "
                "FROM generate_series(1, 500) n",
                code,
                code,
                first - 100 * DAY,
            )
        removed = all_at_once([partial(node.prune, 30 * DAY, limit=100) for node in nodes])
    assert sum(removed) == 1_500
    kept = f'SELECT "code", "watermark", "schedule" FROM {JOBS} WHERE "code" <> %s ORDER BY 1'
    ends = execute(database_url, kept, CODE)
    end = first - 100 * DAY + 500 * MINUTE
    assert ends == [("other", end, None), ("plain", end, None)]
