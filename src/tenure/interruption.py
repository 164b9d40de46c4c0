"""Cancellation, both ways: work that no cancellation may cut short, and a callback that a lost lease cancels."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from tenure.lease import Hold

if TYPE_CHECKING:
    import asyncio

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
            if not self.task.cancelled():
                self.task.exception()  # it counts as retrieved, so that the loop does not complain of it
            raise self.interruption
        return self.task.result()


async def to_its_end(work: Coroutine[Any, Any, R]) -> Finished[R]:
    """Run a piece of work to its end, whatever cancels the caller meanwhile."""
    import asyncio

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

    def __init__(self, hold: Hold, looks: Looks, *, cancels: bool) -> None:
        self.cancelled_it = False
        self._cancels = cancels
        self._hold = hold
        self._looks = looks
        self._fired = False

    def __enter__(self) -> Self:
        import asyncio

        task = asyncio.current_task()
        assert task is not None, "run_exclusive runs in a task"
        self._task = task
        self._cancelling_before = task.cancelling()
        if self._cancels:
            self._hold.on_change = self._looks.soon
            self._looks.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import asyncio

        self._looks.discard(self)
        self._hold.on_change = None
        if self._fired:
            only_ours = self._task.uncancel() <= self._cancelling_before
            self.cancelled_it = only_ours and isinstance(error, asyncio.CancelledError)

    def look(self) -> float:
        """Cancel the task if its lease is lost; else say in how many seconds that may be."""
        if not self._fired and self._hold.look():
            self._fired = True
            self._task.cancel()
        return LOOK_EVERY_S if self._fired or self._hold.settled else self._hold.remaining_s()


class Looks:
    """Look at all the watched leases of a loop by one timer: with one for each, a thousand would fire every second."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._watches: set[LossWatch] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, watch: LossWatch) -> None:
        """Look at this lease from now on."""
        self._watches.add(watch)
        self.loop.call_soon(self._look_at, watch)

    def discard(self, watch: LossWatch) -> None:
        """Look at this lease no more."""
        self._watches.discard(watch)
        if self._timer and not self._watches:
            self._timer.cancel()
            self._timer = None

    def soon(self) -> None:
        """Look at all of them, on news from another thread; a loop that is closed has no task left to cancel."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if self._watches:
            self._look_within(min([watch.look() for watch in self._watches]))

    def _look_at(self, watch: LossWatch) -> None:
        if watch in self._watches:
            self._look_within(watch.look())

    def _look_within(self, seconds: float) -> None:
        at_s = self.loop.time() + min(max(seconds, 0.001), LOOK_EVERY_S)
        if self._timer and not self._timer.cancelled() and self.loop.time() < self._timer.when() <= at_s:
            return
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_at(at_s, self._look)
