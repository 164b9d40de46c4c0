"""A run's whole life, for people and for programs: its fields, each attempt at it, and what operators did to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from tenure import RunRecord
from tenure.cli.errors import plain
from tenure.cli.output import NOTHING, emit, iso, lease_left, progress_of, run_as_json, when_here
from tenure.durations import format_duration
from tenure.operating import ActionRecord, LifeAttempt, RunGlance, RunLife, RunState


def emit_life(life: RunLife) -> None:
    """Write one line a field, then one each attempt, then one each thing that operators did, all oldest first."""
    fields = [*_fields(life), *_attempts(life), *_actions(life)]
    width = max(len(name) for name, _ in fields)
    emit("\n".join(f"{name:<{width}}  {plain(value)}" for name, value in fields))


def life_as_json(life: RunLife) -> dict[str, Any]:
    """Give a run with `state`, all `attempts` and `actions`, under stable snake_case keys."""
    return {
        **run_as_json(life.run),
        "state": life.state.value,
        "attempts": [_attempt_as_json(each) for each in life.attempts],
        "actions": [action_as_json(each) for each in life.actions],
    }


def action_as_json(action: ActionRecord) -> dict[str, Any]:
    """Give what an operator did, under stable snake_case keys."""
    return {
        "action": action.kind.value,
        "attempt": action.attempt,
        "at": iso(action.at),
        "by": action.by,
        "reason": action.reason,
    }


def glance_as_json(run: RunGlance) -> dict[str, Any]:
    """Give a run as it is seen in a chart or a list, under stable snake_case keys."""
    return {
        "id": str(run.id),
        "code": run.code,
        "run_key": run.run_key,
        "state": run.state.value,
        "attempt": run.attempt,
        "holder": run.holder,
        "scheduled_at": iso(run.scheduled_at),
        "started_at": iso(run.started_at),
        "modified_at": iso(run.modified_at),
        "finished_at": iso(run.finished_at),
        "retry_at": iso(run.retry_at),
        "lease_left_ms": milliseconds(run.lease_left),
        "error": run.error,
    }


def milliseconds(duration: timedelta | None) -> int | None:
    """Give a duration as it stands in JSON."""
    return None if duration is None else duration // timedelta(milliseconds=1)


def _attempt_as_json(attempt: LifeAttempt) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "state": attempt.state.value,
        "died": attempt.state is RunState.EXPIRED,
        "holder": attempt.holder,
        "fencing_token": attempt.fencing_token,
        "lease_ms": attempt.lease_ms,
        "started_at": iso(attempt.started_at),
        "ended_at": iso(attempt.ended_at),
        "error": attempt.error,
        "data": attempt.data,
    }


def _fields(life: RunLife) -> list[tuple[str, str]]:
    run, now = life.run, life.clock
    length = NOTHING if run.lease_ms is None else format_duration(timedelta(milliseconds=run.lease_ms))
    left = [] if run.lease_left is None else [("lease left", lease_left(run.lease_left))]
    return [
        ("id", str(run.id)),
        ("idempotency key", run.idempotency_key),
        ("type", run.type.value),
        ("code", run.code),
        ("run key", NOTHING if run.run_key is None else run.run_key),
        ("name", run.name or NOTHING),
        ("status", run.status.value),
        ("attempt", str(run.attempt)),
        ("fencing token", str(run.fencing_token)),
        ("holder", run.holder or NOTHING),
        ("lease", length),
        *left,
        ("created", when_here(run.created_at, now)),
        ("began", when_here(run.started_at, now)),
        ("last sign", when_here(run.modified_at, now)),
        ("ended", when_here(run.finished_at, now)),
        *([("scheduled", when_here(run.scheduled_at, now))] if run.scheduled_at else []),
        *([("outcome", run.outcome)] if run.outcome else []),
        *([("retry", when_here(run.retry_at, now))] if run.retry_at else []),
        ("data", NOTHING if run.data is None else json.dumps(run.data)),
        *_checkpoint(run, now),
    ]


def _checkpoint(run: RunRecord, now: datetime) -> list[tuple[str, str]]:
    if run.checkpoint is None:
        return []
    progress = [("progress", progress_of(run))] if run.progress else []
    return [
        *progress,
        ("checkpoint", json.dumps(run.checkpoint)),
        ("checkpointed", when_here(run.checkpointed_at, now)),
    ]


def _attempts(life: RunLife) -> Iterator[tuple[str, str]]:
    for each in life.attempts:
        # what the last one has left stands above
        data = [] if each.data is None or each.attempt == life.run.attempt else [json.dumps(each.data)]
        began = f"began {when_here(each.started_at, life.clock)}"
        yield f"attempt {each.attempt}", ", ".join([each.holder or NOTHING, began, _ending(each), *data])


def _ending(attempt: LifeAttempt) -> str:
    ending = "died, last heard of" if attempt.state is RunState.EXPIRED else attempt.state.value
    if attempt.started_at is not None and attempt.ended_at is not None:
        ending += f" after {format_duration(attempt.ended_at - attempt.started_at)}"
    return ending


def _actions(life: RunLife) -> Iterator[tuple[str, str]]:
    for each in life.actions:
        reason = f": {each.reason}" if each.reason else ""
        yield each.kind.value, f"by {each.by or 'somebody'}, {when_here(each.at, life.clock)}{reason}"
