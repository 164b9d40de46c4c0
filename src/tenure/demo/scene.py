"""What can be seen at one moment, as a value, and the sentences that tell of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tenure import JobSchedulerStatus, RunRecord
from tenure.demo.crew import NodeState
from tenure.demo.tables import Event, EventKind, Tick


@dataclass(frozen=True, slots=True)
class Scene:
    """Hold the nodes, the runs, and all that happened so far."""

    nodes: Mapping[str, NodeState]
    ticks: Sequence[Tick]
    runs: Mapping[str, RunRecord]
    events: Sequence[Event]
    news: Sequence[Event]
    """The events that the scene before did not have."""

    @property
    def began_at(self) -> datetime | None:
        """Give the instant of the first tick."""
        return self.ticks[0].due_at if self.ticks else None


@dataclass(frozen=True, slots=True)
class Line:
    """Hold what one row of the live table shows."""

    tick: str
    due: str
    attempt: str
    holder: str
    lease_left: str
    outcome: str


_SAYINGS: Final = {
    EventKind.READY: "is up",
    EventKind.WON: "won {tick}, attempt {attempt}, fencing token {token}",
    EventKind.LOADED: "loaded {tick}: {detail}",
    EventKind.FOUND_LOADED: "found {tick} loaded already by an earlier attempt",
    EventKind.LOST: "hears that its lease on {tick} is lost ({detail})",
    EventKind.REFUSED: "is refused to {operation} {tick}: {why}",
    EventKind.ACCEPTED: "WROTE IN {tick} UNDER A LEASE OF THE PAST: {detail}",
    EventKind.KILLED: "is killed in the middle of {tick} (SIGKILL)",
    EventKind.STOPPED: "is stopped in the middle of {tick} (SIGSTOP)",
    EventKind.WOKEN: "is woken (SIGCONT): another node holds {tick} now, and this one does not know yet",
    EventKind.REPLACED: "is killed for good: {detail} is started in its place",
}


def say(event: Event, ticks: Sequence[Tick]) -> str | None:
    """Tell of an event in one sentence; `None` if it is too small a thing."""
    saying = _SAYINGS.get(event.kind)
    if saying is None:
        return None
    number = next((tick.number for tick in ticks if tick.run_key == event.run_key), 0)
    operation, _, why = event.detail.partition(": ")
    told = saying.format(
        tick=f"tick {number}",
        attempt=event.attempt,
        token=event.fencing_token,
        detail=event.detail,
        operation=operation,
        why=why,
    )
    takes_over = event.kind is EventKind.WON and (event.attempt or 1) > 1
    return f"{event.node} {told}{' (takeover)' if takes_over else ''}"


def lines(scene: Scene) -> list[Line]:
    """Give one line a tick."""
    return [_line(tick, scene) for tick in scene.ticks]


def recent(everything: Sequence[Line], room: int) -> Sequence[Line]:
    """Give the lines that fit: those up to the latest run, and what comes next if there is room for it."""
    begun = max((n for n, line in enumerate(everything, start=1) if line.holder), default=0)
    end = max(min(begun + 2, len(everything)), min(room, len(everything)))
    return everything[max(end - room, 0) : end]


def _line(tick: Tick, scene: Scene) -> Line:
    due = f"{tick.due_at.astimezone(UTC):%H:%M:%S}"
    run = scene.runs.get(tick.run_key)
    if run is None:
        return Line(str(tick.number), due, "", "", "", "")
    left = f"{max(run.lease_left.total_seconds(), 0):.1f} s" if run.lease_left else ""
    return Line(str(tick.number), due, str(run.attempt), run.holder or "", left, _outcome(run, scene))


def _outcome(run: RunRecord, scene: Scene) -> str:
    state = scene.nodes.get(run.holder or "")
    if run.status is JobSchedulerStatus.SUCCESS:
        return "loaded" if run.attempt == 1 else "loaded after a takeover"
    if run.status is JobSchedulerStatus.FAIL:
        return "free again"
    if state is NodeState.KILLED or state is NodeState.STOPPED:
        return f"{state.value} in mid-run"
    return f"loading {_step(run, scene)}".rstrip()


def _step(run: RunRecord, scene: Scene) -> str:
    steps = (
        event.detail
        for event in reversed(scene.events)
        if event.kind is EventKind.BATCH and (event.run_key, event.attempt) == (run.run_key, run.attempt)
    )
    return next(steps, "")
