"""The callbacks of a node: how many run at once, how each of them ends, and what becomes of them at the end (C10.8)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, cast

from tenure.clock import boot_s, spread
from tenure.endings import Ending
from tenure.errors import JobTimeoutError, TenureError
from tenure.lease import JobAcquired
from tenure.options import JobSchedulerStatus
from tenure.scheduling import events
from tenure.scheduling.jobs import Job
from tenure.scheduling.ports import Assignment, Port, ReleasedError
from tenure.scheduling.run import Occasion
from tenure.scheduling.values import Claimed, Outcome

RELEASE_LIMIT_S: Final = 10.0
"""How long a callback that was cancelled, or a release, may take at the end."""

_MILLISECOND: Final = timedelta(milliseconds=1)

logger = logging.getLogger("tenure")


class Crew:
    """Run callbacks, each with a slot that its claim has taken; `on_end` hears of each job whose run has ended."""

    def __init__(
        self, port: Port, *, slots: int, tell: Callable[[events.Event], None], on_end: Callable[[Job, bool], None]
    ) -> None:
        self._port = port
        self._slots = asyncio.Semaphore(slots)
        self._tell = tell
        self._on_end = on_end
        self._running: dict[asyncio.Task[None], Assignment] = {}
        self._stopping = False
        self._forced = asyncio.Event()

    @property
    def full(self) -> bool:
        """Say whether no slot is free."""
        return self._slots.locked()

    async def take_slot(self) -> None:
        """Wait for a slot: it is given back by hand, or when the run that `begin` starts has ended."""
        await self._slots.acquire()

    def give_slot_back(self) -> None:
        """Free a slot that no run was won for."""
        self._slots.release()

    def begin(self, job: Job, claimed: Claimed, key: str, tick: datetime, *, is_catch_up: bool) -> None:
        """Start the callback for a run that was won."""
        won = claimed.won
        assert won is not None, "only a run that was won begins"
        occasion = Occasion(code=job.code, run_key=key, scheduled_at=tick, is_catch_up=is_catch_up)
        timeout_s = None if job.timeout is None else job.timeout.total_seconds()
        assignment = Assignment(occasion, job.callback, timeout_s, partial(self._ending, job, won), won=won)
        lag = claimed.clock - tick
        self._tell(
            events.RunStarted(code=job.code, scheduled_at=tick, attempt=won.attempt, is_catch_up=is_catch_up, lag=lag)
        )
        task = asyncio.create_task(self._run(job, won, assignment, tick), name=f"tenure-run {job.code}")
        self._running[task] = assignment
        task.add_done_callback(self._ended)

    async def drain(self, grace_s: float) -> None:
        """Let callbacks end; release what is left after the time of grace, for another node to retry the same tick."""
        self._stopping = True
        for assignment in self._running.values():
            assignment.stop()
        until_s = boot_s() + grace_s
        forced = asyncio.create_task(self._forced.wait())
        while self._running and not forced.done() and (left_s := until_s - boot_s()) > 0:
            await asyncio.wait({forced, *self._running}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        if left := dict(self._running):
            await asyncio.gather(*(self._release(task, assignment) for task, assignment in left.items()))
            await asyncio.wait(left, timeout=RELEASE_LIMIT_S)

    def force(self) -> None:
        """End the time of grace now."""
        self._forced.set()

    def tell_exhausted(self, job: Job, tick: datetime) -> None:
        """Say that a run has used up its attempts."""
        logger.error(
            "The run of job %r for %s has used up its attempts and is not tried again by itself.",
            job.code, tick.isoformat(),
        )  # fmt: skip
        self._tell(events.RunExhausted(code=job.code, scheduled_at=tick))

    async def _release(self, task: asyncio.Task[None], assignment: Assignment) -> None:
        logger.warning("Job %r has not ended in the time of grace; its run is released.", assignment.occasion.code)
        with contextlib.suppress(TenureError):
            await self._port.release(assignment, task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._slots.release()

    async def _run(self, job: Job, won: JobAcquired, assignment: Assignment, tick: datetime) -> None:
        problem: BaseException | None = None
        try:
            await self._port.run(won, assignment)
        except asyncio.CancelledError as error:
            problem = error
            if not self._stopping:
                logger.warning("Job %r, for %s, was cancelled.", job.code, tick.isoformat())
        except ReleasedError as error:
            problem = error
        except BaseException as error:  # noqa: BLE001 - the callback's own; it is recorded in the row
            problem = error
            logger.warning(
                "Job %r, for %s, attempt %d, failed: %s: %s",
                job.code, tick.isoformat(), won.attempt, type(error).__name__, error,
            )  # fmt: skip
        self._tell(events.RunEnded(code=job.code, scheduled_at=tick, attempt=won.attempt, error=problem))
        if self._has_used_up(job, won, problem):
            self.tell_exhausted(job, tick)
        self._on_end(job, problem is not None)
        if isinstance(problem, KeyboardInterrupt):
            raise problem  # a person's wish to end it all, as asyncio has it

    def _has_used_up(self, job: Job, won: JobAcquired, problem: BaseException | None) -> bool:
        """Say whether this failure was the last, and is recorded; else it is somebody else's to tell of."""
        recorded = won.hold is not None and won.hold.settled is JobSchedulerStatus.FAIL
        failed = problem is not None and not self._is_release(problem)
        return failed and recorded and won.attempt >= job.retry.max_attempts

    def _is_release(self, error: BaseException) -> bool:
        """Say whether a run ended because the node shuts down, and not of itself."""
        return isinstance(error, ReleasedError) or (self._stopping and isinstance(error, asyncio.CancelledError))

    def _ending(self, job: Job, won: JobAcquired, error: BaseException | None, value: Any) -> Ending:
        """Say what is recorded beside the status, and when the run is due again."""
        if error is None:
            data = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None
            return Ending(outcome=Outcome.SUCCEEDED, data=data)
        if self._is_release(error):
            return Ending(outcome=Outcome.RELEASED)
        if won.attempt >= job.retry.max_attempts:
            return Ending(outcome=Outcome.EXHAUSTED)
        outcome = Outcome.TIMED_OUT if isinstance(error, JobTimeoutError) else Outcome.FAILED
        return Ending(outcome=outcome, retry_ms=job.retry.delay(won.attempt, spread()) // _MILLISECOND)
