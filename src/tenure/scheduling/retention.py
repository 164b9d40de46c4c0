"""Removing old runs, as a job of ours: once a day, on one node (C10.7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tenure.clock import boot_s
from tenure.errors import InvalidJobOptionsError
from tenure.operations import Attempt
from tenure.scheduling import operations
from tenure.scheduling.cron import Cron
from tenure.scheduling.jobs import Job, Retry
from tenure.scheduling.statements import SchedulingStatements
from tenure.scheduling.values import Pruned

PRUNE_CODE: Final = "tenure.prune"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Say how long ended runs are kept, at least 1 hour.

    `keep` is for those that succeeded or did not run, `keep_failed` for those that used up their attempts. Unfinished
    runs, INITIAL runs and runs whose key is no tick are never removed, and a removed tick never runs again (C10.7).
    Raises `InvalidJobOptionsError`.
    """

    keep: timedelta = timedelta(days=90)
    keep_failed: timedelta = timedelta(days=365)

    def __post_init__(self) -> None:
        for name in ("keep", "keep_failed"):
            value = getattr(self, name)
            if not isinstance(value, timedelta) or value < timedelta(hours=1):
                raise InvalidJobOptionsError(f"{name} must be a timedelta of at least 1 hour.")

    def batches(self, statements: SchedulingStatements) -> Batches:
        """Give the removal, batch by batch."""
        return Batches(statements, self)


class Batches:
    """Go through the runs in batches; each is a statement of its own, safe beside everything."""

    def __init__(self, statements: SchedulingStatements, retention: Retention) -> None:
        self.removed = 0
        self._statements = statements
        self._retention = retention
        self._after: int | None = 0

    def next(self) -> Attempt[Pruned] | None:
        """Give the next batch, or `None` when all runs were looked at."""
        if self._after is None:
            return None
        keep = self._retention
        return operations.prune(self._statements, keep.keep, keep.keep_failed, now_boot_s=boot_s(), after=self._after)

    def note(self, pruned: Pruned) -> None:
        """Take note of a batch."""
        self.removed += pruned.removed
        self._after = pruned.after if pruned.more else None


def prune_job(callback: Callable[..., Any] | Callable[..., Awaitable[Any]]) -> Job:
    """Give the job that removes old runs."""
    return Job(
        code=PRUNE_CODE,
        schedule=Cron("@daily"),
        callback=callback,
        name="Remove old runs",
        lease=timedelta(minutes=5),
        retry=Retry(max_attempts=3),
        jitter=timedelta(minutes=5),
    )
