"""What a job is: its schedule and the rules for ticks that are missed, fail, overlap or take too long (C10.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, get_args

from tenure.errors import InvalidJobOptionsError
from tenure.identity import shown
from tenure.options import DEFAULT_LEASE_MS, JobAcquireOptions
from tenure.scheduling.schedule import Schedule
from tenure.scheduling.values import JobRegistration, Overlap
from tenure.trust import Backoff

CatchUp: TypeAlias = Literal["skip", "latest", "all"]

_MILLISECOND: Final = timedelta(milliseconds=1)
_ATTEMPTS_LIMIT: Final = 1_000
_CATCH_UP_LIMIT: Final = 10_000
_ANY_TICK: Final = "a tick"
_LONGEST: Final = timedelta(days=36_525)
"""A hundred years: what is added to an instant stays in the calendar."""


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidJobOptionsError(
            f"{name} must be one of {', '.join(map(repr, allowed))}; {shown(value)} was given."
        )


def _check_count(name: str, value: object, limit: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise InvalidJobOptionsError(f"{name} must be an int of 1 to {limit:,}; {shown(value)} was given.")


def _check_duration(name: str, value: object, *, zero: bool = False) -> None:
    if not isinstance(value, timedelta):
        raise InvalidJobOptionsError(f"{name} must be a timedelta; {shown(value)} was given.")
    if value < timedelta(0) or (not zero and value < _MILLISECOND):
        least = "0" if zero else "1 millisecond"
        raise InvalidJobOptionsError(f"{name} must be at least {least}; {value} was given.")
    if value > _LONGEST:
        raise InvalidJobOptionsError(f"{name} must be at most 100 years; {value} was given.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Say how often a tick is tried, and how long to wait after a failure.

    - `max_attempts`, 1 to 1,000: how often in all, the first time included. A node that dies has used one up, one
      that shuts down in order has not.
    - `first`, `most`: the pause after the first failure, and the longest one. Between the two it doubles with each
      attempt; up to half of it is taken off at random, so that many runs do not come back together. `timedelta(0)`
      tries again at once. After a death there is no pause, but the lease has to run out.

    Raises `InvalidJobOptionsError`.
    """

    max_attempts: int = 5
    first: timedelta = timedelta(seconds=10)
    most: timedelta = timedelta(minutes=10)

    def __post_init__(self) -> None:
        _check_count("max_attempts", self.max_attempts, _ATTEMPTS_LIMIT)
        _check_duration("first", self.first, zero=True)
        _check_duration("most", self.most, zero=True)

    def delay(self, attempt: int, spread: float) -> timedelta:
        """Give the pause after that attempt has failed; `spread` is a random number in [0, 1)."""
        backoff = Backoff(self.first.total_seconds(), self.most.total_seconds())
        return timedelta(seconds=backoff.delay_s(max(attempt, 1), spread))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Describe a job that ticks: checked when it is built, so that nothing is registered of a bad one.

    - `code`: what the job is known by, on all nodes and for ever: 1 to 64 characters. `name` is for people.
    - `lease`: how long the run of a node that died waits for its takeover. It may be far shorter than a run takes: it
      is renewed each `heartbeat`, a third of it and at most a minute unless given; `timedelta(0)` never renews.
    - `retry`: how often, and when, a tick is tried again that failed or whose node died.
    - `catch_up`: of the ticks that were missed run none (`"skip"`), the newest (`"latest"`), or the newest
      `catch_up_limit`, oldest first (`"all"`). A tick is missed if it is a minute late, or a later one is due. No job
      runs for the time before it was first registered.
    - `max_lateness`: a tick that would start later than this does not run; `None` is no limit.
    - `overlap`: while a run of this job is under way on any node, a tick runs beside it (`"allow"`), does not run
      (`"skip"`), or waits for its end (`"queue"`: one waits, further ones do not run).
    - `timeout`: a run that takes longer fails with `JobTimeoutError` (of `tenure.errors`), and is tried again. A
      coroutine is cancelled; a thread hears of it from `run.check()`.
    - `jitter`: each node claims a tick up to this much later, at random.

    Each tick that does not run leaves a row that says why. Raises `InvalidJobOptionsError`, which names the field, the
    limit and what to do; `InvalidJobIdentityOptionsError` and `InvalidJobLeaseOptionsError` are such.
    """

    code: str
    schedule: Schedule
    callback: Callable[..., Any] = field(repr=False)
    name: str | None = None
    lease: timedelta = timedelta(milliseconds=DEFAULT_LEASE_MS)
    heartbeat: timedelta | None = None
    retry: Retry = Retry()
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 100
    max_lateness: timedelta | None = timedelta(days=1)
    overlap: Overlap = "skip"
    timeout: timedelta | None = None
    jitter: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise InvalidJobOptionsError(f"schedule must be a Cron or an Every; {shown(self.schedule)} was given.")
        if not callable(self.callback):
            raise InvalidJobOptionsError(f"callback must be callable; {shown(self.callback)} was given.")
        if not isinstance(self.retry, Retry):
            raise InvalidJobOptionsError(f"retry must be a Retry; {shown(self.retry)} was given.")
        _check_choice("catch_up", self.catch_up, get_args(CatchUp))
        _check_choice("overlap", self.overlap, get_args(Overlap))
        _check_count("catch_up_limit", self.catch_up_limit, _CATCH_UP_LIMIT)
        _check_duration("lease", self.lease)
        _check_duration("jitter", self.jitter, zero=True)
        for name in ("heartbeat", "max_lateness", "timeout"):
            if (value := getattr(self, name)) is not None:
                _check_duration(name, value, zero=name == "heartbeat")
        if self.max_lateness is not None and self.jitter > self.max_lateness:
            raise InvalidJobOptionsError(
                f"jitter must not be longer than max_lateness ({self.max_lateness}), or ticks are too late by chance; "
                f"{self.jitter} was given."
            )
        # the code as it is stored, white space trimmed; everything about identity and lease is checked by this
        object.__setattr__(self, "code", self.options(_ANY_TICK).code)

    def options(self, run_key: str) -> JobAcquireOptions:
        """Name one run of this job, and time its lease."""
        timing: dict[str, Any] = {"lease_ms": self.lease // _MILLISECOND}
        if self.heartbeat is not None:
            timing["heartbeat_ms"] = self.heartbeat // _MILLISECOND
        naming: dict[str, Any] = {} if self.name is None else {"name": self.name}
        return JobAcquireOptions(code=self.code, run_key=run_key, **naming, **timing)

    def registration(self) -> JobRegistration:
        """Give what is written down of this job: for other nodes to compare, and for people to read."""
        return JobRegistration(
            code=self.code,
            schedule=self.schedule.text,
            timezone=self.schedule.timezone,
            fingerprint=self.schedule.fingerprint,
            policy={
                "kind": self.schedule.kind,
                "words": self.schedule.describe(),
                "lease_ms": self.lease // _MILLISECOND,
                "max_attempts": self.retry.max_attempts,
                "catch_up": self.catch_up,
                "max_lateness_ms": None if self.max_lateness is None else self.max_lateness // _MILLISECOND,
                "overlap": self.overlap,
                "timeout_ms": None if self.timeout is None else self.timeout // _MILLISECOND,
                "jitter_ms": self.jitter // _MILLISECOND,
            },
        )
