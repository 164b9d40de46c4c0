"""Do things at the same moment, in threads, and let their errors come out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def all_at_once(works: Sequence[Callable[[], T]], timeout_s: float = 60) -> list[T]:
    """Call each in a thread of its own, started together; give what each returned."""
    barrier = threading.Barrier(len(works))

    def started(work: Callable[[], T]) -> T:
        barrier.wait(timeout_s)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(timeout_s) for future in [pool.submit(started, work) for work in works]]
