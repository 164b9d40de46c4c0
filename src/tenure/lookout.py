"""Wait for runs that other nodes hold: one query a round for all waiters of a service (C8.1).

Waiting is polling, with back-off and jitter: it works through a pooler, costs nothing while nobody waits, and tells a
dead holder by its expired lease. A database that is away is waited for; what somebody must mend is told at once (C9.4).
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tenure.clock import boot_s, spread
from tenure.drivers import Link, Rows
from tenure.errors import JobDatabaseError, WaitTimeoutError
from tenure.operations import look
from tenure.options import JobAcquireOptions
from tenure.rounds import ROUND_LIMIT_S, Rounds
from tenure.statements import Statements
from tenure.trust import Backoff

if TYPE_CHECKING:
    import asyncio

POLLS = Backoff(first_s=0.05, cap_s=0.25)
"""A waiter hears of the end within the cap and a round trip."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Say how a run stands: done, with the data it left, or free for whoever acquires it."""

    done: bool
    data: dict[str, Any] | None = None


@dataclass(slots=True, eq=False)
class Watch:
    """Be one waiter: what it waits for, who held the run when it was last seen, and why it could not be seen since."""

    options: JobAcquireOptions
    until_free: bool
    future: Future[Seen] = field(default_factory=Future["Seen"])
    holder: str | None = None
    trouble: Exception | None = None
    looks: int = 0
    due_boot_s: float = 0.0

    def put_off(self) -> None:
        """Say when to look next."""
        self.looks += 1
        self.due_boot_s = boot_s() + POLLS.delay_s(self.looks, spread())

    def told(self, state: str, holder: str | None, data: str | None) -> None:
        """Take the news; the waiter may have gone meanwhile."""
        self.holder, self.trouble = holder, None
        if state == "done" or (state == "free" and self.until_free):
            with suppress(InvalidStateError):
                self.future.set_result(Seen(state == "done", json.loads(data) if data is not None else None))

    def refused(self, error: JobDatabaseError) -> None:
        """Take what no waiting mends, as an exception of this waiter's own: each one gets its own traceback."""
        with suppress(InvalidStateError):
            self.future.set_exception(copy(error))

    def timed_out(self, asked_s: float) -> WaitTimeoutError:
        """Say that the time is up, and what kept the database from being asked, if anything did."""
        return WaitTimeoutError(asked_s, self.holder, self.trouble)


class Lookout(Rounds):
    """Look at runs for all who wait. `watch` and `forget` may be called from any thread and never block."""

    def __init__(
        self, connect: Callable[[float], Awaitable[Link]], statements: Statements, *, stays_on_loop: bool = False
    ) -> None:
        super().__init__(connect, "tenure-lookout", stays_on_loop=stays_on_loop)
        self._statements = statements
        self._watches: set[Watch] = set()
        self._failures = 0

    def watch(self, options: JobAcquireOptions, *, until_free: bool) -> Watch:
        """Look at this run from now on; the watch's future tells when it is done, or free."""
        watch = Watch(options, until_free)
        watch.put_off()
        with self._lock:
            self._watches.add(watch)
        self._rouse(watch.due_boot_s)
        return watch

    def forget(self, watch: Watch) -> None:
        """Look no more for this waiter."""
        with self._lock:
            self._watches.discard(watch)

    def _has_work(self) -> bool:
        return bool(self._watches)

    def _next_due_boot_s(self) -> float:
        return min((watch.due_boot_s for watch in self._watches), default=math.inf)

    async def _round(self, wake: asyncio.Event) -> None:  # noqa: ARG002 - a look that hangs ends by its own limit
        now_s = boot_s()
        with self._lock:
            watches = list(self._watches)
        if now_s < self._not_before_boot_s or not any(watch.due_boot_s <= now_s for watch in watches):
            return
        try:
            link = await self._linked()
            rows = await link.fetch(look(self._statements, [watch.options for watch in watches]), limit_s=ROUND_LIMIT_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread goes on
            self._failed(watches, error)
            await self._drop_link()
        else:
            self._failures = 0
            self._tell(watches, rows)

    def _failed(self, watches: list[Watch], error: Exception) -> None:
        """Wait out what passes, and have the waiters know of it; hand them what does not."""
        if isinstance(error, JobDatabaseError) and not error.transient:
            self._failures = 0
            for watch in watches:
                watch.refused(error)
                self.forget(watch)
            return
        self._failures += 1
        self._not_before_boot_s = boot_s() + self._backoff.delay_s(self._failures, spread())
        for watch in watches:
            watch.trouble = error

    def _tell(self, watches: list[Watch], rows: Rows) -> None:
        news = {key: (state, holder, data) for key, state, holder, data in rows}
        for watch in watches:
            watch.put_off()
            watch.told(*news.get(watch.options.lock_key, ("free", None, None)))
            if watch.future.done():
                self.forget(watch)


def news(lookout: Lookout, options: JobAcquireOptions, *, until_free: bool, left_s: float, asked_s: float) -> Seen:
    """Wait, blocking, until the run is done, or also until it is free.

    Raises `WaitTimeoutError`, naming the holder, and `JobDatabaseError` for what somebody must mend.
    """
    watch = lookout.watch(options, until_free=until_free)
    try:
        return watch.future.result(max(left_s, 0.0))
    except TimeoutError:
        raise watch.timed_out(asked_s) from watch.trouble
    finally:
        lookout.forget(watch)


async def news_async(
    lookout: Lookout, options: JobAcquireOptions, *, until_free: bool, left_s: float, asked_s: float
) -> Seen:
    """Wait likewise on the running loop."""
    import asyncio

    watch = lookout.watch(options, until_free=until_free)
    try:
        async with asyncio.timeout(max(left_s, 0.0)):
            return await asyncio.wrap_future(watch.future)
    except TimeoutError:
        raise watch.timed_out(asked_s) from watch.trouble
    finally:
        lookout.forget(watch)


def seconds_of(timeout: timedelta) -> float:
    """Give the seconds of a time to wait."""
    if not isinstance(timeout, timedelta):
        raise TypeError(f"How long to wait must be a timedelta, not {type(timeout).__name__}.")
    return timeout.total_seconds()
