"""What happened on a node, as values: for logs, metrics and tests.

`scheduler.listen` takes a listener. It is called on the scheduler's loop, which `Scheduler` has in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from tenure.scheduling.values import Replaced, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run began here."""

    code: str
    scheduled_at: datetime
    attempt: int
    is_catch_up: bool
    lag: timedelta
    """How much later than its tick, by the database's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """A run ended here; `error` is the callback's, or why the outcome could not be recorded."""

    code: str
    scheduled_at: datetime
    attempt: int
    error: BaseException | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TickNotRun:
    """This node has decided that a tick does not run (now); its row says the same."""

    code: str
    scheduled_at: datetime
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TicksMissed:
    """This node has decided that these ticks, from the first to the last, do not run any more."""

    code: str
    outcome: str
    first: datetime
    last: datetime
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExhausted:
    """A run has used up its attempts; nobody takes it up again by itself. Told once over all nodes."""

    code: str
    scheduled_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleReplaced:
    """This node's registration has replaced another schedule of the same code."""

    replaced: Replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSuperseded:
    """Another schedule was registered for this code since; this node starts no ticks of it any more."""

    code: str
    by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSkewed:
    """This node's wall clock is that much ahead of the database's. It does no harm here."""

    offset: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTroubled:
    """A loop met an error and goes on after a pause."""

    error: BaseException


Event: TypeAlias = (
    RunStarted
    | RunEnded
    | TickNotRun
    | TicksMissed
    | RunExhausted
    | ScheduleReplaced
    | ScheduleSuperseded
    | ClockSkewed
    | LoopTroubled
)
Listener: TypeAlias = Callable[[Event], object]
