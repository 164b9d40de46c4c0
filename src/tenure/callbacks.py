"""What may be called back: with a run, what takes the lease, or nothing; with a message, what publishes it.

Checked before a run is acquired, or a message claimed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from tenure.lease import JobExecutionLease

T = TypeVar("T")
M = TypeVar("M")


class UnawaitedError(TypeError):
    """Say that a callback was no plain function after all: a mistake of the program's, not a failure of the work."""


def blocking_call(callback: Callable[..., T]) -> Callable[[JobExecutionLease], T]:
    """Give a call for a blocking callback; refuse a coroutine function, which nobody would await here."""
    if not callable(callback) or _is_coroutine_function(callback):
        raise TypeError(
            f"JobSchedulerService calls plain functions, not {_shown(callback)}. "
            "Use AsyncJobSchedulerService for a coroutine function."
        )
    call = _with_or_without_lease(callback)

    def checked(lease: JobExecutionLease) -> T:
        value = call(lease)
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError(
                "The callback returned a coroutine, which nobody awaits here. Use AsyncJobSchedulerService."
            )
        return value

    return checked


def awaited_call(callback: Callable[..., Awaitable[T]]) -> Callable[[JobExecutionLease], Awaitable[T]]:
    """Give a call for a coroutine function; refuse anything else, which would block the loop or run unawaited."""
    if not callable(callback) or not _is_coroutine_function(callback):
        raise TypeError(
            f"AsyncJobSchedulerService calls coroutine functions, not {_shown(callback)}. Write it as async def, or "
            "use JobSchedulerService for a plain function."
        )
    return _with_or_without_lease(callback)


def blocking_publish(publish: Callable[[M], object]) -> Callable[[M], None]:
    """Give a call for a blocking publish; refuse a coroutine function, which nobody would await here."""
    if not callable(publish) or _is_coroutine_function(publish):
        raise TypeError(
            f"Outbox publishes with plain functions, not {_shown(publish)}. Use AsyncOutbox for a coroutine function."
        )

    def checked(message: M) -> None:
        value = publish(message)
        if inspect.iscoroutine(value):
            value.close()
            raise UnawaitedError("publish returned a coroutine, which nobody awaits here. Use AsyncOutbox.")

    return checked


def awaited_publish(publish: Callable[[M], Awaitable[object]]) -> Callable[[M], Awaitable[object]]:
    """Give a publish that is a coroutine function; refuse anything else, which would block the loop."""
    if not callable(publish) or not _is_coroutine_function(publish):
        raise TypeError(
            f"AsyncOutbox publishes with coroutine functions, not {_shown(publish)}. Write it as async def, or use "
            "Outbox for a plain function."
        )
    return publish


def _with_or_without_lease(callback: Callable[..., T]) -> Callable[[JobExecutionLease], T]:
    """Pass the lease to a callback that needs an argument, or names one `lease`; to others nothing."""
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):
        return lambda _: callback()
    if _binds(signature) and "lease" not in signature.parameters:
        return lambda _: callback()
    if _binds(signature, None):
        return callback
    if _binds(signature, lease=None):
        return lambda lease: callback(lease=lease)
    raise TypeError(f"The callback {_shown(callback)} must take the lease, or nothing; it takes {signature}.")


def _binds(signature: inspect.Signature, *arguments: Any, **keywords: Any) -> bool:
    try:
        signature.bind(*arguments, **keywords)
    except TypeError:
        return False
    return True


def _is_coroutine_function(callback: object) -> bool:
    while isinstance(callback, partial):
        callback = callback.func
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004 - the method itself is looked at


def _shown(callback: object) -> str:
    return getattr(callback, "__qualname__", None) or type(callback).__qualname__
