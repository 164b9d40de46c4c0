"""What signals ask of a scheduler, one after the other (C10.8)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

V = TypeVar("V")

_HEAR_S = 0.2
"""How often who waits in a lock looks whether a signal came: one that arrives just before is not heard in it."""


class Told:
    """Do what signals ask for: the first, the second, and any after that."""

    def __init__(self, *asked: Callable[[], object]) -> None:
        self._asked = list(asked)

    def __call__(self) -> None:
        (self._asked.pop(0) if len(self._asked) > 1 else self._asked[0])()


def interrupt() -> None:
    """End at once, as ^C ends a program."""
    raise KeyboardInterrupt


def result_of(future: Future[V]) -> V:
    """Wait for a future, hearing signals meanwhile."""
    while not future.done():
        wait([future], _HEAR_S)
    return future.result()


def join(thread: threading.Thread) -> None:
    """Wait for the end of a thread, hearing signals meanwhile."""
    while thread.is_alive():
        thread.join(_HEAR_S)
