"""Cancellation, both ways: work that no cancellation may cut short, and a callback that a lost lease cancels."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from tenure.lease import Hold

R = TypeVar("R")

LOOK_EVERY_S = 1.0
"""Timers of a loop stand still while the host sleeps; the boot clock is looked at this often at least."""


@dataclass(frozen=True, slots=True)
class Finished(Generic[R]):
    """Hold how a piece of work ended, and the cancellation that came meanwhile, if one did."""

    task: asyncio.Task[R]
    interruption: asyncio.CancelledError | None

    def result(self) -> R:
        """Give the result, or raise what the work raised."""
        return self.task.result()

    def result_unless_interrupted(self) -> R:
        """Give the result, or raise the cancellation that came meanwhile, or what the work raised."""
        if self.interruption:
            raise self.interruption
        return self.task.result()


async def to_its_end(work: Coroutine[Any, Any, R]) -> Finished[R]:
    """Run a piece of work to its end, whatever cancels the caller meanwhile."""
    task = asyncio.ensure_future(work)
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            interruption = error
    return Finished(task, interruption)


class LossWatch:
    """Cancel the task that runs in this context when its lease is lost, as `asyncio.timeout` does at its deadline.

    The callback stays in the caller's own task, so that `SystemExit` and `KeyboardInterrupt` leave it only after the
    run is settled. `cancelled_it` says whether the `CancelledError` that left the context was ours.
    """

    def __init__(self, hold: Hold, *, cancels: bool) -> None:
        self.cancelled_it = False
        self._cancels = cancels
        self._hold = hold
        self._loop = asyncio.get_running_loop()
        self._fired = False
        self._left = False
        self._timer: asyncio.Handle | None = None

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "run_exclusive runs in a task"
        self._task = task
        self._cancelling_before = task.cancelling()
        if not self._cancels:
            return self
        self._hold.on_change = self._notified
        self._timer = self._loop.call_soon(self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._left = True
        self._hold.on_change = None
        if self._timer:
            self._timer.cancel()
        if self._fired:
            only_ours = self._task.uncancel() <= self._cancelling_before
            self.cancelled_it = only_ours and isinstance(error, asyncio.CancelledError)

    def _notified(self) -> None:
        """Take the news from another thread; a loop that is closed has no task left to cancel."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if self._left or self._fired:
            return
        if self._timer:
            self._timer.cancel()
        if self._hold.look():
            self._fired = True
            self._task.cancel()
        elif self._hold.settled is None:
            wait_s = min(max(self._hold.remaining_s(), 0.001), LOOK_EVERY_S)
            self._timer = self._loop.call_later(wait_s, self._look)
