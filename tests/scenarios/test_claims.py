"""What the database decides about a tick: every verdict, and what it leaves (C10.2, C10.4 to C10.7)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tenure import (
    AsyncJobSchedulerService,
    JobAcquireOptions,
    JobNotAcquired,
    JobSchedulerService,
    JobSchedulerStatus,
    NotAcquiredReason,
)
from tenure.endings import Ending
from tenure.scheduling import operations
from tenure.scheduling.values import Outcome, TickClaim, Verdict
from tests.support.nestjs import NestNode
from tests.support.racing import all_at_once
from tests.support.rows import TABLE, execute, row_of
from tests.support.scheduling import (
    CODE,
    JOBS,
    MINUTE,
    TickNode,
    claim_attempt,
    count_rows,
    expire,
    known_for,
    make_old,
    options_for,
    run_key,
    tick_nodes,
    tick_row,
    watermark_of,
    won,
)

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def node(service: JobSchedulerService) -> TickNode:
    """A node whose job is registered."""
    made = TickNode(service)
    made.register()
    return made


@pytest.fixture
def other(rival: JobSchedulerService) -> TickNode:
    """Another node of the same program."""
    made = TickNode(rival, "node-b")
    made.register()
    return made


@pytest.fixture
def tick(database_url: str, node: TickNode) -> datetime:
    """The tick after the watermark of a job that has been known for an hour; it is due."""
    return known_for(database_url, HOUR) + MINUTE


# Registering


def test_registering_makes_a_job_known_from_now_on(database_url: str, node: TickNode) -> None:
    """C10.5, C10.7: its watermark is the instant of registration, so that a new job never runs for the past."""
    heard = node.register()
    state = heard.jobs[CODE]
    assert (state.fingerprint, state.registered_by, state.paused) == ("every minute", "node-a", False)
    assert timedelta(0) <= heard.clock - state.watermark < MINUTE
    past = state.watermark - timedelta(seconds=1)
    assert node.claim(past).verdict is Verdict.REMOVED
    assert count_rows(database_url) == 0


def test_registering_again_writes_nothing_about_a_job(database_url: str, node: TickNode, other: TickNode) -> None:
    """C10.6: each node of a fleet registers the same jobs when it starts."""
    before = execute(database_url, f"SELECT ctid, xmin, xmax, * FROM {JOBS}")
    assert other.register().replaced == ()
    assert execute(database_url, f"SELECT ctid, xmin, xmax, * FROM {JOBS}") == before


def test_the_newer_registration_rules_and_the_older_one_hears_of_it(
    database_url: str, node: TickNode, rival: JobSchedulerService
) -> None:
    """C10.6: identity is the code alone; a changed schedule updates in place, and the watermark stays."""
    watermark = known_for(database_url, HOUR)
    newer = TickNode(rival, "node-b", fingerprint="every hour")
    (replaced,) = newer.register().replaced
    assert (replaced.code, replaced.fingerprint, replaced.registered_by) == (CODE, "every minute", "node-a")
    assert newer.register().replaced == ()
    assert node.beat().jobs[CODE].fingerprint == "every hour"
    assert node.claim(watermark + MINUTE).verdict is Verdict.SUPERSEDED
    assert watermark_of(database_url) == watermark
    assert newer.claim(watermark + MINUTE).verdict is Verdict.WON


def test_many_jobs_are_registered_by_many_nodes_at_once(database_url: str) -> None:
    """C10.6: in one statement each, and nobody waits for anybody for ever."""
    codes = [f"job {n}" for n in range(200)]
    with tick_nodes(database_url, 8) as nodes:
        for n, each in enumerate(nodes):
            each.fingerprint = f"schedule {n}"
        heard = all_at_once([partial(each.register, *codes[:: n % 2 * 2 - 1]) for n, each in enumerate(nodes)])
    assert [len(each.jobs) for each in heard] == [200] * 8
    assert len(execute(database_url, f'SELECT DISTINCT "fingerprint" FROM {JOBS}')) == 1


def test_a_beat_tells_how_jobs_stand_and_misses_those_that_are_gone(database_url: str, node: TickNode) -> None:
    """C10.6: a row that was deleted by hand is missing from the answer, and the node comes back by itself."""
    execute(database_url, f"DELETE FROM {JOBS}")
    execute(database_url, 'DELETE FROM "public"."job-scheduler_nodes"')
    assert node.beat(offset=timedelta(days=9)).jobs == {}
    (seen,) = node.service.perform(operations.node_records(node.statements, now_boot_s=0))
    assert (seen.label, seen.clock_offset, seen.jobs) == ("node-a", timedelta(days=9), {CODE: "every minute"})
    assert node.register().jobs[CODE].fingerprint == "every minute"


def test_jobs_are_listed_with_the_living_nodes_that_run_them(
    database_url: str, node: TickNode, rival: JobSchedulerService
) -> None:
    """C10.6: who runs what, who disagrees, and which job nobody runs."""
    old = TickNode(rival, "node-b", fingerprint="older")
    old.register("orphan", CODE)
    node.register()
    execute(database_url, 'UPDATE "public"."job-scheduler_nodes" SET "jobs" = "jobs" - \'orphan\'')
    orphan, job = node.service.perform(operations.job_records(node.statements, MINUTE, now_boot_s=0))
    assert (orphan.code, orphan.orphaned, job.code, job.orphaned) == ("orphan", True, CODE, False)
    assert (job.nodes, job.disagreeing) == (("node-a", "node-b"), ("node-b",))
    assert (job.schedule, job.timezone, job.policy, job.paused_at) == ("* * * * *", "UTC", {}, None)
    execute(database_url, 'UPDATE "public"."job-scheduler_nodes" SET "seenAt" = "seenAt" - interval \'1 hour\'')
    assert all(
        each.orphaned for each in node.service.perform(operations.job_records(node.statements, MINUTE, now_boot_s=0))
    )
    assert node.service.perform(operations.forget_node(node.statements, node.life.node, now_boot_s=0))
    assert not node.service.perform(operations.forget_node(node.statements, node.life.node, now_boot_s=0))


# Claiming


def test_a_tick_that_is_due_is_won_and_its_row_keeps_it(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.1, C10.5: the run key and "scheduledAt" are the tick; the watermark moves with the row."""
    claimed = node.claim(tick)
    lease = won(claimed)
    row = row_of(database_url, lease.id)
    assert (row["scheduledAt"], row["runKey"], row["status"], row["outcome"]) == (tick, run_key(tick), "RUNNING", None)
    assert (row["owner"], row["leaseMs"], lease.attempt) == ("node-a", 60_000, 1)
    assert claimed.watermark == watermark_of(database_url) == tick
    run = node.service.find_run(lease.id)
    assert run is not None
    assert (run.scheduled_at, run.outcome, run.retry_at) == (tick, None, None)
    assert node.service.complete(lease)


def test_a_tick_that_was_decided_is_lost_and_says_to_whom(
    database_url: str, node: TickNode, other: TickNode, tick: datetime
) -> None:
    """C10.7, lessons A (ShedLock#6): a slower node hears how the run stands, an hour later, too; nothing is written."""
    lease = won(node.claim(tick))
    late = other.claim(tick)
    assert (late.verdict, late.watermark) == (Verdict.DECIDED, tick)
    assert late.lost is not None
    assert (late.lost.reason, late.lost.holder) == (NotAcquiredReason.RUNNING, "node-a")
    node.service.complete(lease)
    make_old(database_url, HOUR)
    late = other.claim(tick)
    assert late.lost is not None
    assert late.lost.reason is NotAcquiredReason.SUCCEEDED


@pytest.mark.parametrize(("ahead_ms", "verdict"), [(200, Verdict.WON), (2_000, Verdict.EARLY)])
def test_a_tick_may_be_claimed_a_little_early(
    database_url: str, node: TickNode, ahead_ms: int, verdict: Verdict
) -> None:
    """C10.2, lessons A (pgbus#62): by the database's clock; further ahead nothing is written."""
    ahead = node.beat().clock + timedelta(milliseconds=ahead_ms)
    assert node.claim(ahead.replace(microsecond=ahead.microsecond // 1000 * 1000)).verdict is verdict
    assert count_rows(database_url) == (verdict is Verdict.WON)


def test_a_tick_is_not_claimed_before_those_that_it_follows(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.5, C10.7: else the watermark would pass over ticks that nobody has decided."""
    later = tick + 3 * MINUTE
    assert node.claim(later, previous_tick=later - MINUTE).verdict is Verdict.GAP
    assert watermark_of(database_url) == tick - MINUTE
    assert node.claim(tick, previous_tick=tick - MINUTE).verdict is Verdict.WON


def test_a_job_that_is_not_registered_is_not_run(node: TickNode, tick: datetime) -> None:
    """C10.6."""
    claimed = node.claim(tick, "no such job")
    assert (claimed.verdict, claimed.watermark) == (Verdict.UNKNOWN, None)


@pytest.mark.parametrize(
    ("prepare", "changes", "verdict"),
    [
        (lambda node: node.pause(), {}, Verdict.PAUSED),
        (lambda node: None, {"max_lateness": MINUTE}, Verdict.TOO_LATE),
    ],
)
def test_a_tick_that_does_not_run_leaves_a_row_that_says_why(
    database_url: str,
    node: TickNode,
    tick: datetime,
    prepare: Callable[[TickNode], Any],
    changes: dict[str, Any],
    verdict: Verdict,
) -> None:
    """C10.5: SUCCESS to a NestJS node, so that it must not run it, and the truth in "outcome"."""
    prepare(node)
    claimed = node.claim(tick, **changes)
    assert (claimed.verdict, claimed.won, claimed.watermark) == (verdict, None, tick)
    row = tick_row(database_url, tick)
    assert (row["status"], row["outcome"], row["attempt"]) == ("SUCCESS", verdict.value, 0)
    assert (row["owner"], row["startedAt"], row["scheduledAt"]) == (None, None, tick)
    assert row["finishedAt"] is not None
    loss = node.service.acquire(options_for(tick))
    assert isinstance(loss, JobNotAcquired)
    assert loss.reason is NotAcquiredReason.SUCCEEDED


def test_pausing_and_resuming(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.5: it says who paused it and why; a tick of the meantime does not come back."""
    assert node.pause()
    (job,) = node.service.perform(operations.job_records(node.statements, MINUTE, now_boot_s=0))
    assert (job.paused_by, job.pause_reason) == ("ops", "maintenance")
    assert node.beat().jobs[CODE].paused
    assert node.claim(tick).verdict is Verdict.PAUSED
    assert node.resume()
    assert not node.beat().jobs[CODE].paused
    assert node.claim(tick).verdict is Verdict.DECIDED
    assert node.claim(tick + MINUTE).verdict is Verdict.WON
    assert not node.pause("no such job")
    assert not node.resume("no such job")


# Overlap


def test_allowed_overlap(node: TickNode, tick: datetime) -> None:
    """C10.5."""
    assert node.claim(tick, overlap="allow").verdict is Verdict.WON
    assert node.claim(tick + MINUTE, overlap="allow").verdict is Verdict.WON


def test_skipped_overlap(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.5: while a run is under way the next tick leaves a row; once it has ended, ticks run again."""
    lease = won(node.claim(tick, overlap="skip"))
    assert node.claim(tick + MINUTE, overlap="skip").verdict is Verdict.OVERLAPPED
    assert tick_row(database_url, tick + MINUTE)["outcome"] == "overlapped"
    node.service.complete(lease)
    assert node.claim(tick + 2 * MINUTE, overlap="skip").verdict is Verdict.WON


def test_a_run_whose_node_died_is_still_under_way(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.4, C10.5: it will be taken up again, and would overlap then."""
    won(node.claim(tick, overlap="skip"))
    expire(database_url, tick)
    assert node.claim(tick + MINUTE, overlap="skip").verdict is Verdict.OVERLAPPED


def test_one_waits_in_the_queue_and_goes_first(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.5: `queue`: one tick waits, the next is overlapped; who waits runs before later ticks do."""
    lease = won(node.claim(tick, overlap="queue"))
    assert node.claim(tick + MINUTE, overlap="queue").verdict is Verdict.QUEUED
    assert node.claim(tick + 2 * MINUTE, overlap="queue").verdict is Verdict.OVERLAPPED
    row = tick_row(database_url, tick + MINUTE)
    assert (row["status"], row["outcome"], row["attempt"], row["finishedAt"]) == ("FAIL", "queued", 0, None)
    waiting = options_for(tick + MINUTE)
    assert node.retake(waiting, overlap="queue").verdict is Verdict.BUSY
    node.service.complete(lease)
    assert node.claim(tick + 3 * MINUTE, overlap="queue").verdict is Verdict.QUEUED
    assert [run.lock_key for run in node.unfinished().runs] == [options_for(tick + n * MINUTE).lock_key for n in (1, 3)]
    taken = won(node.retake(waiting, overlap="queue"))
    assert (taken.attempt, taken.previous) == (1, None)
    assert tick_row(database_url, tick + MINUTE)["outcome"] is None
    assert node.service.list_attempts(taken.id) == []


def test_a_tick_that_is_caught_up_with_waits_its_turn(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.5: `catch_up` claims write nothing while another run is under way."""
    lease = won(node.claim(tick, overlap="skip", catch_up=True))
    assert node.claim(tick + MINUTE, overlap="skip", catch_up=True).verdict is Verdict.BUSY
    assert (count_rows(database_url), watermark_of(database_url)) == (1, tick)
    node.service.complete(lease)
    assert node.claim(tick + MINUTE, overlap="skip", catch_up=True).verdict is Verdict.WON


# A claim that is sent twice


@pytest.mark.parametrize("how", ["won", "paused", "queued"])
def test_a_claim_whose_answer_was_lost_is_recognised(
    database_url: str, node: TickNode, tick: datetime, how: str
) -> None:
    """C4.6: the same statement with the same token says what the first one came to, and decides nothing anew."""
    if how == "paused":
        node.pause()
    if how == "queued":
        won(node.claim(tick, overlap="queue"))
        tick += MINUTE
    wanted = TickClaim(
        options=options_for(tick), tick=tick, previous_tick=None, fingerprint="every minute", overlap="queue"
    )
    token = uuid4()
    first = node.service.perform(claim_attempt(node.statements, wanted, token, "node-a"))
    again = node.service.perform(claim_attempt(node.statements, wanted, token, "node-a"))
    assert first.verdict is again.verdict is Verdict(how)
    assert first.won == again.won


# The watermark


def test_the_watermark_never_goes_back(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.7: neither by a claim of an earlier tick nor by a decision."""
    won(node.claim(tick + MINUTE))
    assert node.claim(tick).verdict is Verdict.REMOVED
    assert node.decide([tick], tick - MINUTE).verdict is Verdict.DECIDED
    assert watermark_of(database_url) == tick + MINUTE


def test_a_removed_tick_never_runs_again(database_url: str, node: TickNode, other: TickNode, tick: datetime) -> None:
    """C10.7: tick 2 claimed, all removed, then a lagging node claims tick 1: refused, and it says why."""
    node.service.complete(won(node.claim(tick)))
    node.service.complete(won(node.claim(tick + MINUTE)))
    make_old(database_url)
    assert node.prune(30 * DAY) == 2
    for lagging in (tick, tick + MINUTE):
        refused = other.claim(lagging)
        assert (refused.verdict, refused.won) == (Verdict.REMOVED, None)
        assert refused.lost is not None
        assert refused.lost.reason is NotAcquiredReason.REMOVED
        plain = other.service.acquire(options_for(lagging))
        assert isinstance(plain, JobNotAcquired)
        assert plain.reason is NotAcquiredReason.REMOVED
    assert count_rows(database_url) == 0
    assert node.claim(tick + 2 * MINUTE).verdict is Verdict.WON


def test_a_plain_acquire_is_barred_by_ticks_alone(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.7: a later tick, another code, another kind of key and an INITIAL run are acquired as ever."""
    service = node.service
    for key in ("2026", "manual:x", run_key(tick)[:-1], run_key(tick).replace("Z", "z")):
        assert service.acquire(JobAcquireOptions(code=CODE, run_key=key)).acquired
    assert service.acquire(JobAcquireOptions(code=CODE, type="INITIAL")).acquired
    assert service.acquire(options_for(tick - HOUR, "another")).acquired
    assert service.acquire(options_for(tick)).acquired
    assert not service.acquire(options_for(tick - MINUTE)).acquired


def test_a_plain_acquire_of_a_removed_tick_does_not_wait(node: TickNode, tick: datetime) -> None:
    """C8.1: waiting would not bring it back."""
    waited = node.service.run_exclusive(options_for(tick - HOUR), lambda: 1, wait=timedelta(seconds=30))
    assert waited.not_acquired is not None
    assert waited.not_acquired.reason is NotAcquiredReason.REMOVED


# Deciding in bulk


def test_5000_ticks_are_decided_at_once(database_url: str, node: TickNode) -> None:
    """C10.5: each with a row that says why; one statement; a second one with the same watermark decides nothing."""
    watermark = known_for(database_url, timedelta(days=10))
    ticks = [watermark + n * MINUTE for n in range(1, 5_001)]
    decided = node.decide(ticks, watermark)
    assert (decided.verdict, decided.written, decided.watermark) == (Verdict.WON, 5_000, ticks[-1])
    assert execute(
        database_url, f'SELECT DISTINCT "status"::text, "outcome", "attempt", count(*) FROM {TABLE} GROUP BY 1, 2, 3'
    ) == [("SUCCESS", "skipped", 0, 5_000)]
    again = node.decide(ticks, watermark)
    assert (again.verdict, again.written) == (Verdict.DECIDED, 0)


def test_a_decision_keeps_runs_that_are_there(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.5: a NestJS node ran one of the ticks: its row stays, and bears the tick now."""
    with NestNode(database_url) as nest:
        assert nest.acquire(options_for(tick).lock_key, CODE)
    decided = node.decide([tick, tick + MINUTE], tick - MINUTE, Outcome.TOO_LATE)
    assert (decided.verdict, decided.written) == (Verdict.WON, 1)
    row = tick_row(database_url, tick)
    assert (row["status"], row["outcome"], row["scheduledAt"], row["runKey"]) == ("RUNNING", None, tick, run_key(tick))


def test_a_decision_may_pass_over_ticks_without_rows(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.5: where there are too many for a row each."""
    assert node.decide([], tick - MINUTE, moves_to=tick + 30 * MINUTE).verdict is Verdict.WON
    assert (count_rows(database_url), watermark_of(database_url)) == (0, tick + 30 * MINUTE)
    node.fingerprint = "older"
    assert node.decide([], tick + 30 * MINUTE, moves_to=tick + HOUR).verdict is Verdict.SUPERSEDED
    assert node.decide([], tick, code="unknown", moves_to=tick + HOUR).verdict is Verdict.UNKNOWN


# Taking up what is unfinished


def test_a_run_whose_node_died_is_taken_up_under_the_same_key(
    database_url: str, node: TickNode, other: TickNode, tick: datetime
) -> None:
    """C10.4, lessons A (procrastinate#1495): with the next attempt, a larger fencing token, and what came before."""
    first = won(node.claim(tick))
    node.service.checkpoint(first, {"done": 3})
    assert other.unfinished().runs == ()
    assert other.retake(options_for(tick)).verdict is Verdict.LOST
    expire(database_url, tick)
    (found,) = other.unfinished().runs
    assert (found.lock_key, found.scheduled_at, found.attempt, found.died) == (first.idempotency_key, tick, 1, True)
    second = won(other.retake(options_for(tick)))
    assert (second.id, second.attempt, second.fencing_token > first.fencing_token) == (first.id, 2, True)
    assert second.previous is not None
    assert (second.previous.holder, second.previous.checkpoint) == ("node-a", {"done": 3})
    assert not node.service.heartbeat(first)
    assert other.service.complete(second)


def test_a_failed_run_is_due_when_its_retry_is(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.4, C10.5: not before, by the database's clock; the answer tells when the next is due."""
    lease = won(node.claim(tick))
    with pytest.raises(ZeroDivisionError):
        node.service.run_acquired(
            lease, lambda: 1 / 0, ending=lambda error, _: Ending(outcome="failed", retry_ms=90_000)
        )
    run = node.service.find_run(lease.id)
    assert run is not None
    assert (run.status, run.outcome, run.data) == (
        JobSchedulerStatus.FAIL,
        "failed",
        {"error": "ZeroDivisionError: division by zero"},
    )
    assert run.retry_at is not None
    assert run.finished_at is not None
    assert abs(run.retry_at - run.finished_at - timedelta(seconds=90)) < timedelta(seconds=1)
    found = node.unfinished()
    assert (found.runs, found.next_retry_at) == ((), run.retry_at)
    assert node.retake(options_for(tick)).verdict is Verdict.LOST
    execute(database_url, f'UPDATE {TABLE} SET "retryAt" = "retryAt" - interval \'2 min\'')
    assert [each.died for each in node.unfinished().runs] == [False]
    again = won(node.retake(options_for(tick)))
    row = row_of(database_url, again.id)
    assert (again.attempt, row["outcome"], row["retryAt"]) == (2, None, None)


def test_a_run_that_used_up_its_attempts_is_exhausted_once(
    database_url: str, node: TickNode, other: TickNode, tick: datetime
) -> None:
    """C10.4: it is reported by one node, its woken holder hears that it was released, and nobody takes it up again."""
    lease = won(node.claim(tick, overlap="skip"))
    expire(database_url, tick)
    assert other.retake(options_for(tick), max_attempts=1).verdict is Verdict.EXHAUSTED
    assert other.retake(options_for(tick), max_attempts=1).verdict is Verdict.LOST
    row = tick_row(database_url, tick)
    assert (row["status"], row["outcome"], row["ownerToken"], row["attempt"]) == (
        "FAIL",
        "exhausted",
        lease.owner_token,
        1,
    )
    assert node.unfinished().runs == ()
    assert not node.service.heartbeat(lease)
    assert lease.hold is not None
    assert lease.hold.lost_reason == "released"
    assert node.claim(tick + MINUTE, overlap="skip").verdict is Verdict.WON
    assert node.service.acquire(options_for(tick)).acquired
    assert tick_row(database_url, tick)["outcome"] is None


def test_a_retake_waits_for_another_run_of_the_job(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.5: overlap holds for retries, too."""
    node.service.fail(won(node.claim(tick, overlap="skip")))
    later = won(node.claim(tick + MINUTE, overlap="skip"))
    assert node.retake(options_for(tick), overlap="skip").verdict is Verdict.BUSY
    assert node.retake(options_for(tick), overlap="allow").verdict is Verdict.WON
    node.service.complete(later)


def test_a_paused_job_is_not_taken_up(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.5: what is unfinished waits until it is resumed."""
    node.service.fail(won(node.claim(tick)))
    node.pause()
    assert node.unfinished().runs == ()
    assert node.retake(options_for(tick)).verdict is Verdict.PAUSED
    node.resume()
    assert node.retake(options_for(tick)).verdict is Verdict.WON


def test_a_locked_row_is_not_waited_for(database_url: str, node: TickNode, tick: datetime) -> None:
    """C4.1, C7.3: nobody takes up a run that a guard keeps, expired or not; asked again, it says the same."""
    won(node.claim(tick))
    expire(database_url, tick)
    with psycopg.connect(database_url) as holder:
        holder.execute(f"SELECT FROM {TABLE} FOR KEY SHARE")
        assert node.retake_once(options_for(tick)).verdict is Verdict.CONTENDED
        assert node.retake_once(options_for(tick), max_attempts=1).verdict is Verdict.CONTENDED
    assert node.retake(options_for(tick)).verdict is Verdict.WON


def test_only_jobs_that_were_asked_for_are_found(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.6, lessons D (db-scheduler#804): a node without the job's code does not take it."""
    node.register("another", CODE)
    known_for(database_url, HOUR, "another")
    for code in ("another", CODE):
        node.service.fail(won(node.claim(tick, code)))
    assert [run.code for run in node.unfinished().runs] == [CODE]
    assert sorted(run.code for run in node.unfinished(CODE, "another").runs) == ["another", CODE]


def test_one_job_with_many_unfinished_runs_hides_no_other(database_url: str, node: TickNode) -> None:
    """C10.4: a few of each job, oldest first."""
    node.register("another", CODE)
    watermark = known_for(database_url, timedelta(days=2))
    ticks = [watermark + n * MINUTE for n in range(1, 301)]
    node.decide(ticks, watermark)
    execute(database_url, f'UPDATE {TABLE} SET "status" = \'FAIL\', "outcome" = NULL')
    last = known_for(database_url, HOUR, "another") + MINUTE
    node.service.fail(won(node.claim(last, "another")))
    found = node.unfinished(CODE, "another").runs
    assert [run.scheduled_at for run in found] == [*ticks[:20], last]


# By hand


def test_a_triggered_run_is_taken_up_by_whoever_runs_the_job(database_url: str, node: TickNode, tick: datetime) -> None:
    """C10.6: a run of its own, marked, which moves no watermark; of a job that nobody registered there is none."""
    watermark = watermark_of(database_url)
    key = f"manual:{run_key(tick)}:0a1b2c3d"
    triggered = node.trigger(key)
    assert (triggered.known, triggered.new) == (True, True)
    assert node.trigger(key).new is False
    assert node.trigger(key, "no such job") == type(triggered)(known=False, new=False, scheduled_at=None)
    (found,) = node.unfinished().runs
    assert (found.run_key, found.attempt, found.outcome, found.died) == (key, 0, "triggered", False)
    assert found.scheduled_at == triggered.scheduled_at
    lease = won(node.retake(JobAcquireOptions(code=CODE, run_key=key)))
    assert (lease.attempt, watermark_of(database_url)) == (1, watermark)
    at = node.trigger(f"{key}2", at=tick)
    assert at.scheduled_at == tick


# NestJS nodes


def test_a_tick_that_a_nestjs_node_won_is_noted_and_finished_when_it_dies(
    database_url: str, node: TickNode, tick: datetime
) -> None:
    """C10.1, C10.4: it computes the same key; its row bears the tick from then on, and is taken up as attempt 2."""
    with NestNode(database_url) as nest:
        assert nest.acquire(options_for(tick).lock_key, CODE)
        lost = node.claim(tick)
        assert (lost.verdict, lost.watermark) == (Verdict.LOST, tick)
        assert lost.lost is not None
        assert lost.lost.reason is NotAcquiredReason.RUNNING
        row = tick_row(database_url, tick)
        assert (row["scheduledAt"], row["runKey"], row["ownerToken"]) == (tick, run_key(tick), nest.owner_token)
        assert nest.heartbeat()
        expire(database_url, tick)
        (found,) = node.unfinished().runs
        assert (found.died, found.attempt) == (True, 1)
        assert won(node.retake(options_for(tick))).attempt == 2
        assert not nest.complete()


def test_a_nestjs_nodes_takeover_forgets_how_the_last_attempt_ended(
    database_url: str, node: TickNode, tick: datetime
) -> None:
    """C4.3: "outcome" and "retryAt" are its predecessor's; a run that only waited has no attempt to remember."""
    lease = won(node.claim(tick))
    with pytest.raises(ZeroDivisionError):
        node.service.run_acquired(lease, lambda: 1 / 0, ending=lambda *_: Ending(outcome="failed", retry_ms=900_000))
    node.trigger("manual:x")
    waiting = JobAcquireOptions(code=CODE, run_key="manual:x").lock_key
    with NestNode(database_url) as nest:
        assert nest.acquire(options_for(tick).lock_key, CODE)
        row = tick_row(database_url, tick)
        assert (row["outcome"], row["retryAt"], row["attempt"]) == (None, None, 2)
        assert nest.complete()
        assert nest.acquire(waiting, CODE)
    assert row_of(database_url, waiting)["attempt"] == 1
    assert node.service.list_attempts(waiting) == []
    assert [each.attempt for each in node.service.list_attempts(lease.id)] == [1]
    assert node.claim(tick).lost is not None


def test_a_row_that_is_locked_while_it_should_be_noted_is_looked_at_again(
    database_url: str, node: TickNode, tick: datetime
) -> None:
    """C10.4: the claim is decided all the same, and says that it is lost."""
    with NestNode(database_url) as nest:
        assert nest.acquire(options_for(tick).lock_key, CODE)
    with psycopg.connect(database_url) as holder:
        holder.execute(f"SELECT FROM {TABLE} FOR UPDATE")
        assert node.claim(tick).verdict is Verdict.LOST
    assert node.claim(tick).verdict is Verdict.DECIDED
    assert tick_row(database_url, tick)["scheduledAt"] == tick


# Endings


def test_a_success_records_what_its_ending_tells(node: TickNode, tick: datetime) -> None:
    """C6.3, C10.5: outcome and data; data that cannot be stored never costs the success."""
    told = node.service.run_acquired(
        won(node.claim(tick)), lambda: 12, ending=lambda _, value: Ending(outcome="succeeded", data={"rows": value})
    )
    lease = won(node.claim(tick + MINUTE))
    node.service.run_acquired(lease, lambda: 12, ending=lambda _, value: Ending(data={"rows": float("nan")}))
    runs = [node.service.find_run(options_for(tick + n * MINUTE).lock_key) for n in (0, 1)]
    assert told == 12
    assert [(run.status.value, run.outcome, run.data) for run in runs if run] == [
        ("SUCCESS", "succeeded", {"rows": 12}),
        ("SUCCESS", None, None),
    ]


async def test_the_async_service_wins_and_runs_the_same(database_url: str, node: TickNode, tick: datetime) -> None:
    """C1.2: `perform`, `win` and `run_acquired`, awaited."""
    wanted = TickClaim(options=options_for(tick), tick=tick, previous_tick=None, fingerprint="every minute")
    async with AsyncJobSchedulerService(database_url, owner_label="node-c") as service:
        claimed = await service.win(partial(claim_attempt, node.statements, wanted))

        async def act() -> int:
            raise OSError("gone")

        with pytest.raises(OSError, match="gone"):
            await service.run_acquired(won(claimed), act, ending=lambda *_: Ending(outcome="failed", retry_ms=0))
        found = await service.perform(operations.unfinished(node.statements, {CODE: 60_000}, now_boot_s=1e12))
    assert [run.outcome for run in found.runs] == ["failed"]


# Bad weather


def test_a_job_row_that_somebody_has_locked_is_not_waited_for(
    database_url: str, node: TickNode, tick: datetime
) -> None:
    """C4.1: contended, at once, and nothing written; asked again when it is free, it is won."""
    with psycopg.connect(database_url) as holder:
        holder.execute(f"SELECT FROM {JOBS} FOR UPDATE")
        assert node.claim_once(tick).verdict is Verdict.CONTENDED
        assert node.decide([tick], tick - MINUTE).verdict is Verdict.CONTENDED
    assert count_rows(database_url) == 0
    assert node.claim(tick).verdict is Verdict.WON
