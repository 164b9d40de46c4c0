"""However a callback ends, its run is settled and its own exception comes out (C6.3)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tenure import (
    AsyncJobSchedulerService,
    JobAcquireOptions,
    JobSchedulerService,
)
from tests.support.rows import row_of


def options(run_key: str = "r", **given: Any) -> JobAcquireOptions:
    return JobAcquireOptions(**{"code": "job", "run_key": run_key, "lease_ms": 60_000, **given})


class BrokenTextError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError("even its text fails")


class BrokenFormat(str):
    __slots__ = ()

    def __format__(self, spec: str) -> str:
        raise ZeroDivisionError("even its text fails")


class OddTextError(Exception):
    def __str__(self) -> str:
        return BrokenFormat("odd")


ENDS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "an error": (lambda: ValueError("bad"), "ValueError: bad"),
    "without a text": (ValueError, "ValueError"),
    "SystemExit": (lambda: SystemExit(3), "SystemExit: 3"),
    "KeyboardInterrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "CancelledError": (asyncio.CancelledError, "CancelledError"),
    "a group": (
        lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
        "ExceptionGroup: two (2 sub-exceptions)",
    ),
    "a base group": (
        lambda: BaseExceptionGroup("one", [KeyboardInterrupt()]),
        "BaseExceptionGroup: one (1 sub-exception)",
    ),
    "NUL": (lambda: ValueError("a\0b"), "ValueError: a b"),
    "a lone surrogate": (lambda: ValueError("a\ud800b"), "ValueError: a?b"),
    "5 MB": (lambda: ValueError("é" * 2_500_000), ("ValueError: " + "é" * 5_000).encode()[:8192].decode()),
    "no text at all": (BrokenTextError, "BrokenTextError: <its text could not be made>"),
    "odd text": (OddTextError, "OddTextError"),
}


class TestCallbacksThatRaise:
    @pytest.mark.parametrize(("make", "text"), ENDS.values(), ids=ENDS)
    def test_blocking(
        self, service: JobSchedulerService, database_url: str, make: Callable[[], BaseException], text: str
    ) -> None:
        """C6.3: the row is FAIL with a clean error of at most 8 KiB, and the callback's own exception comes out."""
        error = make()

        def callback() -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            service.run_exclusive(options(), callback)
        assert caught.value is error
        self.assert_recorded(database_url, text)

    @pytest.mark.parametrize(("make", "text"), ENDS.values(), ids=ENDS)
    async def test_awaited(
        self, async_service: AsyncJobSchedulerService, database_url: str, make: Callable[[], BaseException], text: str
    ) -> None:
        """C6.3: as from blocking callbacks; raised after an await."""
        error = make()

        async def callback() -> None:
            await asyncio.sleep(0)
            raise error

        with pytest.raises(type(error)) as caught:
            await async_service.run_exclusive(options(), callback)
        assert caught.value is error
        self.assert_recorded(database_url, text)

    @staticmethod
    def assert_recorded(database_url: str, text: str) -> None:
        row = row_of(database_url, options().lock_key)
        assert row["status"] == "FAIL"
        assert list(row["data"]) == ["error"]
        assert row["data"]["error"].startswith(text)
        assert len(row["data"]["error"].encode()) <= 8192
        assert row["finishedAt"] is not None

    def test_system_exit_ends_the_loop_after_the_run_is_settled(self, database_url: str) -> None:
        """C6.3: out of `asyncio.run`, too, SystemExit leaves only when FAIL is recorded."""

        async def callback() -> None:
            raise SystemExit(7)

        async def main() -> None:
            async with AsyncJobSchedulerService(database_url) as node:
                await node.run_exclusive(options(), callback)

        left: list[BaseException] = []

        def thread() -> None:
            try:
                asyncio.run(main())
            except BaseException as error:
                left.append(error)

        own = threading.Thread(target=thread)
        own.start()
        own.join()
        assert [type(error) for error in left] == [SystemExit]
        assert row_of(database_url, options().lock_key)["data"] == {"error": "SystemExit: 7"}
