"""What may be called back, with the lease or without, decided before a run is acquired (C5.6)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from tenure import AsyncJobSchedulerService, JobAcquireOptions, JobExecutionLease, JobSchedulerService
from tenure.callbacks import awaited_call, blocking_call

LEASE = JobExecutionLease(UUID(int=1), UUID(int=2), "v2:key", 1, 1)


class Method:
    def takes(self, lease: object) -> object:
        return lease

    def takes_none(self) -> object:
        return None

    @classmethod
    def of_class(cls, lease: object) -> object:
        return lease

    @staticmethod
    def static(lease: object) -> object:
        return lease


class Callee:
    def __call__(self, anything: object) -> object:
        return anything


class AsyncCallee:
    async def __call__(self, anything: object) -> object:
        return anything


def keyword_only(*, lease: object) -> object:
    return lease


def default_of_another_name(rows: int = 5) -> object:
    return rows


def default_called_lease(lease: object = None) -> object:
    return lease


def two(lease: object, rows: int) -> object:
    return lease, rows


TAKES_IT: list[Callable[..., object]] = [
    lambda lease: lease,
    lambda x: x,
    Method().takes,
    Method.of_class,
    Method.static,
    Callee(),
    keyword_only,
    default_called_lease,
    functools.partial(two, rows=3),
    functools.partial(lambda first, second: second, "first"),
]
TAKES_NOTHING: list[Callable[..., object]] = [
    lambda: None,
    Method().takes_none,
    default_of_another_name,
    functools.partial(two, None, 3),
    dict,
]
CANNOT: list[Callable[..., object]] = [two, lambda a, b, c: None, lambda *, rows: None]


class TestBlocking:
    @pytest.mark.parametrize("callback", TAKES_IT)
    def test_it_is_given_the_lease(self, callback: Callable[..., object]) -> None:
        """To what needs an argument, or names one `lease`."""
        value = blocking_call(callback)(LEASE)
        assert value is LEASE or value == (LEASE, 3)

    @pytest.mark.parametrize("callback", TAKES_NOTHING)
    def test_it_is_given_nothing(self, callback: Callable[..., object]) -> None:
        """To what needs none; a default of its own is left alone."""
        value = blocking_call(callback)(LEASE)
        assert value is not LEASE
        assert value in (None, 5, (None, 3), {})

    @pytest.mark.parametrize("callback", CANNOT)
    def test_what_needs_more_is_refused(self, callback: Callable[..., object]) -> None:
        """Before anything runs, and the error says what it takes."""
        with pytest.raises(TypeError, match="must take the lease, or nothing; it takes"):
            blocking_call(callback)

    @pytest.mark.parametrize("callback", [None, 7, "x"])
    def test_only_callables(self, callback: Any) -> None:
        """Anything else is a mistake of the caller's."""
        with pytest.raises(TypeError, match="plain functions"):
            blocking_call(callback)

    def test_coroutine_functions_are_refused(self) -> None:
        """Nobody would await them: also behind a partial, a method or a `__call__`."""

        async def work(lease: object = None) -> None:
            pytest.fail("it ran")

        for callback in (work, functools.partial(work), functools.partial(functools.partial(work)), AsyncCallee()):
            with pytest.raises(TypeError, match="AsyncJobSchedulerService"):
                blocking_call(callback)

    def test_a_coroutine_in_disguise_is_an_error_when_it_comes_back(self) -> None:
        """A lambda that calls a coroutine function: closed, refused, and no warning that it was never awaited."""

        async def work() -> None:
            pytest.fail("it ran")

        disguised: Callable[[], object] = lambda: work()  # noqa: E731, PLW0108
        with pytest.raises(TypeError, match="returned a coroutine"):
            blocking_call(disguised)(LEASE)


class TestAwaited:
    async def test_it_is_given_the_lease_or_nothing(self) -> None:
        """By the same rules."""

        async def takes(lease: object) -> object:
            return lease

        async def takes_none() -> object:
            return None

        callbacks = (takes, takes_none, functools.partial(takes), AsyncCallee())
        assert [await awaited_call(each)(LEASE) for each in callbacks] == [LEASE, None, LEASE, LEASE]

    def test_plain_functions_are_refused(self) -> None:
        """They would block the loop, or return what nobody awaits."""

        async def work() -> None: ...

        def disguised() -> Coroutine[Any, Any, None]:
            return work()

        for callback in (disguised, len, None, 7):
            with pytest.raises(TypeError, match="coroutine functions"):
                awaited_call(callback)  # type: ignore[arg-type]


class TestBeforeAcquiring:
    """A bad callback, or a bad `on_lost`, is refused before any SQL: there is no server at this address."""

    def test_blocking(self) -> None:
        """C5.6: before anything is sent."""
        options = JobAcquireOptions(code="job", run_key="r")
        with JobSchedulerService("host=127.0.0.1 port=1") as service:
            with pytest.raises(TypeError):
                service.run_exclusive(options, two)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="on_lost"):
                service.run_exclusive(options, lambda: None, on_lost="stop")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="JobAcquireOptions"):
                service.run_exclusive({"code": "job"}, lambda: None)  # type: ignore[arg-type]

    async def test_awaited(self) -> None:
        """C5.6: before anything is sent."""
        options = JobAcquireOptions(code="job", run_key="r")

        async def work() -> None: ...

        async with AsyncJobSchedulerService("host=127.0.0.1 port=1") as service:
            with pytest.raises(TypeError):
                await service.run_exclusive(options, lambda: None)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="on_lost"):
                await service.run_exclusive(options, work, on_lost="stop")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="JobAcquireOptions"):
                await service.acquire({"code": "job"})  # type: ignore[arg-type]
