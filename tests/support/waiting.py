"""Wait for a condition, never for a time and hope."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], timeout_s: float = 10.0, every_s: float = 0.01) -> T:
    """Give the first truthy value of the condition; fail when none comes in time."""
    until_s = time.monotonic() + timeout_s
    while True:
        if value := condition():
            return value
        if time.monotonic() >= until_s:
            raise AssertionError(f"the condition did not hold within {timeout_s:g} s")
        time.sleep(every_s)


async def eventually_async(condition: Callable[[], T], timeout_s: float = 10.0, every_s: float = 0.01) -> T:
    """As `eventually`, without blocking the loop."""
    until_s = time.monotonic() + timeout_s
    while True:
        if value := condition():
            return value
        if time.monotonic() >= until_s:
            raise AssertionError(f"the condition did not hold within {timeout_s:g} s")
        await asyncio.sleep(every_s)
