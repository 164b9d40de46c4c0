"""What operators are shown and what they ask for: values only. Every instant is the database's; none holds a token."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from tenure.operating.checks import check_action
from tenure.operating.states import RunState
from tenure.options import JobSchedulerStatus, JobSchedulerType
from tenure.records import RunRecord
from tenure.scheduling.run import MANUAL
from tenure.scheduling.schedule import Schedule
from tenure.scheduling.values import JobRecord, NodeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGlance:
    """Show one run in a strip, a chart or a list: its state and times, without what it left in `data`."""

    id: UUID
    code: str
    run_key: str | None
    scheduled_at: datetime | None
    """The tick, or when it was asked for by hand; `None` if no scheduler has had to do with it."""
    state: RunState
    attempt: int
    """0 for a run that was never started."""
    holder: str | None
    fencing_token: int
    created_at: datetime
    started_at: datetime | None
    """When the last lease began."""
    modified_at: datetime
    """When the row was last renewed or settled."""
    finished_at: datetime | None
    retry_at: datetime | None
    lease_ms: int | None
    lease_left: timedelta | None
    """What was left of a running lease; negative if it had expired, `None` if none runs or its length is not known."""
    error: str | None
    """What the last attempt raised, cut short; `None` if nothing is known to have gone wrong."""

    @property
    def at(self) -> datetime:
        """Give the instant that the run stands for: its tick, else when it was first heard of."""
        return self.scheduled_at or self.created_at

    @property
    def lag(self) -> timedelta | None:
        """Say how much later than its tick the last attempt began; `None` if it has no tick or never began."""
        if self.scheduled_at is None or self.started_at is None or self.attempt == 0:
            return None
        return self.started_at - self.scheduled_at

    @property
    def duration(self) -> timedelta | None:
        """Say how long the last attempt took; `None` while it runs, if it died, or if it never began."""
        if self.started_at is None or self.finished_at is None or self.attempt == 0:
            return None
        return max(self.finished_at - self.started_at, timedelta(0))

    @property
    def is_manual(self) -> bool:
        """Say whether somebody asked for the run by hand."""
        return bool(self.run_key and self.run_key.startswith(MANUAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLease:
    """Show one run that is under way: who holds it, and for how long yet."""

    run: RunGlance
    progress: tuple[int, int] | None
    """How much is done, and of how much, if the run's checkpoint says so."""

    @property
    def renewed_at(self) -> datetime:
        """Say when the lease was renewed last."""
        return self.run.modified_at


class Health(StrEnum):
    """Say what an operator should know of a job first."""

    OVERDUE = "overdue"
    """A tick, or a run that waits, should have been started by now and was not."""
    EXHAUSTED = "exhausted"
    """Runs have used up their attempts: somebody has to retry or skip them."""
    ORPHANED = "orphaned"
    """No living node runs the job."""
    FAILING = "failing"
    """The last run that ended has failed; it is tried again by itself."""
    PAUSED = "paused"
    OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOverview:
    """Show one job in the overview. What it says of "the last runs" is said of `recent` alone."""

    code: str
    job: JobRecord | None
    """As registered; `None` for a code that only plain `acquire` and NestJS nodes know."""
    schedule: Schedule | None
    """`None` if there is none, or if this process cannot read it: see `trouble`."""
    trouble: str | None
    """Why the schedule cannot be read here: a time zone that this machine does not know, say."""
    next_tick: datetime | None
    recent: tuple[RunGlance, ...]
    """The last runs, newest first by what they stand for."""
    last_success: RunGlance | None
    """The last run that succeeded, however long ago."""
    running: tuple[LiveLease, ...]
    unfinished: tuple[RunGlance, ...]
    """The oldest of the runs that wait to be taken up, or whose lease has expired."""
    exhausted: int
    """How many runs have used up their attempts, counted up to `COUNT_LIMIT`."""
    failures_in_a_row: int
    """How many runs have failed since one succeeded, among `recent`."""
    overdue_since: datetime | None
    """Since when something should have been started, and was not; `None` if nothing is overdue."""
    late_since: datetime | None
    """When the oldest tick was due that is neither done nor under way; `None` if none waits for more than moments."""

    @property
    def paused(self) -> bool:
        """Say whether the job is paused."""
        return self.job is not None and self.job.paused_at is not None

    @property
    def registered(self) -> bool:
        """Say whether a scheduler has registered the job."""
        return self.job is not None and self.job.fingerprint is not None

    @property
    def orphaned(self) -> bool:
        """Say whether the job is registered and no living node runs it."""
        return self.registered and self.job is not None and self.job.orphaned

    @property
    def last(self) -> RunGlance | None:
        """Give the newest run that was started, if one is among `recent`."""
        return next((run for run in self.recent if run.attempt > 0), None)

    @property
    def health(self) -> Health:
        """Say what comes first about this job."""
        if self.overdue_since is not None:
            return Health.OVERDUE
        if self.exhausted:
            return Health.EXHAUSTED
        if self.paused:
            return Health.PAUSED
        if self.orphaned:
            return Health.ORPHANED
        return Health.FAILING if self.failures_in_a_row else Health.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Show everything at a glance, as one snapshot of the database."""

    clock: datetime
    """The database's clock."""
    jobs: tuple[JobOverview, ...]
    """Registered ones first, by code."""
    leases: tuple[LiveLease, ...]
    """All runs under way, those of unregistered codes too, newest first."""
    nodes: tuple[NodeRecord, ...]
    alive: timedelta
    """How recently a node must have been heard of to count as living."""
    truncated: bool
    """There are more jobs or leases than are shown."""

    @property
    def needs_attention(self) -> bool:
        """Say whether anything is overdue or exhausted: what a monitor asks."""
        return any(job.health in (Health.OVERDUE, Health.EXHAUSTED) for job in self.jobs)

    def is_alive(self, node: NodeRecord) -> bool:
        """Say whether a node was heard of recently enough."""
        return node.silent_for <= self.alive


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFilter:
    """Say which runs are wanted; each filter that is given must hold.

    `since` and `until` are of when the last lease began, or when a tick that never ran was decided. `state` is any but
    `RUNNING` and `EXPIRED`, which are `status=RUNNING`. `holder` is a node's label.
    """

    code: str | None = None
    status: JobSchedulerStatus | None = None
    state: RunState | None = None
    since: datetime | None = None
    until: datetime | None = None
    holder: str | None = None
    type: JobSchedulerType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Show a page of runs, those whose lease began last first."""

    runs: tuple[RunRecord, ...]
    before: int | None
    """Ask with it for the next page; `None` if this was the last. A page may be short, or empty, before the last one:
    a filter that few runs meet stops looking after some ten thousand.
    """


class ActionKind(StrEnum):
    """Name what an operator did."""

    RELEASED = "released"
    RETRIED = "retried"
    SKIPPED = "skipped"
    TRIGGERED = "triggered"
    PAUSED = "paused"
    RESUMED = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """Show what somebody did to a run or a job: who, when and why."""

    kind: ActionKind
    code: str
    run_id: UUID | None
    """`None` for what was done to the job."""
    attempt: int | None
    """The attempt that the run was at."""
    at: datetime
    by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeAttempt:
    """Show one attempt at a run, the one under way or the last one too."""

    attempt: int
    state: RunState
    """`EXPIRED` if it never said anything: killed, frozen or cut off."""
    holder: str | None
    """The label of the node; `None` for a NestJS node."""
    fencing_token: int | None
    lease_ms: int | None
    started_at: datetime | None
    ended_at: datetime | None
    """When it ended; when it was last heard of if it died; `None` while it runs."""
    error: str | None
    data: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLife:
    """Show a run's whole life."""

    clock: datetime
    run: RunRecord
    state: RunState
    attempts: tuple[LifeAttempt, ...]
    """All of them, the first one first; none for a tick that never ran."""
    actions: tuple[ActionRecord, ...]
    """What operators did to it, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Show the runs that began in a span of time, and those that were under way when it was asked for, oldest first."""

    clock: datetime
    since: datetime
    until: datetime
    runs: tuple[RunGlance, ...]
    truncated: bool
    """There are more; the newest are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Say who acts and why; `token` tells a repeated call from a new one, so make one value for each action.

    `by` is 1 to 256 characters; `reason` at most 4,096. Raises `InvalidJobOptionsError`.
    """

    by: str
    reason: str | None = None
    token: UUID = field(default_factory=uuid4)

    def __post_init__(self) -> None:
        check_action(self.by, self.reason)


class ActionVerdict(StrEnum):
    """Say what became of an action; nothing was written unless it is `DONE`."""

    DONE = "done"
    UNKNOWN = "unknown"
    """There is no such run, or no such job."""
    NOT_RUNNING = "not running"
    """A release of a run that nobody holds: it has ended, or waits."""
    RUNNING = "running"
    """Somebody holds the run. Release it first, if that is what is meant."""
    SUCCEEDED = "succeeded"
    """The run has succeeded; only `force` does it again."""
    ENDED = "ended"
    """The tick is over already, run or not: there is nothing to skip."""
    DUE = "due"
    """The run is due already; whoever runs the job takes it up."""
    CHANGED = "changed"
    """The run is at another attempt than the one that was meant. Look again."""
    DECIDED = "decided"
    """The tick was decided before, and its row was removed, or the job was not known then."""
    SUPERSEDED = "superseded"
    """The job has another schedule than the one that the tick was counted by. Look again."""
    BUSY = "busy"
    """Somebody's transaction holds the row. Try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionAnswer:
    """Say what became of an action, and what was found."""

    verdict: ActionVerdict
    kind: ActionKind
    code: str | None
    run: RunGlance | None
    """The run as it stood when the action was taken up, before it; `None` if there is none."""
    job_paused: bool
    """The job is paused: nothing of it is taken up before it is resumed."""
    job_has_nodes: bool
    """A living node runs the job."""

    @property
    def done(self) -> bool:
        """Say whether it was done, now or by an earlier try of this very action."""
        return self.verdict is ActionVerdict.DONE
