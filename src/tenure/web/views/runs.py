"""A run in a table, and its attempts on an axis of time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tenure.operating import LifeAttempt, RunGlance, RunLife, RunState, state_of
from tenure.records import RunRecord
from tenure.web.views.words import in_full, took

_LONGEST_ERROR: Final = 300
_WIDTH: Final = 1000
_LEAST: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Show one attempt on the axis: from where to where, in thousandths of it."""

    attempt: LifeAttempt
    left: int
    width: int
    took: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Show a run's attempts over time."""

    begin: datetime
    end: datetime
    tick: int | None
    """Where the tick stands, in thousandths; `None` if it has none."""
    lanes: tuple[Lane, ...]
    told: str


def glance_of(run: RunRecord) -> RunGlance:
    """Show of a run what fits in a line."""
    error = (run.data or {}).get("error")
    return RunGlance(
        id=run.id,
        code=run.code,
        run_key=run.run_key,
        scheduled_at=run.scheduled_at,
        state=state_of(run.status, run.outcome, run.lease_left),
        attempt=run.attempt,
        holder=run.holder,
        fencing_token=run.fencing_token,
        created_at=run.created_at,
        started_at=run.started_at,
        modified_at=run.modified_at,
        finished_at=run.finished_at,
        retry_at=run.retry_at,
        lease_ms=run.lease_ms,
        lease_left=run.lease_left,
        error=error[:_LONGEST_ERROR] if isinstance(error, str) and run.status == "FAIL" else None,
    )


def parse_run(text: str) -> UUID | None:
    """Read the id of a run; `None` for anything else."""
    try:
        return UUID(text)
    except ValueError:
        return None


def lease_until(run: RunGlance) -> datetime | None:
    """Say when a lease ends unless it is renewed; `None` if its length is not known, as a NestJS node's is not."""
    return None if run.lease_ms is None else run.modified_at + timedelta(milliseconds=run.lease_ms)


def row_element(run: UUID) -> str:
    """Name a run's row on the page."""
    return f"run-{run}"


def mark_of(run: RunGlance) -> str:
    """Give what changes when there is more to be told of a run than that its lease was renewed."""
    return f"{run.fencing_token}.{run.attempt}.{run.state.value}"


def axis_of(life: RunLife) -> Axis | None:
    """Lay the attempts on an axis of time; `None` for a run that has none."""
    placed = [attempt for attempt in life.attempts if attempt.started_at is not None]
    if not placed:
        return None
    begins = [attempt.started_at for attempt in placed if attempt.started_at]
    begin = min([*begins, life.run.scheduled_at or begins[0]])
    end = max([attempt.ended_at or life.clock for attempt in placed] + [begin + timedelta(milliseconds=1)])
    lanes = tuple(_lane(attempt, begin, end, life.clock) for attempt in placed)
    tick = None if life.run.scheduled_at is None else _place(life.run.scheduled_at, begin, end)
    return Axis(begin=begin, end=end, tick=tick, lanes=lanes, told=_told(lanes))


def _lane(attempt: LifeAttempt, begin: datetime, end: datetime, clock: datetime) -> Lane:
    started = attempt.started_at or begin
    ended = max(attempt.ended_at or clock, started)
    left = min(_place(started, begin, end), _WIDTH - _LEAST)
    width = max(_place(ended, begin, end) - left, _LEAST)
    return Lane(attempt=attempt, left=left, width=width, took=took(ended - started))


def _place(instant: datetime, begin: datetime, end: datetime) -> int:
    return round((instant - begin) / (end - begin) * _WIDTH)


def _told(lanes: tuple[Lane, ...]) -> str:
    return " ".join(
        f"Attempt {lane.attempt.attempt}: {lane.attempt.state.value}, "
        f"from {in_full(lane.attempt.started_at) if lane.attempt.started_at else 'an unknown time'}, {lane.took}."
        for lane in lanes
    )


def pretty(data: dict[str, Any] | None) -> str | None:
    """Write data as people read it; nothing for none."""
    return None if not data else json.dumps(data, indent=2, ensure_ascii=False)


def may_release(state: RunState) -> bool:
    """Say whether there is a lease to end."""
    return state in (RunState.RUNNING, RunState.EXPIRED)


def may_retry(state: RunState) -> bool:
    """Say whether another attempt can be asked for."""
    return state.is_over or state in (RunState.FAILED, RunState.TIMED_OUT)


def may_skip(run: RunRecord, state: RunState) -> bool:
    """Say whether the tick can be given up."""
    tick = run.scheduled_at is not None and not (run.run_key or "").startswith("manual:")
    return tick and (state.waits or state is RunState.EXHAUSTED) and state is not RunState.EXPIRED
