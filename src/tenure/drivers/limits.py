"""Time limits for calls that may hang in a dead socket.

A driver cannot bound a call into a black hole: its own cancel request waits there too. Shutting the socket down can:
the waiting side sees the end of the stream at once, whoever it is. The socket is duplicated when the call begins, so
that a limit which fires late can never touch another one that got the same number since.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

_LOOK_EVERY_S = 0.1
_PATIENCE_LOOKS = 50


@dataclass(slots=True, eq=False)
class Limit:
    """Bound one call; `fired` says that its connection was given up."""

    socket_fd: int
    until_s: float
    fired: bool = False

    def fire(self) -> None:
        """Shut the socket down under the call."""
        self.fired = True
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.socket_fd)) as own:
            own.shutdown(socket.SHUT_RDWR)


class _Watchman:
    """Watch the calls of this process from one thread, which ends when there is nothing to watch for a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: set[Limit] = set()
        self._awake = False

    def watch(self, limit: Limit) -> None:
        with self._lock:
            self._limits.add(limit)
            if self._awake:
                return
            self._awake = True
        threading.Thread(target=self._run, name="tenure-limits", daemon=True).start()

    def forget(self, limit: Limit) -> None:
        with self._lock:
            self._limits.discard(limit)
            os.close(limit.socket_fd)

    def _run(self) -> None:
        looks_left = _PATIENCE_LOOKS
        while looks_left:
            time.sleep(_LOOK_EVERY_S)
            with self._lock:
                looks_left = _PATIENCE_LOOKS if self._limits else looks_left - 1
                self._awake = bool(looks_left)
                self._fire_overdue(time.monotonic())

    def _fire_overdue(self, now_s: float) -> None:
        for limit in self._limits:
            if not limit.fired and now_s >= limit.until_s:
                limit.fire()


_watchman = _Watchman()


def _start_afresh() -> None:
    global _watchman  # noqa: PLW0603 - a forked child has no thread and none of the calls
    _watchman = _Watchman()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)


class limited:  # noqa: N801 - used as a function
    """Bound a blocking call on that socket, within a tenth of a second."""

    __slots__ = ("_limit", "_watchman")

    def __init__(self, socket_fd: int, limit_s: float) -> None:
        self._watchman = _watchman
        self._limit = Limit(os.dup(socket_fd), time.monotonic() + limit_s)
        self._watchman.watch(self._limit)

    def __enter__(self) -> Limit:
        return self._limit

    def __exit__(self, *_: object) -> None:
        self._watchman.forget(self._limit)


@contextmanager
def limited_on_loop(socket_fd: int, limit_s: float) -> Generator[Limit]:
    """Bound an awaited call on that socket, by a timer of the running loop."""
    limit = Limit(os.dup(socket_fd), time.monotonic() + limit_s)
    timer = asyncio.get_running_loop().call_later(limit_s, limit.fire)
    try:
        yield limit
    finally:
        timer.cancel()
        os.close(limit.socket_fd)
