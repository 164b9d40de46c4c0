"""Why a tick did or did not run: one word, whole sentences, what to do; from facts alone, and from a database's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tenure import JobSchedulerService
from tenure.operating import (
    ActionKind,
    ActionRecord,
    RunGlance,
    RunState,
    TickFacts,
    Why,
    WhyVerdict,
    explain,
)
from tenure.scheduling import Cron
from tenure.scheduling.values import JobRecord, NodeRecord, Outcome, Verdict
from tests.operating.operator import Operator
from tests.support.rows import execute, row_of
from tests.support.scheduling import CODE, JOBS, MINUTE, TickNode, expire, known_for, make_old, options_for, won

TICK = datetime(2026, 7, 20, 3, 0, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
DAILY = Cron("0 3 * * *")
RUN = UUID("00000000-0000-4000-8000-000000000001")
NODE = NodeRecord(node=RUN, label="node-a", started_at=TICK - DAY, seen_at=TICK, silent_for=SECOND, clock_offset=None)
JOB = JobRecord(
    code="report",
    schedule=DAILY.text,
    timezone="UTC",
    fingerprint=DAILY.fingerprint,
    policy={"kind": "cron", "max_attempts": 3, "max_lateness_ms": 3_600_000, "catch_up": "latest"},
    known_since=TICK - 30 * DAY,
    watermark=TICK,
    paused_at=None,
    paused_by=None,
    pause_reason=None,
    registered_at=TICK - 30 * DAY,
    registered_by="node-a",
    nodes=("node-a",),
    disagreeing=(),
)
PAUSED = replace(JOB, paused_at=TICK - MINUTE, paused_by="alice", pause_reason="maintenance")
ORPHANED = replace(JOB, nodes=())
UNDECIDED = replace(JOB, watermark=TICK - DAY)


def a_run(state: RunState, **changes: Any) -> RunGlance:
    """Give the run of the tick as it stands then; one that never ran has neither holder nor start."""
    ran = not state.never_ran and state not in (RunState.QUEUED, RunState.TRIGGERED)
    values: dict[str, Any] = {
        "id": RUN,
        "code": "report",
        "run_key": "2026-07-20T03:00:00.000Z",
        "scheduled_at": TICK,
        "state": state,
        "attempt": 1 if ran else 0,
        "holder": "node-a" if ran else None,
        "fencing_token": 7,
        "created_at": TICK + SECOND,
        "started_at": TICK + SECOND if ran else None,
        "modified_at": TICK + MINUTE,
        "finished_at": None if state in (RunState.RUNNING, RunState.EXPIRED) else TICK + MINUTE,
        "retry_at": None,
        "lease_ms": 60_000 if ran else None,
        "lease_left": {RunState.RUNNING: 50 * SECOND, RunState.EXPIRED: -10 * SECOND}.get(state),
        "error": "OSError: no route" if state.is_failure else None,
    }
    return RunGlance(**{**values, **changes})


def facts(job: JobRecord | None = JOB, run: RunGlance | None = None, **changes: Any) -> TickFacts:
    """Give what is known two minutes after the tick."""
    values: dict[str, Any] = {"clock": TICK + 2 * MINUTE, "code": "report", "tick": TICK, "nodes": (NODE,)}
    return TickFacts(job=job, run=run, **{**values, **changes})


def an_action(kind: ActionKind, reason: str | None = "no need") -> ActionRecord:
    return ActionRecord(
        kind=kind, code="report", run_id=RUN, attempt=1, at=TICK + MINUTE, by="alice", reason=reason
    )  # fmt: skip


OF_A_RUN: dict[str, tuple[TickFacts, WhyVerdict, str, str]] = {
    "succeeded": (
        facts(run=a_run(RunState.SUCCEEDED)),
        WhyVerdict.SUCCEEDED,
        "It ran on node-a, began at 2026-07-20 03:00:01 UTC, 1s after its tick and took 59s, and succeeded.",
        "",
    ),
    "after several attempts": (
        facts(run=a_run(RunState.SUCCEEDED, attempt=3)),
        WhyVerdict.SUCCEEDED,
        f"It took 3 attempts: see tenure show {RUN}",
        "",
    ),
    "of a NestJS node": (
        facts(run=a_run(RunState.SUCCEEDED, holder=None)),
        WhyVerdict.SUCCEEDED,
        "It ran on a NestJS node",
        "",
    ),
    "running": (
        facts(run=a_run(RunState.RUNNING)),
        WhyVerdict.RUNNING,
        "Its lease was renewed last at 2026-07-20 03:01:00 UTC and has 50s left.",
        f"To take it away from that node: tenure release {RUN} --reason ...",
    ),
    "lease of unknown length": (
        facts(run=a_run(RunState.RUNNING, lease_left=None)),
        WhyVerdict.RUNNING,
        "has an unknown time left.",
        "",
    ),
    "expired": (
        facts(run=a_run(RunState.EXPIRED)),
        WhyVerdict.EXPIRED,
        "node-a began attempt 1 at 2026-07-20 03:00:01 UTC and was last heard of at 2026-07-20 03:01:00 UTC; its lease "
        "ran out 0s ago.",
        "",
    ),
    "expired, of no scheduler": (
        facts(run=a_run(RunState.EXPIRED, scheduled_at=None)),
        WhyVerdict.EXPIRED,
        "No scheduler knows it: the next acquire takes it.",
        "",
    ),
    "failed, waits": (
        facts(run=a_run(RunState.FAILED, retry_at=TICK + 5 * MINUTE)),
        WhyVerdict.RETRYING,
        "It is tried again from 2026-07-20 03:05:00 UTC on, in 3m.",
        f"To try it again at once: tenure retry {RUN} --reason ...",
    ),
    "failed, due": (
        facts(run=a_run(RunState.FAILED)),
        WhyVerdict.RETRYING,
        "Attempt 1 on node-a failed at 2026-07-20 03:01:00 UTC: OSError: no route.",
        "",
    ),
    "timed out": (
        facts(run=a_run(RunState.TIMED_OUT, error=None)),
        WhyVerdict.RETRYING,
        "Attempt 1 on node-a took longer than its job allows at 2026-07-20 03:01:00 UTC.",
        "",
    ),
    "exhausted": (
        facts(run=a_run(RunState.EXHAUSTED, attempt=3)),
        WhyVerdict.EXHAUSTED,
        "It has used up its attempts: 3 of the 3 that its job allows.",
        "To give it up: tenure skip report 2026-07-20T03:00:00Z --reason ...",
    ),
    "released": (
        facts(run=a_run(RunState.RELEASED), actions=(an_action(ActionKind.RELEASED),)),
        WhyVerdict.WAITING,
        "alice released the run at 2026-07-20 03:01:00 UTC: no need.",
        "",
    ),
    "retried": (facts(run=a_run(RunState.RETRIED)), WhyVerdict.WAITING, "An operator asked for another attempt.", ""),
    "queued": (
        facts(run=a_run(RunState.QUEUED)),
        WhyVerdict.WAITING,
        "Another run of the job was under way at its time: it waits for that one to end.",
        "",
    ),
    "triggered": (facts(run=a_run(RunState.TRIGGERED)), WhyVerdict.WAITING, "Somebody asked for it by hand.", ""),
    "skipped by its rule": (
        facts(run=a_run(RunState.SKIPPED)),
        WhyVerdict.SKIPPED,
        "Its job's rule is catch_up='latest'.",
        f"To run it after all: tenure retry {RUN} --reason ...",
    ),
    "skipped by an operator": (
        facts(run=a_run(RunState.SKIPPED), actions=(an_action(ActionKind.SKIPPED),)),
        WhyVerdict.SKIPPED,
        "alice gave the tick up at 2026-07-20 03:01:00 UTC: no need.",
        "",
    ),
    "too late": (
        facts(run=a_run(RunState.TOO_LATE, finished_at=TICK + 2 * timedelta(hours=1))),
        WhyVerdict.TOO_LATE,
        "It came too late: it could have begun 2h after its tick, and its job allows 1h.",
        "",
    ),
    "overlapped": (
        facts(
            run=a_run(RunState.OVERLAPPED),
            other=a_run(RunState.SUCCEEDED, scheduled_at=TICK - DAY, finished_at=TICK + 90 * SECOND),
        ),
        WhyVerdict.OVERLAPPED,
        "It was that for 2026-07-19 03:00:00 UTC, on node-a, until 2026-07-20 03:01:30 UTC.",
        "",
    ),
    "overlapped by one that goes on": (
        facts(run=a_run(RunState.OVERLAPPED), other=a_run(RunState.RUNNING, scheduled_at=TICK - DAY)),
        WhyVerdict.OVERLAPPED,
        "on node-a, and still is.",
        "",
    ),
    "paused": (
        facts(run=a_run(RunState.PAUSED), pause=an_action(ActionKind.PAUSED, "maintenance")),
        WhyVerdict.PAUSED,
        "It was paused at 2026-07-20 03:01:00 UTC by alice: maintenance.",
        f"To run it after all: tenure retry {RUN} --reason ...",
    ),
    "paused, and still is": (
        facts(PAUSED, a_run(RunState.PAUSED)),
        WhyVerdict.PAUSED,
        "The job is paused since 2026-07-20 02:59:00 UTC by alice: maintenance.",
        "",
    ),
    "held by a pause": (
        facts(PAUSED, a_run(RunState.FAILED)),
        WhyVerdict.HELD_BY_PAUSE,
        "The job is paused since 2026-07-20 02:59:00 UTC by alice: maintenance.",
        "Resume the job: tenure resume report",
    ),
    "waits for nobody": (
        facts(ORPHANED, a_run(RunState.FAILED), nodes=(replace(NODE, silent_for=DAY, jobs={"report": "f"}),)),
        WhyVerdict.RETRYING,
        "No living node runs the job; node-a did, and was last heard of 1d ago.",
        "Start a node that registers the job.",
    ),
}
OF_NO_RUN: dict[str, tuple[TickFacts, WhyVerdict, str, str]] = {
    "unknown job": (
        facts(None),
        WhyVerdict.UNKNOWN_JOB,
        "No job 'report' was ever registered here.",
        "See which jobs there are: tenure status",
    ),
    "known by removed runs": (
        facts(replace(UNDECIDED, schedule=None, fingerprint=None, policy=None)),
        WhyVerdict.UNKNOWN_JOB,
        "The job is known only because old runs of it were removed.",
        "",
    ),
    "not a tick": (
        facts(tick=TICK + MINUTE),
        WhyVerdict.NOT_A_TICK,
        "The nearest are 2026-07-20 03:00:00 UTC and 2026-07-21 03:00:00 UTC.",
        "",
    ),
    "not a tick of today's schedule": (
        facts(replace(JOB, registered_at=TICK + 2 * MINUTE), tick=TICK + MINUTE),
        WhyVerdict.NOT_A_TICK,
        "The schedule was registered at 2026-07-20 03:02:00 UTC, after this instant; it may have differed.",
        "",
    ),
    "future": (
        facts(tick=TICK + DAY),
        WhyVerdict.FUTURE,
        "It is still to come, in 23h58m by the database's clock.",
        "",
    ),
    "future, paused": (
        facts(PAUSED, tick=TICK + DAY),
        WhyVerdict.FUTURE,
        "It will not run as things are: The job is paused",
        "Resume the job: tenure resume report",
    ),
    "future, orphaned": (
        facts(ORPHANED, tick=TICK + DAY),
        WhyVerdict.FUTURE,
        "As things are nobody will run it.",
        "Start a node that registers the job.",
    ),
    "before the job was known": (
        facts(tick=TICK - 30 * DAY),
        WhyVerdict.BEFORE_KNOWN,
        "No job runs for the time before.",
        "",
    ),
    "removed": (
        facts(),
        WhyVerdict.REMOVED,
        "A removed tick never runs again.",
        "To run the job once more: tenure trigger report --reason ...",
    ),
    "paused": (
        facts(replace(PAUSED, watermark=TICK - DAY)),
        WhyVerdict.PAUSED,
        "Nobody has decided it yet; the job's ticks are decided up to 2026-07-19 03:00:00 UTC.",
        "Resume the job: tenure resume report",
    ),
    "orphaned": (
        facts(replace(UNDECIDED, nodes=())),
        WhyVerdict.ORPHANED,
        "No living node runs the job. It was registered last by node-a.",
        "Start a node that registers the job.",
    ),
    "nobody has that schedule": (
        facts(replace(UNDECIDED, disagreeing=("node-a",), registered_by="node-b")),
        WhyVerdict.ORPHANED,
        "node-a was started with another schedule; that of node-b rules.",
        "Restart the nodes that were started with another schedule, with the new code.",
    ),
    "due": (facts(UNDECIDED, clock=TICK + 10 * SECOND), WhyVerdict.DUE, "It is due since 10s.", ""),
    "due, with jitter": (
        facts(replace(UNDECIDED, policy={"kind": "cron", "jitter_ms": 120_000})),
        WhyVerdict.DUE,
        "Its job begins up to 2m late, at random.",
        "",
    ),
    "overdue": (
        facts(UNDECIDED),
        WhyVerdict.OVERDUE,
        "It should be run by one of: node-a. They may be busy, stopped or cut off.",
        "Look at the logs of those nodes, and at: tenure doctor",
    ),
    "overdue and too late": (
        facts(UNDECIDED, clock=TICK + timedelta(hours=2)),
        WhyVerdict.OVERDUE,
        "Whoever decides it now will find it too late: its job allows 1h.",
        "",
    ),
    "overdue, and ticks before it": (
        facts(replace(UNDECIDED, watermark=TICK - 3 * DAY)),
        WhyVerdict.OVERDUE,
        "Ticks before it come first, from 2026-07-18 03:00:00 UTC on.",
        "",
    ),
    "a schedule that cannot be read": (
        facts(replace(JOB, timezone="Mars/Olympus")),
        WhyVerdict.REMOVED,
        "Its schedule cannot be read here:",
        "",
    ),
}


@pytest.mark.parametrize("name", [*(f"run: {name}" for name in OF_A_RUN), *(f"none: {name}" for name in OF_NO_RUN)])
def test_each_answer_says_why_and_what_to_do(name: str) -> None:
    """C11: the word, the sentence that counts, and the command that helps."""
    kind, _, key = name.partition(": ")
    known, verdict, sentence, advice = (OF_A_RUN if kind == "run" else OF_NO_RUN)[key]
    why = explain(known)
    assert why.verdict is verdict
    assert sentence in " ".join(why.sentences)
    assert advice in " ".join(why.advice)
    assert why.ran == (known.run is not None and known.run.attempt > 0)
    assert all(told and told == told.strip() for told in (*why.sentences, *why.advice))


def test_there_is_no_word_that_is_never_said() -> None:
    """Each verdict has a case above."""
    said = {verdict for _, verdict, _, _ in (*OF_A_RUN.values(), *OF_NO_RUN.values())}
    assert said == set(WhyVerdict)


def test_the_ticks_before_and_after_are_told() -> None:
    """C10.2: of today's schedule, so that one may go on asking."""
    why = explain(facts())
    assert (why.previous_tick, why.next_tick) == (TICK - DAY, TICK + DAY)
    unread = explain(facts(replace(JOB, timezone="Mars/Olympus")))
    assert (unread.previous_tick, unread.next_tick) == (None, None)


# From a database

Prepare = Callable[[TickNode, JobSchedulerService, Operator, str, datetime], None]


def _succeed(node: TickNode, _rival: JobSchedulerService, _operator: Operator, _url: str, tick: datetime) -> None:
    node.service.complete(won(node.claim(tick)))


def _run(node: TickNode, _rival: JobSchedulerService, _operator: Operator, _url: str, tick: datetime) -> None:
    won(node.claim(tick))


def _die(node: TickNode, _rival: JobSchedulerService, _operator: Operator, url: str, tick: datetime) -> None:
    won(node.claim(tick))
    expire(url, tick)


def _fail(node: TickNode, _rival: JobSchedulerService, _operator: Operator, _url: str, tick: datetime) -> None:
    node.service.fail(won(node.claim(tick)), {"error": "OSError: no route"})


def _exhaust(node: TickNode, rival: JobSchedulerService, operator: Operator, url: str, tick: datetime) -> None:
    _fail(node, rival, operator, url, tick)
    assert node.retake(options_for(tick), max_attempts=1).verdict is Verdict.EXHAUSTED


def _release(node: TickNode, _rival: JobSchedulerService, operator: Operator, _url: str, tick: datetime) -> None:
    assert operator.release(won(node.claim(tick)).id).done


def _skip(_node: TickNode, _rival: JobSchedulerService, operator: Operator, _url: str, tick: datetime) -> None:
    assert operator.skip(CODE, tick).done


def _miss(node: TickNode, _rival: JobSchedulerService, _operator: Operator, _url: str, tick: datetime) -> None:
    node.decide([tick], tick - MINUTE, Outcome.SKIPPED)


def _come_late(node: TickNode, _rival: JobSchedulerService, _operator: Operator, _url: str, tick: datetime) -> None:
    assert node.claim(tick, max_lateness=SECOND).verdict is Verdict.TOO_LATE


def _pause(node: TickNode, _rival: JobSchedulerService, operator: Operator, _url: str, tick: datetime) -> None:
    assert operator.pause(CODE).done
    assert node.claim(tick).verdict is Verdict.PAUSED
    assert operator.resume(CODE).done


def _hold(node: TickNode, rival: JobSchedulerService, operator: Operator, url: str, tick: datetime) -> None:
    _fail(node, rival, operator, url, tick)
    assert operator.pause(CODE).done


def _remove(node: TickNode, rival: JobSchedulerService, operator: Operator, url: str, tick: datetime) -> None:
    _succeed(node, rival, operator, url, tick)
    make_old(url)
    assert node.prune(DAY) == 1


def _abandon(_node: TickNode, _rival: JobSchedulerService, _operator: Operator, url: str, _tick: datetime) -> None:
    execute(url, 'UPDATE "public"."job-scheduler_nodes" SET "seenAt" = "seenAt" - INTERVAL \'1 hour\'')


def _leave(_node: TickNode, _rival: JobSchedulerService, _operator: Operator, _url: str, _tick: datetime) -> None:
    pass


STORIES: dict[str, tuple[Prepare, WhyVerdict, str]] = {
    "succeeded": (_succeed, WhyVerdict.SUCCEEDED, "It ran on node-a"),
    "running": (_run, WhyVerdict.RUNNING, "It is running on node-a"),
    "died": (_die, WhyVerdict.EXPIRED, "node-a began attempt 1"),
    "failed": (_fail, WhyVerdict.RETRYING, "OSError: no route"),
    "exhausted": (_exhaust, WhyVerdict.EXHAUSTED, "It has used up its attempts: 1"),
    "released": (_release, WhyVerdict.WAITING, "alice released the run"),
    "skipped": (_skip, WhyVerdict.SKIPPED, "alice gave the tick up"),
    "missed": (_miss, WhyVerdict.SKIPPED, "It was missed"),
    "too late": (_come_late, WhyVerdict.TOO_LATE, "It came too late"),
    "paused": (_pause, WhyVerdict.PAUSED, "by alice: because"),
    "held": (_hold, WhyVerdict.HELD_BY_PAUSE, "The job is paused since"),
    "removed": (_remove, WhyVerdict.REMOVED, "Its row is gone"),
    "orphaned": (_abandon, WhyVerdict.ORPHANED, "node-a did, and was last heard of 1h"),
    "overdue": (_leave, WhyVerdict.OVERDUE, "one of: node-a"),
}


def told(operator: Operator, tick: datetime) -> Why:
    return operator.why(CODE, tick)


@pytest.mark.parametrize("name", STORIES)
def test_what_happened_is_told(
    node: TickNode, rival: JobSchedulerService, operator: Operator, database_url: str, name: str
) -> None:
    """C10.5: by rows that nodes and operators have left."""
    prepare, verdict, sentence = STORIES[name]
    execute(database_url, f'UPDATE {JOBS} SET "fingerprint" = \'every minute\', "policy" = \'{{"kind": "cron"}}\'')
    tick = known_for(database_url, 10 * MINUTE) + MINUTE
    prepare(node, rival, operator, database_url, tick)
    why = told(operator, tick)
    assert why.verdict is verdict, why.sentences
    assert sentence in " ".join(why.sentences)


def test_the_run_that_was_in_the_way_is_named(node: TickNode, operator: Operator, database_url: str) -> None:
    """C10.5: while it runs, and when it is over."""
    tick = known_for(database_url, 10 * MINUTE) + MINUTE
    lease = won(node.claim(tick))
    assert node.claim(tick + MINUTE, overlap="skip").verdict is Verdict.OVERLAPPED
    why = told(operator, tick + MINUTE)
    assert why.verdict is WhyVerdict.OVERLAPPED
    assert why.facts.other is not None
    assert why.facts.other.id == lease.id
    assert "and still is" in why.sentences[0]
    node.service.complete(lease)
    assert "until 20" in told(operator, tick + MINUTE).sentences[0]


def test_no_secret_is_among_the_facts(node: TickNode, operator: Operator, database_url: str) -> None:
    """C11: neither the token of the holder nor that of a lease that was released."""
    tick = known_for(database_url, 10 * MINUTE) + MINUTE
    lease = won(node.claim(tick))
    held = str(row_of(database_url, lease.id)["ownerToken"])
    assert operator.release(lease.id).done
    rotated = str(row_of(database_url, lease.id)["ownerToken"])
    shown = repr(told(operator, tick)) + repr(operator.life(lease.id)) + repr(operator.overview())
    assert held not in shown
    assert rotated not in shown
