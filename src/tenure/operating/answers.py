"""Read what the statements of `sql/operating.sql` answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from tenure.operating.jobs import judged
from tenure.operating.states import RunState, state_of
from tenure.operating.ticks import TickFacts
from tenure.operating.values import (
    ActionAnswer,
    ActionKind,
    ActionRecord,
    ActionVerdict,
    JobOverview,
    LifeAttempt,
    LiveLease,
    Overview,
    RunGlance,
    RunLife,
    RunPage,
    Timeline,
)
from tenure.operations import Row
from tenure.options import JobSchedulerStatus
from tenure.records import RunRecord, instant, instant_or_none, lease_left, read_run
from tenure.scheduling.values import JobRecord, NodeRecord

Fields = Sequence[Any]


def read_overview(rows: Sequence[Row], alive: timedelta, most_leases: int) -> Overview:
    """Read everything at a glance."""
    found: dict[str, list[Any]] = {"clock": [], "node": [], "job": [], "lease": []}
    for kind, body in rows:
        found[kind].append(json.loads(body))
    clock_us, listed = found["clock"][0]
    clock = instant(clock_us)
    nodes = _nodes(found["node"])
    leases = [_lease(fields, clock) for fields in found["lease"][:most_leases]]
    running: dict[str, list[LiveLease]] = {}
    for lease in leases:
        running.setdefault(lease.run.code, []).append(lease)
    living = [node for node in nodes if node.silent_for <= alive]
    return Overview(
        clock=clock,
        jobs=tuple(_job_overview(fields, clock, living, running.get(fields[0], [])) for fields in found["job"]),
        leases=tuple(lease for lease in leases if lease.run.state is RunState.RUNNING),
        nodes=nodes,
        alive=alive,
        truncated=listed > len(found["job"]) or len(found["lease"]) > most_leases,
    )


def _job_overview(
    fields: Fields, clock: datetime, living: Sequence[NodeRecord], leases: Sequence[LiveLease]
) -> JobOverview:
    code, job, recent, success, unfinished, exhausted = fields
    waiting = [run for run in glances(unfinished, clock) if run.state is not RunState.RUNNING]
    return judged(
        code=code,
        job=None if job is None else read_job(job, living),
        clock=clock,
        recent=sorted(glances(recent, clock), key=lambda run: run.at, reverse=True),
        last_success=None if success is None else read_glance(success, clock),
        running=[lease for lease in leases if lease.run.state is RunState.RUNNING],
        unfinished=waiting,
        exhausted=exhausted,
    )


def read_job(fields: Fields, living: Sequence[NodeRecord]) -> JobRecord:
    """Read `${job_facts}`, with the nodes that run the job."""
    code, schedule, timezone, fingerprint, policy, known_us, watermark_us, paused_us, by, reason, *registered = fields
    registered_us, registered_by = registered
    told = sorted((node.label, node.jobs[code]) for node in living if code in node.jobs)
    return JobRecord(
        code=code,
        schedule=schedule,
        timezone=timezone,
        fingerprint=fingerprint,
        policy=policy,
        known_since=instant(known_us),
        watermark=instant(watermark_us),
        paused_at=instant_or_none(paused_us),
        paused_by=by,
        pause_reason=reason,
        registered_at=instant_or_none(registered_us),
        registered_by=registered_by,
        nodes=tuple(label for label, _ in told),
        disagreeing=tuple(label for label, fingerprint_there in told if fingerprint_there != fingerprint),
    )


def glances(found: Sequence[Fields] | None, clock: datetime) -> list[RunGlance]:
    """Read an array of `${glance}`; the newest come first."""
    return [read_glance(fields, clock) for fields in found or ()]


def read_glance(fields: Fields, clock: datetime) -> RunGlance:
    """Read `${glance}`."""
    if fields[4] != JobSchedulerStatus.RUNNING:
        return _glance_of(None, *fields)
    modified_us, lease_ms = fields[11], fields[14]
    return _glance_of.__wrapped__(
        lease_left(lease_ms, (clock - instant(modified_us)) // timedelta(microseconds=1)), *fields
    )


@lru_cache(maxsize=16_384)
def _glance_of(left: timedelta | None, *fields: Any) -> RunGlance:
    """Make a glance, or give the one that was made before: who looks on looks at the same ended runs each time."""
    run_id, code, run_key, scheduled_us, status, outcome, attempt, holder, token, *times = fields
    created_us, started_us, modified_us, finished_us, retry_us, lease_ms, error = times
    return RunGlance(
        id=UUID(run_id),
        code=code,
        run_key=run_key,
        scheduled_at=instant_or_none(scheduled_us),
        state=state_of(JobSchedulerStatus(status), outcome, left),
        attempt=attempt,
        holder=holder,
        fencing_token=token,
        created_at=instant(created_us),
        started_at=instant_or_none(started_us),
        modified_at=instant(modified_us),
        finished_at=instant_or_none(finished_us),
        retry_at=instant_or_none(retry_us),
        lease_ms=lease_ms,
        lease_left=left,
        error=error,
    )


def _lease(fields: Fields, clock: datetime) -> LiveLease:
    run, done, of = fields
    known = type(done) is int and type(of) is int and done >= 0 and of > 0
    return LiveLease(run=read_glance(run, clock), progress=(done, of) if known else None)


def _nodes(found: Sequence[Fields]) -> tuple[NodeRecord, ...]:
    return tuple(sorted((_node(fields) for fields in found), key=lambda node: (node.silent_for, node.label)))


def _node(fields: Fields) -> NodeRecord:
    node, label, started_us, seen_us, silent_us, offset_ms, jobs = fields
    return NodeRecord(
        node=UUID(node),
        label=label,
        started_at=instant(started_us),
        seen_at=instant(seen_us),
        silent_for=timedelta(microseconds=silent_us),
        clock_offset=None if offset_ms is None else timedelta(milliseconds=offset_ms),
        jobs=jobs,
    )


def read_page(rows: Sequence[Row]) -> RunPage:
    """Read a page of runs."""
    runs = tuple(read_run(row[1:]) for row in rows if row[1] is not None)
    return RunPage(runs=runs, before=rows[0][0])


def read_timeline(rows: Sequence[Row], since: datetime, until: datetime, limit: int) -> Timeline:
    """Read the runs of a span of time."""
    (clock_us, begun), *found = (json.loads(row[0]) for row in rows)
    clock = instant(clock_us)
    runs = sorted(glances(found, clock)[:limit], key=lambda run: (run.started_at or run.created_at, run.fencing_token))
    return Timeline(
        clock=clock, since=since, until=until, runs=tuple(runs), truncated=begun > limit or len(found) > limit
    )


def read_life(rows: Sequence[Row]) -> RunLife | None:
    """Read a run's whole life; `None` if there is no such run."""
    if not rows:
        return None
    clock_us, *columns, attempts, actions = rows[0]
    run = read_run(tuple(columns))
    former = [_attempt(fields) for fields in json.loads(attempts or "[]")]
    # one that was made due again is remembered as it was, and stands in the row until the next one begins
    remembered = {each.attempt for each in former} | {0}
    return RunLife(
        clock=instant(clock_us),
        run=run,
        state=state_of(run.status, run.outcome, run.lease_left),
        attempts=tuple(former) if run.attempt in remembered else (*former, _last_attempt(run)),
        actions=_actions(actions),
    )


def _attempt(fields: Fields) -> LifeAttempt:
    number, status, outcome, token, holder, lease_ms, started_us, ended_us, data = fields
    died = status == JobSchedulerStatus.RUNNING
    return LifeAttempt(
        attempt=number,
        state=RunState.EXPIRED if died else state_of(JobSchedulerStatus(status), outcome, None),
        holder=holder,
        fencing_token=token,
        lease_ms=lease_ms,
        started_at=instant_or_none(started_us),
        ended_at=instant_or_none(ended_us),
        error=_error_in(data),
        data=data,
    )


def _last_attempt(run: RunRecord) -> LifeAttempt:
    """Give the attempt that the row itself shows; while it runs, `data` is still what the one before it left."""
    state = state_of(run.status, run.outcome, run.lease_left)
    running = run.status is JobSchedulerStatus.RUNNING
    data = None if running else run.data
    ended_at = run.modified_at if state is RunState.EXPIRED else None if running else run.finished_at
    return LifeAttempt(
        attempt=run.attempt,
        state=state,
        holder=run.holder,
        fencing_token=run.fencing_token,
        lease_ms=run.lease_ms,
        started_at=run.started_at,
        ended_at=ended_at,
        error=_error_in(data),
        data=data,
    )


def _error_in(data: Mapping[str, Any] | None) -> str | None:
    error = (data or {}).get("error")
    return error if isinstance(error, str) else None


def _actions(text: str | None) -> tuple[ActionRecord, ...]:
    return tuple(_action(fields) for fields in json.loads(text or "[]"))


def _action(fields: Fields) -> ActionRecord:
    kind, code, run_id, attempt, at_us, by, reason = fields
    return ActionRecord(
        kind=ActionKind(kind),
        code=code,
        run_id=None if run_id is None else UUID(run_id),
        attempt=attempt,
        at=instant(at_us),
        by=by,
        reason=reason,
    )


def read_tick(row: Row, code: str, tick: datetime, alive: timedelta) -> TickFacts:
    """Read all that is known of one tick."""
    clock_us, job, run, actions, pause, other, found = row
    clock, nodes = instant(clock_us), _nodes(json.loads(found or "[]"))
    living = [node for node in nodes if node.silent_for <= alive]
    return TickFacts(
        clock=clock,
        code=code,
        tick=tick,
        job=None if job is None else read_job(json.loads(job), living),
        run=None if run is None else read_glance(json.loads(run), clock),
        actions=_actions(actions),
        pause=None if pause is None else _action(json.loads(pause)),
        other=None if other is None else read_glance(json.loads(other), clock),
        nodes=nodes,
    )


def read_action(row: Row, kind: ActionKind) -> ActionAnswer:
    """Read what became of an action; what was contended to the end is busy."""
    verdict, clock_us, code, run, paused, has_nodes = row
    return ActionAnswer(
        verdict=ActionVerdict.BUSY if verdict == "contended" else ActionVerdict(verdict),
        kind=kind,
        code=code,
        run=None if run is None else read_glance(json.loads(run), instant(clock_us)),
        job_paused=bool(paused),
        job_has_nodes=bool(has_nodes),
    )
