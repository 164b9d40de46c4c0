"""SQLAlchemy engines: calls go over raw connections of their pool, and connections of our own are opened their way.

So what an application has in `creator`, `connect_args` or a `do_connect` event (a password that changes) holds here
too. A pool that does not pool, or that shares its one connection with the application, is never taken from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import psycopg
from sqlalchemy import Engine, Pool, QueuePool
from sqlalchemy import exc as sqlalchemy_exc
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import greenlet_spawn

from tenure.drivers import Administrator, Link, Rows
from tenure.drivers.links import PsycopgLink, administrator, connect
from tenure.drivers.problems import busy, unreachable
from tenure.drivers.recipes import CONNECT_LIMIT_S, Recipe
from tenure.drivers.sending import AsyncSender, Sender
from tenure.drivers.threads import TooLateError, within, within_async
from tenure.errors import JobDatabaseError
from tenure.operations import Call
from tenure.statements import Table


class EngineDriver:
    """Send statements over an Engine that speaks psycopg, blocking."""

    def __init__(self, engine: Engine, table: Table) -> None:
        _check(engine, ("psycopg",), "JobSchedulerService")
        self._engine = engine
        self._table = table
        self._sender = Sender(table)

    def fetch(self, call: Call, *, limit_s: float, fresh: bool = False) -> Rows:
        """Send a call and give its rows; see `Driver`."""
        with self._own(limit_s) if fresh or not _pools(self._engine.pool) else self._taken(limit_s) as connection:
            return self._sender.fetch(connection, call, limit_s)

    def administrator(self) -> Administrator:
        """Give what opens a connection for schema work."""
        return administrator(lambda: self._connect(CONNECT_LIMIT_S), self._table)

    async def link(self, *, limit_s: float) -> Link:
        """Open a connection for the keeper: in a thread, since an engine's own way to connect blocks."""
        try:
            opened = await within_async(limit_s, self._opened, _closed)
        except TooLateError:
            raise unreachable(f"it did not answer within {limit_s:g} s") from None
        return _AdoptedLink(opened, self._table)

    def close(self) -> None:
        """Leave the engine to its owner."""

    @property
    def given(self) -> bool:
        """Say that the engine belongs to the caller."""
        return True

    @property
    def stays_on_loop(self) -> bool:
        """Say that its links work on any loop."""
        return False

    @contextmanager
    def _taken(self, limit_s: float) -> Generator[psycopg.Connection[Any]]:
        try:
            taken = within(limit_s / 2, self._engine.pool.connect, lambda late: late.close())
        except (TooLateError, sqlalchemy_exc.TimeoutError):
            self._connect(limit_s).close()  # an unreachable server says so here, by its own error
            raise _too_few(limit_s) from None
        except Exception as error:
            raise _not_connected(error) from error
        connection: Any = taken.driver_connection
        try:
            yield connection
        finally:
            taken.invalidate() if connection.closed else taken.close()

    @contextmanager
    def _own(self, limit_s: float) -> Generator[psycopg.Connection[Any]]:
        connection = self._connect(limit_s)
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self, limit_s: float) -> psycopg.Connection[Any]:
        try:
            return within(limit_s, self._opened, _closed)
        except TooLateError:
            raise unreachable(f"it did not answer within {limit_s:g} s") from None

    def _opened(self) -> psycopg.Connection[Any]:
        """Connect as the engine does, by a pool like its own that nobody else has."""
        try:
            connection = _detached(self._engine.pool.recreate())
            connection.rollback()
        except Exception as error:
            raise _not_connected(error) from error
        return connection  # type: ignore[no-any-return]


class AsyncEngineDriver:
    """Send statements over an AsyncEngine that speaks psycopg or asyncpg, on the running loop."""

    def __init__(self, engine: AsyncEngine, table: Table) -> None:
        _check(engine.sync_engine, ("psycopg", "asyncpg"), "AsyncJobSchedulerService")
        self._engine = engine
        self._table = table
        self._speech = _PsycopgSpeech(table) if engine.dialect.driver.startswith("psycopg") else _AsyncpgSpeech(table)

    async def fetch(self, call: Call, *, limit_s: float, fresh: bool = False) -> Rows:
        """Send a call and give its rows; see `AsyncDriver`."""
        async with self._own(limit_s) if fresh or not _pools(self._engine.pool) else self._taken(limit_s) as connection:
            return await self._speech.sender.fetch(connection, call, limit_s)

    async def administrator(self) -> Administrator:
        """Give what opens a connection for schema work, to be used in another thread."""
        return administrator(await self._speech.blocking(self), self._table)

    async def link(self, *, limit_s: float) -> Link:
        """Open a connection for the keeper, on the loop that runs."""
        return self._speech.link(await self.connect(limit_s))

    async def close(self) -> None:
        """Leave the engine to its owner."""

    @property
    def given(self) -> bool:
        """Say that the engine belongs to the caller."""
        return True

    @property
    def stays_on_loop(self) -> bool:
        """Say that its links work on any loop: each is opened on the loop that it serves."""
        return False

    @property
    def url(self) -> Any:
        """Give the engine's URL, its password included."""
        return self._engine.url

    @asynccontextmanager
    async def _taken(self, limit_s: float) -> AsyncGenerator[Any]:
        try:
            taken = await _in_time(limit_s / 2, self._engine.pool)
        except (TooLateError, sqlalchemy_exc.TimeoutError):
            await self._speech.close(await self.connect(limit_s))  # as in EngineDriver
            raise _too_few(limit_s) from None
        except Exception as error:
            raise _not_connected(error) from error
        connection = taken.driver_connection
        try:
            yield connection
        finally:
            await greenlet_spawn(taken.invalidate if self._speech.closed(connection) else taken.close)

    @asynccontextmanager
    async def _own(self, limit_s: float) -> AsyncGenerator[Any]:
        connection = await self.connect(limit_s)
        try:
            yield connection
        finally:
            await self._speech.close(connection)

    async def connect(self, limit_s: float) -> Any:
        """Connect as the engine does, by a pool like its own that nobody else has."""
        try:
            return _detached(await _in_time(limit_s, self._engine.pool.recreate()))
        except TooLateError:
            raise unreachable(f"it did not answer within {limit_s:g} s") from None
        except Exception as error:
            raise _not_connected(error) from error


class _PsycopgSpeech:
    """Know how psycopg's async connections are used below SQLAlchemy."""

    def __init__(self, table: Table) -> None:
        self.sender = AsyncSender(table)
        self._table = table

    def link(self, connection: Any) -> Link:
        return PsycopgLink(connection, self._table)

    def closed(self, connection: Any) -> bool:
        return bool(connection.closed)

    async def close(self, connection: Any) -> None:
        await connection.close()

    async def blocking(self, driver: AsyncEngineDriver) -> Any:
        opened = await driver.connect(CONNECT_LIMIT_S)
        await opened.rollback()

        def adopted() -> psycopg.Connection[Any]:
            connection: Any = psycopg.Connection(opened.pgconn)
            connection.tenure_opened = opened  # which must live as long
            return connection  # type: ignore[no-any-return]

        return adopted


class _AsyncpgSpeech:
    """Know how asyncpg's connections are used below SQLAlchemy."""

    def __init__(self, table: Table) -> None:
        from tenure.drivers import sending_asyncpg

        self._asyncpg = sending_asyncpg
        self.sender = sending_asyncpg.AsyncpgSender(table)
        self._table = table

    def link(self, connection: Any) -> Link:
        return self._asyncpg.AsyncpgLink(connection, self._table)

    def closed(self, connection: Any) -> bool:
        return bool(connection.is_closed())

    async def close(self, connection: Any) -> None:
        await self._asyncpg.close_asyncpg(connection)

    async def blocking(self, driver: AsyncEngineDriver) -> Any:
        """Connect by psycopg to what the engine's URL says; nothing else of asyncpg's settings means anything to it."""
        parts = driver.url.translate_connect_args(username="user", database="dbname")
        return lambda: connect(Recipe("", parts))


class _AdoptedLink(PsycopgLink):
    """Be a link over a connection that was opened blocking."""

    def __init__(self, opened: psycopg.Connection[Any], table: Table) -> None:
        super().__init__(psycopg.AsyncConnection(opened.pgconn), table)
        self._opened = opened  # it must live as long: it would warn that it was left open


def _check(engine: Engine, drivers: tuple[str, ...], service: str) -> None:
    spoken = engine.dialect.driver.removesuffix("_async")
    if engine.dialect.name != "postgresql" or spoken not in drivers:
        known = " or ".join(f"postgresql+{driver}" for driver in drivers)
        raise TypeError(f"{service} needs an engine over {known}, not {engine.dialect.name}+{spoken}.")
    if engine.dialect.is_async and service == "JobSchedulerService":
        raise TypeError("This engine is an AsyncEngine's own. Give the AsyncEngine to AsyncJobSchedulerService.")


def _pools(pool: Pool) -> bool:
    return isinstance(pool, QueuePool)


def _detached(taken: Any) -> Any:
    """Take a connection out of its pool: closing it is our affair."""
    fairy = taken.connect() if isinstance(taken, Pool) else taken
    connection = fairy.driver_connection
    fairy.detach()
    return connection


def _closed(connection: psycopg.Connection[Any]) -> None:
    connection.close()


async def _in_time(limit_s: float, pool: Pool) -> Any:
    """Wait for a connection outside of the call: in a black hole, a cancelled psycopg call waits on."""
    task = asyncio.ensure_future(greenlet_spawn(pool.connect))
    await asyncio.wait({task}, timeout=limit_s)
    if task.done():
        return task.result()
    task.add_done_callback(_give_back_late)
    task.cancel()
    raise TooLateError


_late: set[asyncio.Task[Any]] = set()


def _give_back_late(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is None:
        with suppress(RuntimeError):
            back = asyncio.ensure_future(greenlet_spawn(task.result().close))
            _late.add(back)
            back.add_done_callback(_late.discard)


def _not_connected(error: Exception) -> JobDatabaseError:
    """Give the error for an engine that could not connect; an application's own may say what is not to be said."""
    if isinstance(error, JobDatabaseError):
        return error
    cause = error.orig if isinstance(error, sqlalchemy_exc.DBAPIError) else error
    if isinstance(cause, OSError | psycopg.Error) or type(cause).__module__.startswith(("asyncpg", "sqlalchemy")):
        return unreachable(str(cause))
    return unreachable(f"the engine's own way to connect raised {type(cause).__name__}")


def _too_few(limit_s: float) -> JobDatabaseError:
    return busy(f"No connection of the engine's pool was free within {limit_s / 2:g} s. Raise its pool_size.")
