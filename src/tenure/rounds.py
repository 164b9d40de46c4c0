"""A thread that goes round while there is work: a small event loop, a connection of its own, and sleep in between.

Where no thread can have a connection (an asyncpg pool alone), the same rounds are a task of the caller's loop (C5.3).

What is done in a round, and when the next one is due, is the subclass's affair. The thread starts with the first work,
ends some time after the last, and can be roused from any thread.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tenure.clock import boot_s
from tenure.drivers import Link
from tenure.trust import Backoff

if TYPE_CHECKING:
    import asyncio

LOOK_EVERY_S = 1.0
"""Timers stand still while the host sleeps: the boot clock is looked at this often at least."""
ROUND_LIMIT_S = 10.0
IDLE_S = 10.0


class Rounds(ABC):
    """Own the thread, its loop and its link. Some hooks are called under the lock, the others by the thread alone."""

    def __init__(
        self, connect: Callable[[float], Awaitable[Link]], thread_name: str, *, stays_on_loop: bool = False
    ) -> None:
        self._connect = connect
        self._stays_on_loop = stays_on_loop
        self._task: asyncio.Task[None] | None = None
        self._thread_name = thread_name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._wakes_boot_s = 0.0
        self._link: Link | None = None
        self._backoff = Backoff()
        self._not_before_boot_s = 0.0
        self._closing = False

    def close(self) -> None:
        """End as soon as no work is left."""
        self._closing = True
        self._rouse(0.0, start=False)

    @abstractmethod
    def _has_work(self) -> bool:
        """Say whether the thread is needed (under the lock)."""

    @abstractmethod
    def _next_due_boot_s(self) -> float:
        """Say when a round is due next, at the latest in `LOOK_EVERY_S` (under the lock)."""

    @abstractmethod
    async def _round(self, wake: asyncio.Event) -> None:
        """Do what is due now; never raise."""

    def _rouse(self, by_boot_s: float, *, start: bool = True) -> None:
        """Have the thread look at its work by that time; a signal is sent only if it would sleep longer."""
        with self._lock:
            if self._loop is None:
                if start:
                    self._start()
            elif self._wake and by_boot_s < self._wakes_boot_s:
                self._loop.call_soon_threadsafe(self._wake.set)

    def _start(self) -> None:
        import asyncio

        if self._stays_on_loop:
            self._loop, self._wake, self._wakes_boot_s = asyncio.get_running_loop(), asyncio.Event(), 0.0
            self._task = self._loop.create_task(self._go_round_here(self._wake), name=self._thread_name)
            self._started_on_loop()
            return
        loop, wake = asyncio.SelectorEventLoop(), asyncio.Event()
        try:
            threading.Thread(target=self._work, args=(loop, wake), name=self._thread_name, daemon=True).start()
        except RuntimeError:
            loop.close()
            raise
        self._loop, self._wake, self._wakes_boot_s = loop, wake, 0.0

    def _work(self, loop: asyncio.AbstractEventLoop, wake: asyncio.Event) -> None:
        import asyncio

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._go_round(wake))

    def _started_on_loop(self) -> None:  # noqa: B027 - most have nothing to note
        """Take note that the rounds begin on the caller's loop (under the lock)."""

    async def _go_round_here(self, wake: asyncio.Event) -> None:
        """Go round as a task of the caller's loop, which cancels it if it ends first."""
        try:
            await self._go_round(wake)
        finally:
            if self._link:
                self._link.cut()
            if self._wake is wake:
                self._loop = self._wake = self._link = None

    async def _go_round(self, wake: asyncio.Event) -> None:
        busy_boot_s = boot_s()
        while True:
            if self._has_work():
                busy_boot_s = boot_s()
                await self._round(wake)
            elif self._closing or boot_s() - busy_boot_s > IDLE_S:
                await self._drop_link()
                if self._retired():
                    return
            await self._sleep(wake)

    def _retired(self) -> bool:
        """End the thread, unless work came meanwhile; under the lock, so that none is forgotten."""
        with self._lock:
            if self._has_work():
                return False
            self._loop = self._wake = None
            return True

    async def _sleep(self, wake: asyncio.Event) -> None:
        import asyncio

        now_s = boot_s()
        with self._lock:
            wake.clear()
            self._wakes_boot_s = max(min(self._next_due_boot_s(), now_s + LOOK_EVERY_S), self._not_before_boot_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(self._wakes_boot_s - now_s, 0.0)):
                await wake.wait()
        self._wakes_boot_s = 0.0

    async def _linked(self) -> Link:
        if self._link is None:
            self._link = await self._connect(ROUND_LIMIT_S)
        return self._link

    async def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link:
            link.cut()
            await link.close()
