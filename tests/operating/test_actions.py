"""What operators do: release, retry, skip, trigger, pause, resume; once, never against a rival (C5.5, C6.1, C10.4).

The history of who did what and why is kept with the run, and goes with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tenure import (
    InvalidJobOptionsError,
    JobAcquired,
    JobAcquireOptions,
    JobExecutionLease,
    JobSchedulerService,
    LostJobLeaseError,
    LostReason,
)
from tenure.operating import Action, ActionAnswer, ActionKind, ActionVerdict, RunState
from tenure.scheduling import Cron, Job, JobRun, Outcome, Retry, Scheduler
from tenure.scheduling.values import Verdict
from tests.operating.operator import Operator
from tests.support.racing import all_at_once
from tests.support.rows import TABLE, execute, row_of
from tests.support.scheduling import CODE, MINUTE, TickNode, known_for, options_for, tick_row, watermark_of, won
from tests.support.waiting import eventually

ACTIONS = '"public"."job-scheduler_actions"'
HOUR = timedelta(hours=1)
OPTIONS = JobAcquireOptions(code="plain", run_key="tick", lease_ms=60_000, heartbeat_ms=50)


def at_once(*works: Callable[[], Any]) -> list[Any]:
    return all_at_once(works)


def acquired(service: JobSchedulerService, options: JobAcquireOptions = OPTIONS) -> JobAcquired:
    result = service.acquire(options)
    assert isinstance(result, JobAcquired)
    return result


def noted(url: str) -> list[tuple[str, str, str]]:
    return execute(url, f'SELECT "action", "by", "reason" FROM {ACTIONS} ORDER BY "id"')


def next_tick(url: str) -> datetime:
    return known_for(url, 10 * MINUTE) + MINUTE


def exhausted(node: TickNode, url: str) -> Any:
    """Leave a run that has used up its attempts, and give its row."""
    tick = next_tick(url)
    lease = won(node.claim(tick))
    assert node.service.fail(lease, {"error": "OSError: no route"})
    assert node.retake(options_for(tick), max_attempts=1).verdict is Verdict.EXHAUSTED
    return row_of(url, lease.id)


# Release


def test_a_released_run_is_free_at_once_and_its_holder_is_fenced_and_told(
    service: JobSchedulerService, operator: Operator, database_url: str
) -> None:
    """C5.5: `LostReason.RELEASED`, from renewal, by hand and at the end; nothing is settled any more."""
    lease = acquired(service)
    answer = operator.release(lease.id)
    assert (answer.verdict, answer.kind, answer.code) == (ActionVerdict.DONE, ActionKind.RELEASED, "plain")
    assert answer.run is not None
    assert (answer.run.state, answer.run.holder, answer.run.attempt) == (RunState.RUNNING, "node-a", 1)
    row = row_of(database_url, lease.id)
    assert (row["status"], row["outcome"], row["retryAt"], row["attempt"]) == ("FAIL", "released", None, 1)
    assert row["ownerToken"] != lease.owner_token
    assert row["fencingToken"] == lease.fencing_token
    assert row["data"] == {"released": True, "by": "alice", "reason": "because"}
    assert not service.complete(lease)
    assert lease.hold is not None
    assert lease.hold.lost_reason is LostReason.RELEASED
    assert acquired(operator.service).attempt == 2


def test_a_callback_under_renewal_hears_that_it_was_released(
    service: JobSchedulerService, operator: Operator, database_url: str
) -> None:
    """C5.5: also where another node has the run by the time of the next renewal."""
    heard: list[LostReason | None] = []

    def callback(lease: JobExecutionLease) -> None:
        assert operator.release(lease.id).done
        assert acquired(operator.service).attempt == 2
        eventually(lambda: lease.lost)
        heard.append(lease.lost)
        lease.check()

    with pytest.raises(LostJobLeaseError) as caught:
        service.run_exclusive(OPTIONS, callback)
    assert heard == [LostReason.RELEASED]
    assert caught.value.reason is LostReason.RELEASED
    assert row_of(database_url, OPTIONS.lock_key)["status"] == "RUNNING"


@pytest.mark.parametrize("asked", ["heartbeat", "checkpoint", "guard", "complete"])
def test_whatever_a_released_holder_asks_it_is_told_so(
    service: JobSchedulerService, operator: Operator, database_url: str, asked: str
) -> None:
    """C5.5, C7.2, C7.3, C7.6: in a caller's transaction, too."""
    lease = acquired(service)
    held = JobExecutionLease.of(lease)
    service._held(lease, JobExecutionLease, service._save)
    assert operator.release(lease.id).done
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT 1")
        calls: dict[str, Callable[[], object]] = {
            "heartbeat": lambda: service.heartbeat(lease),
            "checkpoint": lambda: held.checkpoint({"done": 1}),
            "guard": lambda: held.guard(connection),
            "complete": lambda: service.complete(lease, connection=connection),
        }
        if asked == "heartbeat":
            assert calls[asked]() is False
        else:
            with pytest.raises(LostJobLeaseError) as caught:
                calls[asked]()
            assert caught.value.reason is LostReason.RELEASED
    assert held.lost is LostReason.RELEASED


def test_the_attempt_that_was_released_is_remembered_as_that(service: JobSchedulerService, operator: Operator) -> None:
    """C7.6: the next attempt finds who ended the one before it, and why; the history shows all of it."""
    lease = acquired(service)
    operator.release(lease.id)
    again = acquired(operator.service)
    assert again.previous is not None
    assert again.previous.data == {"released": True, "by": "alice", "reason": "because"}
    assert again.fencing_token > lease.fencing_token
    life = operator.life(lease.id)
    assert [(each.attempt, each.state, each.holder) for each in life.attempts] == [
        (1, RunState.RELEASED, "node-a"),
        (2, RunState.RUNNING, "node-b"),
    ]
    (action,) = life.actions
    assert (action.kind, action.attempt, action.by, action.reason) == (ActionKind.RELEASED, 1, "alice", "because")


def test_a_release_uses_up_no_attempt(node: TickNode, operator: Operator, database_url: str) -> None:
    """C10.5: the scheduler takes the run up once more, however often it was tried."""
    tick = next_tick(database_url)
    lease = won(node.claim(tick))
    operator.release(lease.id)
    (found,) = node.unfinished().runs
    assert (found.outcome, found.attempt, found.died) == (Outcome.RELEASED, 1, False)
    assert won(node.retake(options_for(tick), max_attempts=2)).attempt == 2


@pytest.mark.parametrize("settled", ["complete", "fail"])
def test_a_run_that_has_ended_is_not_released(
    service: JobSchedulerService, operator: Operator, database_url: str, settled: str
) -> None:
    """C6.1: what was recorded stays, and nothing is noted."""
    lease = acquired(service)
    assert getattr(service, settled)(lease)
    before = row_of(database_url, lease.id)
    assert operator.release(lease.id).verdict is ActionVerdict.NOT_RUNNING
    assert row_of(database_url, lease.id) == before
    assert noted(database_url) == []


def test_only_the_attempt_that_was_meant_is_released(
    service: JobSchedulerService, operator: Operator, database_url: str
) -> None:
    """A takeover between looking and acting is told, not undone."""
    lease = acquired(service)
    service.fail(lease)
    again = acquired(service)
    answer = operator.release(lease.id, attempt=1)
    assert answer.verdict is ActionVerdict.CHANGED
    assert answer.run is not None
    assert answer.run.attempt == 2
    assert service.heartbeat(again)
    assert operator.release(lease.id, attempt=2).done


def test_a_row_that_a_transaction_holds_is_busy(
    service: JobSchedulerService, operator: Operator, database_url: str
) -> None:
    """C7.3: a guard is not broken; when it is over, the release goes through."""
    lease = acquired(service)
    with psycopg.connect(database_url) as connection:
        connection.execute(f'SELECT FROM {TABLE} WHERE "id" = %s FOR KEY SHARE'.encode(), [lease.id])
        assert operator.release(lease.id).verdict is ActionVerdict.BUSY
        assert service.heartbeat(lease)
    assert operator.release(lease.id).done


def test_renewals_do_not_keep_a_release_from_its_row(service: JobSchedulerService, operator: Operator) -> None:
    """C5.2: they hold the row for a moment only, and it is looked at again."""
    lease = acquired(service)
    stop = threading.Event()

    def renew() -> None:
        while not stop.is_set():
            service.heartbeat(lease)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        assert operator.release(lease.id).done
    finally:
        stop.set()
        thread.join()


def test_of_a_release_and_an_end_at_once_one_counts(
    service: JobSchedulerService, operator: Operator, database_url: str
) -> None:
    """C6.1: forty times; whichever came first, the other is told, and the row says one thing."""
    for tick in range(40):
        lease = acquired(service, JobAcquireOptions(code="race", run_key=str(tick)))
        completed, answer = at_once(partial(service.complete, lease), partial(operator.release, lease.id))
        assert isinstance(answer, ActionAnswer)
        row = row_of(database_url, lease.id)
        assert completed is not answer.done
        assert (row["status"], row["outcome"]) == (("SUCCESS", None) if completed else ("FAIL", "released"))


def test_an_unknown_run_is_told(operator: Operator) -> None:
    """C11."""
    for act in (operator.release, operator.retry):
        answer = act(uuid4())
        assert (answer.verdict, answer.run, answer.code) == (ActionVerdict.UNKNOWN, None, None)


# Sent twice


@pytest.mark.parametrize("kind", ["release", "retry", "skip", "trigger", "pause", "resume"])
def test_an_action_whose_answer_was_lost_is_done_once(
    node: TickNode, operator: Operator, database_url: str, kind: str
) -> None:
    """C4.6, C6.4: the same action again says that it is done, changes nothing and notes nothing."""
    tick = next_tick(database_url)
    lease = won(node.claim(tick))
    if kind in ("retry", "skip"):
        assert node.service.fail(lease)
        execute(database_url, f"UPDATE {TABLE} SET \"retryAt\" = clock_timestamp() + INTERVAL '1 hour'")
    action = operator.action()
    acts: dict[str, Callable[[], ActionAnswer]] = {
        "release": lambda: operator.release(lease.id, action),
        "retry": lambda: operator.retry(lease.id, action),
        "skip": lambda: operator.skip(CODE, tick, action),
        "trigger": lambda: operator.trigger(CODE, action),
        "pause": lambda: operator.pause(CODE, action),
        "resume": lambda: operator.resume(CODE, action),
    }
    assert acts[kind]().done
    tables = (TABLE, ACTIONS, '"public"."job-scheduler_jobs"')
    before = [execute(database_url, f"SELECT * FROM {table} ORDER BY 1") for table in tables]
    assert acts[kind]().done
    assert [execute(database_url, f"SELECT * FROM {table} ORDER BY 1") for table in tables] == before
    assert len(noted(database_url)) == 1


# Retry


def test_a_run_that_used_up_its_attempts_is_due_again(node: TickNode, operator: Operator, database_url: str) -> None:
    """C10.4: one more attempt, and how the last one ended is still known."""
    run = exhausted(node, database_url)
    assert node.unfinished().runs == ()
    answer = operator.retry(run["id"])
    assert answer.done
    assert answer.run is not None
    assert (answer.run.state, answer.run.error) == (RunState.EXHAUSTED, "OSError: no route")
    assert (answer.job_paused, answer.job_has_nodes) == (False, True)
    (found,) = node.unfinished().runs
    assert found.outcome == Outcome.RETRIED
    assert won(node.retake(options_for(found.scheduled_at), max_attempts=2)).attempt == 2
    life = operator.life(run["id"])
    assert [(each.attempt, each.state, each.error) for each in life.attempts] == [
        (1, RunState.EXHAUSTED, "OSError: no route"),
        (2, RunState.RUNNING, None),
    ]
    assert [action.kind for action in life.actions] == [ActionKind.RETRIED]


def test_a_scheduler_takes_up_a_run_that_is_retried(
    service: JobSchedulerService, operator: Operator, database_url: str
) -> None:
    """C10.4: by itself, beyond the attempts that its job allows."""
    tried: list[int] = []
    mended = threading.Event()

    def sync(run: JobRun) -> None:
        tried.append(run.attempt)
        if not mended.is_set():
            raise OSError("no route")

    scheduler = Scheduler(service, poll=timedelta(milliseconds=50), retention=None)
    scheduler.add(
        Job(code="retried", schedule=Cron("0 0 1 1 *"), callback=sync, retry=Retry(max_attempts=1), overlap="allow")
    )
    with scheduler:
        eventually(lambda: operator.overview().jobs)
        triggered = operator.trigger("retried")
        assert triggered.done
        assert triggered.run is not None
        run = triggered.run
        eventually(lambda: operator.life(run.id).state is RunState.EXHAUSTED)
        mended.set()
        assert operator.retry(run.id).done
        eventually(lambda: operator.life(run.id).state is RunState.SUCCEEDED)
    assert tried == [1, 2]
    assert [each.state for each in operator.life(run.id).attempts] == [RunState.EXHAUSTED, RunState.SUCCEEDED]


def test_a_failed_run_that_waits_is_due_at_once(node: TickNode, operator: Operator, database_url: str) -> None:
    """C10.5: its pause is over; one that is due already is left alone, and so is one that waits to be started."""
    lease = won(node.claim(next_tick(database_url)))
    assert node.service.fail(lease)
    assert operator.retry(lease.id).verdict is ActionVerdict.DUE
    execute(database_url, f"UPDATE {TABLE} SET \"retryAt\" = clock_timestamp() + INTERVAL '1 hour'")
    assert node.unfinished().runs == ()
    assert operator.retry(lease.id).done
    assert len(node.unfinished().runs) == 1
    triggered = operator.trigger(CODE)
    assert triggered.run is not None
    assert operator.retry(triggered.run.id).verdict is ActionVerdict.DUE
    assert [action for action, *_ in noted(database_url)] == ["retried", "triggered"]


def test_a_run_that_succeeded_is_done_again_only_by_force(
    node: TickNode, operator: Operator, database_url: str
) -> None:
    """C4.1, C7.1: SUCCESS stays locked; who insists gets another attempt under the same key."""
    tick = next_tick(database_url)
    lease = won(node.claim(tick))
    assert node.service.complete(lease, {"rows": 3})
    before = row_of(database_url, lease.id)
    assert operator.retry(lease.id).verdict is ActionVerdict.SUCCEEDED
    assert row_of(database_url, lease.id) == before
    assert operator.retry(lease.id, force=True).done
    again = won(node.retake(options_for(tick)))
    assert again.attempt == 2
    assert again.idempotency_key == options_for(tick).lock_key
    assert again.previous is not None
    assert again.previous.data == {"rows": 3}
    assert [each.state for each in operator.life(lease.id).attempts] == [RunState.SUCCEEDED, RunState.RUNNING]


def test_a_tick_that_never_ran_is_run_after_all(node: TickNode, operator: Operator, database_url: str) -> None:
    """C10.5: no force is needed, for nothing is done twice."""
    tick = next_tick(database_url)
    node.pause()
    assert node.claim(tick).verdict is Verdict.PAUSED
    node.resume()
    assert operator.retry(tick_row(database_url, tick)["id"]).done
    assert won(node.retake(options_for(tick))).attempt == 1
    assert [each.attempt for each in operator.life(options_for(tick).lock_key).attempts] == [1]


def test_a_run_that_somebody_holds_is_not_retried(service: JobSchedulerService, operator: Operator) -> None:
    """C4.1: not even by force."""
    lease = acquired(service)
    assert operator.retry(lease.id, force=True).verdict is ActionVerdict.RUNNING
    assert service.heartbeat(lease)


def test_of_a_retry_and_a_takeover_at_once_the_row_tells(node: TickNode, operator: Operator, database_url: str) -> None:
    """C4.1: a run that was taken is not made due under its new holder."""
    for n in range(20):
        lease = won(node.claim(known_for(database_url, HOUR - n * MINUTE) + MINUTE))
        assert node.service.fail(lease)
        execute(
            database_url,
            f'UPDATE {TABLE} SET "retryAt" = clock_timestamp() + INTERVAL \'1 hour\' WHERE "id" = %s',
            lease.id,
        )
        options = JobAcquireOptions(code=CODE, run_key=row_of(database_url, lease.id)["runKey"], lease_ms=60_000)
        taken, answer = at_once(partial(node.service.acquire, options), partial(operator.retry, lease.id))
        assert isinstance(answer, ActionAnswer)
        row = row_of(database_url, lease.id)
        if isinstance(taken, JobAcquired):
            assert row["status"] == "RUNNING"
            assert row["outcome"] is None
            assert node.service.complete(taken)
        else:
            assert answer.done
            assert row["outcome"] == "retried"


# Skip


def test_a_tick_to_come_is_skipped_and_no_node_runs_it(node: TickNode, operator: Operator, database_url: str) -> None:
    """C10.5, C10.7: a row that says who and why; the watermark comes to it in its time, ticks before it run."""
    watermark = known_for(database_url, 5 * MINUTE)
    first, second, third = (watermark + n * MINUTE for n in (1, 2, 3))
    answer = operator.skip(CODE, second, fingerprint=node.fingerprint)
    assert (answer.verdict, answer.run) == (ActionVerdict.DONE, None)
    assert watermark_of(database_url) == watermark
    row = tick_row(database_url, second)
    assert (row["status"], row["outcome"], row["attempt"], row["scheduledAt"]) == ("SUCCESS", "skipped", 0, second)
    assert row["startedAt"] is None
    won(node.claim(first))
    claimed = node.claim(second, previous_tick=first)
    assert claimed.verdict is Verdict.LOST
    assert watermark_of(database_url) == second
    won(node.claim(third, previous_tick=second))
    assert not isinstance(node.service.acquire(options_for(second)), JobAcquired)


def test_a_missed_tick_that_is_skipped_is_left_by_who_decides_the_others(
    node: TickNode, operator: Operator, database_url: str
) -> None:
    """C10.5: its row stays as it is."""
    watermark = known_for(database_url, 5 * MINUTE)
    ticks = [watermark + n * MINUTE for n in (1, 2, 3)]
    assert operator.skip(CODE, ticks[1]).done
    decided = node.decide(ticks, watermark, Outcome.TOO_LATE)
    assert (decided.verdict, decided.written) == (Verdict.WON, 2)
    assert [tick_row(database_url, tick)["outcome"] for tick in ticks] == ["too late", "skipped", "too late"]


@pytest.mark.parametrize("waits", ["failed", "exhausted", "triggered", "queued"])
def test_a_run_that_waits_is_given_up(node: TickNode, operator: Operator, database_url: str, waits: str) -> None:
    """C10.4: nobody takes it up any more; how it had failed is still known."""
    tick = next_tick(database_url)
    if waits == "triggered":
        operator.trigger(CODE)
        execute(database_url, f'UPDATE {TABLE} SET "lockKey" = %s', options_for(tick).lock_key)
    elif waits == "exhausted":
        exhausted(node, database_url)
        tick = execute(database_url, f'SELECT "scheduledAt" FROM {TABLE}')[0][0]
    else:
        assert node.service.fail(won(node.claim(tick)), {"error": "OSError: no route"})
        if waits == "queued":
            execute(database_url, f'UPDATE {TABLE} SET "outcome" = \'queued\', "attempt" = 0')
    assert operator.skip(CODE, tick).done
    row = tick_row(database_url, tick)
    assert (row["status"], row["outcome"], row["retryAt"]) == ("SUCCESS", "skipped", None)
    assert row["data"] == {"skipped": True, "by": "alice", "reason": "because"}
    assert node.unfinished().runs == ()
    life = operator.life(row["id"])
    assert life.state is RunState.SKIPPED
    assert [each.error for each in life.attempts] == (["OSError: no route"] if waits in ("failed", "exhausted") else [])


def test_nothing_is_skipped_over_a_run(node: TickNode, operator: Operator, database_url: str) -> None:
    """C4.1, C10.7: one under way, one that has ended, one whose row is gone, one of another schedule, no job."""
    tick = next_tick(database_url)
    lease = won(node.claim(tick))
    assert operator.skip(CODE, tick).verdict is ActionVerdict.RUNNING
    assert node.service.complete(lease)
    before = row_of(database_url, lease.id)
    assert operator.skip(CODE, tick).verdict is ActionVerdict.ENDED
    assert row_of(database_url, lease.id) == before
    execute(database_url, f"DELETE FROM {TABLE}")
    assert operator.skip(CODE, tick).verdict is ActionVerdict.DECIDED
    assert operator.skip(CODE, tick + HOUR, fingerprint="another").verdict is ActionVerdict.SUPERSEDED
    assert operator.skip("no such job", tick).verdict is ActionVerdict.UNKNOWN
    assert execute(database_url, f"SELECT count(*) FROM {TABLE}") == [(0,)]
    assert noted(database_url) == []


def test_of_a_skip_and_a_claim_at_once_the_tick_has_one_fate(
    node: TickNode, operator: Operator, database_url: str
) -> None:
    """C10.5: thirty times."""
    watermark = known_for(database_url, HOUR)
    for n in range(1, 31):
        tick = watermark + n * MINUTE
        previous: dict[str, Any] = {"previous_tick": tick - MINUTE} if n > 1 else {}
        claimed, answer = at_once(partial(node.claim, tick, **previous), partial(operator.skip, CODE, tick))
        assert isinstance(answer, ActionAnswer)
        row = tick_row(database_url, tick)
        assert answer.done is (row["outcome"] == "skipped")
        assert answer.verdict in (ActionVerdict.DONE, ActionVerdict.RUNNING, ActionVerdict.DECIDED)
        assert (getattr(claimed, "won", None) is not None) is (row["status"] == "RUNNING")
        assert watermark_of(database_url) == tick


# Jobs


def test_pausing_and_resuming_are_kept(node: TickNode, operator: Operator, database_url: str) -> None:
    """C10.5: who and why, also when it is over; a second pause keeps since when."""
    assert operator.pause(CODE, Action(by="alice", reason="migration")).done
    ((since, by, reason),) = jobs_pause(database_url)
    assert (by, reason) == ("alice", "migration")
    assert node.beat().jobs[CODE].paused
    assert operator.pause(CODE, Action(by="bob", reason="and backup")).job_paused
    assert jobs_pause(database_url) == [(since, "bob", "and backup")]
    answer = operator.resume(CODE, Action(by="bob"))
    assert (answer.done, answer.job_paused) == (True, False)
    assert jobs_pause(database_url) == [(None, "bob", None)]
    assert not node.beat().jobs[CODE].paused
    assert noted(database_url) == [
        ("paused", "alice", "migration"),
        ("paused", "bob", "and backup"),
        ("resumed", "bob", None),
    ]
    for act in (operator.pause, operator.resume, operator.trigger):
        assert act("no such job").verdict is ActionVerdict.UNKNOWN


def jobs_pause(url: str) -> list[tuple[Any, ...]]:
    return execute(url, 'SELECT "pausedAt", "pausedBy", "pauseReason" FROM "public"."job-scheduler_jobs"')


def test_a_run_that_was_asked_for_is_taken_up(node: TickNode, operator: Operator) -> None:
    """C10.4: twice asked is two runs; the answer says whether anybody will take them."""
    answers = [operator.trigger(CODE), operator.trigger(CODE)]
    assert [(answer.job_has_nodes, answer.job_paused) for answer in answers] == [(True, False)] * 2
    assert [run.outcome for run in node.unfinished().runs] == [Outcome.TRIGGERED] * 2
    found = {answer.run.id for answer in answers if answer.run}
    assert len(found) == 2
    assert all(operator.life(run).actions[0].kind is ActionKind.TRIGGERED for run in found)


def test_a_run_may_be_asked_for_in_the_place_of_a_tick(node: TickNode, operator: Operator, database_url: str) -> None:
    """C10.4: it stands for that tick, under a key of its own."""
    tick = next_tick(database_url)
    answer = operator.trigger(CODE, at=tick)
    assert answer.run is not None
    assert answer.run.scheduled_at == tick
    (found,) = node.unfinished().runs
    assert str(found.run_key).startswith(f"manual:{options_for(tick).run_key}:")
    with pytest.raises(InvalidJobOptionsError, match="at must be an aware datetime"):
        operator.trigger(CODE, at=datetime(2026, 1, 1))


# What is kept


def test_what_was_done_to_a_run_goes_with_it(node: TickNode, operator: Operator, database_url: str) -> None:
    """C10.7: pruned with the run; what was done to jobs goes when it is as old as failed runs may be."""
    lease = won(node.claim(next_tick(database_url)))
    operator.release(lease.id)
    operator.pause(CODE)
    operator.resume(CODE)
    operator.skip(CODE, tick_of(database_url))
    age = '"finishedAt" = "finishedAt" - INTERVAL \'40 days\''
    execute(database_url, f"UPDATE {TABLE} SET {age}")
    execute(database_url, f'UPDATE {ACTIONS} SET "at" = "at" - INTERVAL \'40 days\' WHERE "action" = \'paused\'')
    assert len(noted(database_url)) == 4
    assert node.prune(timedelta(days=30)) == 1
    assert [action for action, *_ in noted(database_url)] == ["resumed"]


def tick_of(url: str) -> datetime:
    found = execute(url, f'SELECT "scheduledAt" FROM {TABLE}')[0][0]
    assert isinstance(found, datetime)
    return found


@pytest.mark.parametrize(
    ("by", "reason"), [("", None), ("x" * 257, None), ("a\0b", None), ("alice", "x" * 4_097), ("alice", "\ud800")]
)
def test_an_action_that_cannot_be_kept_is_refused(by: str, reason: str | None) -> None:
    """C11: before any SQL, naming the field and the limit."""
    with pytest.raises(InvalidJobOptionsError, match=r"(by|reason) must hold"):
        Action(by=by, reason=reason)


def test_a_holder_needs_no_right_on_what_operators_did(
    service: JobSchedulerService, operator: Operator, database_url: str
) -> None:
    """C9.4: roles that were there before the migration renew, settle, and hear that they were released."""
    execute(database_url, "CREATE ROLE holder LOGIN PASSWORD 'secret'")
    try:
        execute(database_url, f"GRANT SELECT, INSERT, UPDATE ON {TABLE} TO holder")
        url = psycopg.conninfo.make_conninfo(database_url, user="holder", password="secret")
        with JobSchedulerService(url) as holder:
            lease = acquired(holder)
            assert holder.heartbeat(lease)
            assert operator.release(lease.id).done
            assert not holder.heartbeat(lease)
            assert lease.hold is not None
            assert lease.hold.lost_reason is LostReason.RELEASED
    finally:
        execute(database_url, "DROP OWNED BY holder; DROP ROLE holder")
