"""What the doctor looks at and what it finds, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum


class Level(StrEnum):
    """Say how bad a finding is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Say what the doctor found: the subject, what was found, why it matters, and the mend where one is needed."""

    level: Level
    subject: str
    found: str
    why: str
    mend: str | None = None


class Pooling(StrEnum):
    """Say what stands between this process and the server."""

    NONE = "none"
    SESSION = "session"
    TRANSACTION = "transaction"
    STATEMENT = "statement"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """Hold what the server counts of one table; counts are since its statistics were reset."""

    name: str
    live: int
    dead: int
    size_bytes: int
    updates: int
    hot_updates: int
    last_autovacuum: datetime | None
    autovacuum: bool
    """Autovacuum may work on it, as far as its own settings go."""

    @property
    def hot_share(self) -> float | None:
        """Give the share of updates that touched no index; `None` if there were none."""
        return self.hot_updates / self.updates if self.updates else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFacts:
    """Hold all that the doctor's judgement stands on. Time-outs are in ms, 0 being off."""

    version: int
    """As `server_version_num`: 160004 for 16.4."""
    role: str
    in_recovery: bool
    read_only: bool
    isolation: str
    synchronous_commit: str
    fsync: bool
    pooling: Pooling
    round_trip: timedelta
    clock_offset: timedelta
    """By how much this machine's clock is ahead of the database's."""
    faults: tuple[str, ...] = ()
    """What `check_schema` says."""
    timeouts_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    """`statement_timeout` and its like, as sessions of this service begin."""
    shortest_lease_ms: int | None = None
    """The shortest lease of a job that is registered, or of a run under way."""
    autovacuum: bool = True
    tables: tuple[TableFacts, ...] = ()
    oldest_transaction: timedelta | None = None
    """How long the oldest transaction is open, of those that this role may see."""
    zones: tuple[str, ...] = ()
    """The time zones of the jobs."""
    zones_unknown_here: tuple[str, ...] = ()
    zones_unknown_there: tuple[str, ...] = ()
    """Those that the server does not know."""
    zones_differing: tuple[str, ...] = ()
    """Those whose clock shows another time here than on the server, some day in the next two years."""
    tzdata: str | None = None
    """Where this process has its time zones from, and which version."""
