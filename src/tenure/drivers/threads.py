"""Work that may hang, such as an application's own way to connect: in a thread that can be left to itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class TooLateError(Exception):
    """Say that a piece of work did not end in its time."""


def _started(work: Callable[[], T], undo: Callable[[T], Any]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            with suppress(InvalidStateError):
                future.set_exception(error)
            return
        try:
            future.set_result(value)
        except InvalidStateError:
            with suppress(Exception):
                undo(value)

    threading.Thread(target=run, name="tenure-connect", daemon=True).start()
    return future


def within(limit_s: float, work: Callable[[], T], undo: Callable[[T], Any]) -> T:
    """Give what the work gives; raise `TooLateError` after that time, and undo what comes later."""
    future = _started(work, undo)
    try:
        future.exception(limit_s)
    except BaseException as error:
        if not future.cancel() and future.exception() is None:
            undo(future.result())
        if isinstance(error, TimeoutError):
            raise TooLateError from None
        raise
    return future.result()


async def within_async(limit_s: float, work: Callable[[], T], undo: Callable[[T], Any]) -> T:
    """Wait likewise on the running loop."""
    future = asyncio.wrap_future(_started(work, undo))
    await asyncio.wait({future}, timeout=limit_s)
    if not future.done():
        future.cancel()
        raise TooLateError
    return future.result()
