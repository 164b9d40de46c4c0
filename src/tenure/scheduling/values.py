"""What the scheduler asks of the database, and what it hears: values only (C10).

Every answer carries the database's clock at the moment it was given; nothing else says what is due (C10.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, TypeAlias
from uuid import UUID

from tenure.lease import JobAcquired, JobNotAcquired
from tenure.options import JobAcquireOptions

Overlap: TypeAlias = Literal["allow", "skip", "queue"]


class Outcome(StrEnum):
    """Say how a run ended in detail, where its status does not; stored in `"outcome"`."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    RELEASED = "released"
    RETRIED = "retried"
    """Somebody asked for another attempt, beyond those that its job allows, too."""
    EXHAUSTED = "exhausted"
    """It failed, or died, as often as it may: nobody takes it up again by itself."""
    SKIPPED = "skipped"
    TOO_LATE = "too late"
    OVERLAPPED = "overlapped"
    PAUSED = "paused"
    QUEUED = "queued"
    """It waits for another run of its job to end."""
    TRIGGERED = "triggered"
    """Somebody asked for it by hand, and no node has taken it up yet."""


class Verdict(StrEnum):
    """Say what became of a claim or a retake."""

    WON = "won"
    """The run is ours; the callback is to be called."""
    LOST = "lost"
    """Somebody else holds the run, or is done with it."""
    EARLY = "early"
    """The tick is further ahead of the database's clock than the tolerance. Nothing was written; ask again later."""
    DECIDED = "decided"
    """The tick was decided before; its row says how it stands. Nothing was written."""
    REMOVED = "removed"
    """The tick was decided before and its row was removed, or the job was not known then. Nothing was written."""
    GAP = "gap"
    """Ticks before this one are not decided yet. Nothing was written."""
    SUPERSEDED = "superseded"
    """The job was registered with another schedule since. Nothing was written."""
    UNKNOWN = "unknown"
    """The job is not registered, or no such run is there. Nothing was written."""
    PAUSED = "paused"
    """The job is paused: a claim left a row that says so, a retake nothing."""
    TOO_LATE = "too late"
    """The tick was later than the job allows; a row says so."""
    OVERLAPPED = "overlapped"
    """Another run of the job was under way; a row says so."""
    QUEUED = "queued"
    """Another run of the job was under way; this one waits, and is to be retaken."""
    BUSY = "busy"
    """Another run of the job is under way. Nothing was written; ask again later."""
    EXHAUSTED = "exhausted"
    """The run had used up its attempts, and this very call has written so."""
    CONTENDED = "contended"
    """Somebody else was just deciding about the same job, or held the row. Nothing was written; ask again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRegistration:
    """Make a job known: the fingerprint tells one schedule from another, the policy is for people to read."""

    code: str
    schedule: str
    timezone: str | None
    fingerprint: str
    policy: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLife:
    """Name a node from its start to its end; `node` is random for each start (C4.7)."""

    node: UUID
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """Show what a node must know of one of its jobs."""

    code: str
    watermark: datetime
    """Every tick at or before it is decided: it has a row, had one, or is from before the job was known (C10.7)."""
    fingerprint: str | None
    """The schedule that rules; `None` for a job that is known only because rows of it were removed."""
    registered_at: datetime | None
    """Since when that registration rules."""
    registered_by: str | None
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Show the registration that a newer one has replaced, as far as its schedule differed."""

    code: str
    schedule: str | None
    timezone: str | None
    fingerprint: str
    registered_at: datetime | None
    registered_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Answer a registration or a beat. A job that is missing was deleted by hand: register again."""

    clock: datetime
    jobs: Mapping[str, JobState]
    replaced: tuple[Replaced, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TickClaim:
    """Ask for a tick: `options` name its run by the tick's run key, and time its lease.

    `previous_tick` is the schedule's tick before this one, which must be decided first; `None` if there is none.
    A `catch_up` claim of a job whose ticks must not overlap waits its turn (`BUSY`), however late it is.
    """

    options: JobAcquireOptions
    tick: datetime
    previous_tick: datetime | None
    fingerprint: str
    overlap: Overlap = "skip"
    tolerance: timedelta = timedelta(milliseconds=250)
    max_lateness: timedelta | None = None
    catch_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retake:
    """Ask for an unfinished run: as `Unfinished` shows it, under the lease that `options` time.

    `options` must name the same run (its code, and its run key if the row has one).
    """

    options: JobAcquireOptions
    max_attempts: int
    overlap: Overlap = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Answer a claim or a retake."""

    verdict: Verdict
    won: JobAcquired | None = None
    """The lease, for `WON`."""
    lost: JobNotAcquired | None = None
    """Who holds the run or how it ended, for `LOST`, `DECIDED` and `REMOVED`, as far as it is known."""
    watermark: datetime | None
    """The job's watermark after the claim; `None` if the job is not known."""
    clock: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decide many ticks at once, none of which is to run: by run key, their instants.

    Nothing is decided unless the watermark is still the one that the ticks were counted from.
    """

    code: str
    fingerprint: str
    watermark: datetime
    ticks: Mapping[str, datetime]
    outcome: Outcome
    moves_to: datetime | None = None
    """Where the watermark goes; `None` for the last of the ticks. Further if later ticks get no row of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Answer a decision: `WON` if it was made, else `CONTENDED`, `DECIDED` (the watermark has moved), `SUPERSEDED`,
    `UNKNOWN`.
    """

    verdict: Verdict
    written: int
    """How many rows were new; ticks that somebody ran by another way keep the row they have."""
    watermark: datetime | None
    clock: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Show a run that may be taken up now."""

    code: str
    lock_key: str
    run_key: str | None
    scheduled_at: datetime
    attempt: int
    died: bool
    """Its lease ran out; else it failed and is due again, or waits to be started."""
    outcome: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedRuns:
    """Answer what is to be taken up, oldest first for each job."""

    clock: datetime
    runs: tuple[Unfinished, ...]
    next_retry_at: datetime | None
    """When the first of the others is due for its retry; leases that may run out until then are not foreseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """Answer a trigger: whether the job is known, and whether the run is new."""

    known: bool
    new: bool
    scheduled_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Show what the database's clock is, and whether a job is paused, since when, by whom and why."""

    clock: datetime
    known: bool
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """Show one job, for those who look on."""

    code: str
    schedule: str | None
    timezone: str | None
    fingerprint: str | None
    policy: Mapping[str, Any] | None
    known_since: datetime
    watermark: datetime
    paused_at: datetime | None
    paused_by: str | None
    """Who paused it; of a job that is not paused, who resumed it last. So with the reason."""
    pause_reason: str | None
    registered_at: datetime | None
    registered_by: str | None
    nodes: tuple[str, ...]
    """The labels of the nodes, alive now, that run it."""
    disagreeing: tuple[str, ...]
    """Those of them that were started with another schedule."""

    @property
    def orphaned(self) -> bool:
        """Say whether no living node would run it."""
        return not self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """Show one node, for those who look on."""

    node: UUID
    label: str
    started_at: datetime
    seen_at: datetime
    silent_for: timedelta
    """Since when it was not heard of, by the database's clock."""
    clock_offset: timedelta | None
    """By how much its wall clock is ahead of the database's."""
    jobs: Mapping[str, str] = field(default_factory=dict[str, str])
    """The fingerprints of its jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """Answer one batch of pruning: go on with `after` while there is `more`."""

    removed: int
    after: int
    more: bool
