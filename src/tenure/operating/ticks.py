"""What is known of one tick, and why it did or did not run, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tenure.operating.values import ActionRecord, RunGlance
from tenure.scheduling.values import JobRecord, NodeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TickFacts:
    """Hold what is known about one tick: all that an explanation stands on."""

    clock: datetime
    code: str
    tick: datetime
    job: JobRecord | None
    run: RunGlance | None
    actions: tuple[ActionRecord, ...] = ()
    """What was done to the run, oldest first."""
    pause: ActionRecord | None = None
    """The pause or resumption of the job that was the last before the tick was decided."""
    other: RunGlance | None = None
    """Another run of the job that was under way when the tick was decided."""
    nodes: tuple[NodeRecord, ...] = ()
    """All nodes that are known."""


class WhyVerdict(StrEnum):
    """Say in a word why a tick did or did not run."""

    SUCCEEDED = "succeeded"
    RUNNING = "running"
    EXPIRED = "lease expired"
    RETRYING = "waits for a retry"
    WAITING = "waits to be taken up"
    EXHAUSTED = "exhausted"
    SKIPPED = "skipped"
    TOO_LATE = "too late"
    OVERLAPPED = "overlapped"
    PAUSED = "paused"
    HELD_BY_PAUSE = "held by a pause"
    UNKNOWN_JOB = "unknown job"
    NOT_A_TICK = "not a tick"
    FUTURE = "in the future"
    DUE = "due"
    OVERDUE = "overdue"
    ORPHANED = "orphaned"
    BEFORE_KNOWN = "before the job was known"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Answer why a tick did or did not run: a word, sentences, and what to do."""

    verdict: WhyVerdict
    ran: bool
    """An attempt at the tick was begun."""
    sentences: tuple[str, ...]
    """What happened, most important first; whole sentences, times in UTC."""
    advice: tuple[str, ...]
    """What to do, if anything; may name commands."""
    previous_tick: datetime | None
    next_tick: datetime | None
    """The ticks of today's schedule before and after the instant; `None` if the schedule is not known."""
    facts: TickFacts
