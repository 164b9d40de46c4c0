"""The overview as three tables, worst first: jobs, live leases, nodes; and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tenure.cli.errors import plain
from tenure.cli.lives import glance_as_json, milliseconds
from tenure.cli.output import NOTHING, emit, emit_table, iso, when, when_here
from tenure.durations import format_duration
from tenure.operating import Health, JobOverview, LiveLease, Overview, RunState, operations
from tenure.scheduling.values import NodeRecord

_WORST_FIRST: Final = tuple(Health)
_SKEW: Final = timedelta(seconds=1)

Rows = Sequence[Sequence[str]]


def emit_overview(seen: Overview) -> None:
    """Write one screen; a table that would be empty is left out."""
    emit(plain(_headline(seen)))
    if not seen.jobs:
        emit("No job was registered yet: a scheduler does that when it starts. See: tenure worker --help")
    jobs = sorted(seen.jobs, key=lambda job: (_WORST_FIRST.index(job.health), not job.registered, job.code))
    _emit_part([_JOB_TITLES, *(_job(job, seen.clock) for job in jobs)])
    _emit_part([_LEASE_TITLES, *(_lease(lease, seen.clock) for lease in seen.leases)])
    _emit_part([_NODE_TITLES, *(_node(node, seen) for node in seen.nodes)])
    if seen.truncated:
        emit("There is more than is shown.")


def as_json(seen: Overview) -> dict[str, Any]:
    """Give the overview under stable snake_case keys."""
    return {
        "clock": iso(seen.clock),
        "needs_attention": seen.needs_attention,
        "truncated": seen.truncated,
        "jobs": [_job_as_json(job) for job in seen.jobs],
        "leases": [_lease_as_json(lease) for lease in seen.leases],
        "nodes": [_node_as_json(node, seen) for node in seen.nodes],
    }


def _headline(seen: Overview) -> str:
    """Say what matters most in one line, and by which clock."""
    counts = [(health, sum(job.health is health for job in seen.jobs)) for health in Health]
    said = ", ".join(f"{count} {health.value}" for health, count in counts if count) or "no jobs"
    living = sum(map(seen.is_alive, seen.nodes))
    nodes = f"{living} of {len(seen.nodes)} node{'' if len(seen.nodes) == 1 else 's'} alive"
    clock = when_here(seen.clock, seen.clock).partition(" (")[0]
    return f"{clock} by the database's clock: {said}; {len(seen.leases)} running; {nodes}"


def _emit_part(rows: Rows) -> None:
    if len(rows) > 1:
        emit("")
        emit_table([[plain(cell) for cell in row] for row in rows])


_JOB_TITLES: Final = ("HEALTH", "CODE", "NEXT TICK", "LAST RUN", "LAST SUCCESS", "NOTE")
_LEASE_TITLES: Final = ("RUNNING", "RUN KEY", "ATTEMPT", "HOLDER", "SINCE", "LEFT", "PROGRESS", "ID")
_NODE_TITLES: Final = ("NODE", "ALIVE", "LAST SEEN", "STARTED", "CLOCK", "JOBS")


def _job(job: JobOverview, now: datetime) -> tuple[str, ...]:
    return (
        job.health.value,
        job.code,
        _soon(job.next_tick, now),
        f"{job.last.state.value} {_ago(job.last.started_at, now)}" if job.last else NOTHING,
        _ago(job.last_success.finished_at, now) if job.last_success else NOTHING,
        "; ".join([*_lateness(job, now), *_failures(job), *_causes(job, now)]) or NOTHING,
    )


def _soon(instant: datetime | None, now: datetime) -> str:
    """Give an instant as `when` does, without the day if it is today's in UTC."""
    said = when(instant, now)
    return said.removeprefix(f"{now.astimezone(UTC):%Y-%m-%d} ")


def _ago(instant: datetime | None, now: datetime) -> str:
    """Say how long ago it was; a clock that was read earlier in the same look is no future."""
    return NOTHING if instant is None else f"{format_duration(max(now - instant, timedelta(0)))} ago"


def _lateness(job: JobOverview, now: datetime) -> Iterator[str]:
    """Say what should be under way by now, and who is at work."""
    if job.overdue_since is not None:
        yield f"overdue since {_soon(job.overdue_since, now)}"
    elif job.late_since is not None:
        yield f"{format_duration(max(now - job.late_since, timedelta(0)))} late"
    if job.running:
        yield f"held by {', '.join(lease.run.holder or 'a NestJS node' for lease in job.running)}"


def _failures(job: JobOverview) -> Iterator[str]:
    """Say what went wrong, and what waits because of it."""
    if job.failures_in_a_row:
        yield f"{job.failures_in_a_row} failed in a row"
    if job.exhausted:
        yield f"{job.exhausted}{'+' if job.exhausted >= operations.COUNT_LIMIT else ''} exhausted"
    expired = sum(run.state is RunState.EXPIRED for run in job.unfinished)
    if expired:
        yield f"{expired} lease{'' if expired == 1 else 's'} expired"
    if waiting := len(job.unfinished) - expired:
        yield f"{waiting} waiting"


def _causes(job: JobOverview, now: datetime) -> Iterator[str]:
    """Say why nothing runs."""
    if job.job is not None and job.job.paused_at is not None:
        reason = f": {job.job.pause_reason}" if job.job.pause_reason else ""
        yield f"paused since {_soon(job.job.paused_at, now)} by {job.job.paused_by or 'somebody'}{reason}"
    if job.orphaned:
        yield "orphaned: no living node runs it"
    if job.job is not None and job.job.disagreeing:
        yield f"another schedule on {', '.join(job.job.disagreeing)}"
    if job.trouble:
        yield job.trouble.partition("\n")[0]


def _lease(lease: LiveLease, now: datetime) -> tuple[str, ...]:
    run = lease.run
    done = NOTHING
    if lease.progress is not None:
        done = f"{lease.progress[0]:,}/{lease.progress[1]:,}"
    return (
        run.code,
        run.run_key or NOTHING,
        str(run.attempt),
        run.holder or "a NestJS node",
        _soon(run.started_at, now),
        "unknown" if run.lease_left is None else format_duration(run.lease_left),
        done,
        str(run.id),
    )


def _node(node: NodeRecord, seen: Overview) -> tuple[str, ...]:
    return (
        node.label,
        "yes" if seen.is_alive(node) else "no",
        _ago(node.seen_at, seen.clock),
        _soon(node.started_at, seen.clock),
        _clock(node.clock_offset),
        str(len(node.jobs)),
    )


def _clock(offset: timedelta | None) -> str:
    """Say how far a node's clock is from the database's; only as a finding where it is much."""
    if offset is None:
        return NOTHING
    ahead = offset >= timedelta(0)
    said = f"{format_duration(abs(offset))} {'ahead' if ahead else 'behind'}"
    return f"{said}!" if abs(offset) > _SKEW else said


def _job_as_json(job: JobOverview) -> dict[str, Any]:
    record = job.job
    return {
        "code": job.code,
        "health": job.health.value,
        "registered": job.registered,
        "schedule": record.schedule if record else None,
        "timezone": record.timezone if record else None,
        "words": job.schedule.describe() if job.schedule else None,
        "trouble": job.trouble,
        "next_tick": iso(job.next_tick),
        "overdue_since": iso(job.overdue_since),
        "late_since": iso(job.late_since),
        "exhausted": job.exhausted,
        "failures_in_a_row": job.failures_in_a_row,
        "paused_at": iso(record.paused_at) if record else None,
        "paused_by": record.paused_by if record and record.paused_at else None,
        "pause_reason": record.pause_reason if record and record.paused_at else None,
        "orphaned": job.orphaned,
        "nodes": list(record.nodes) if record else [],
        "disagreeing": list(record.disagreeing) if record else [],
        "last": glance_as_json(job.last) if job.last else None,
        "last_success": glance_as_json(job.last_success) if job.last_success else None,
        "running": [glance_as_json(lease.run) for lease in job.running],
        "unfinished": [glance_as_json(run) for run in job.unfinished],
    }


def _lease_as_json(lease: LiveLease) -> dict[str, Any]:
    done, of = lease.progress or (None, None)
    return {**glance_as_json(lease.run), "done": done, "of": of}


def _node_as_json(node: NodeRecord, seen: Overview) -> dict[str, Any]:
    return {
        "node": str(node.node),
        "label": node.label,
        "alive": seen.is_alive(node),
        "started_at": iso(node.started_at),
        "seen_at": iso(node.seen_at),
        "silent_ms": milliseconds(node.silent_for),
        "clock_offset_ms": milliseconds(node.clock_offset),
        "jobs": sorted(node.jobs),
    }
