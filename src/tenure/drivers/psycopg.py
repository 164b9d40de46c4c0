"""psycopg 3, blocking and on a loop: a pool that was given, or one of our own for a connection string or a recipe."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from tenure.drivers import Administrator, Rows
from tenure.drivers.links import PsycopgLink, administrator, connect, connect_async
from tenure.drivers.pool_log import POOL_NAME, OwnConnection
from tenure.drivers.problems import Refusals, busy
from tenure.drivers.recipes import CONNECT_LIMIT_S, Recipe, check_conninfo, resolved
from tenure.drivers.sending import AsyncSender, Sender
from tenure.operations import Call
from tenure.statements import Table

POOL_SIZE = 10
CLOSE_LIMIT_S = 1.0


Source = Callable[[], Recipe]
"""Says how to connect, asked anew for each connection: a password may change."""


def _source(database: str | Source | None) -> Source:
    if callable(database):
        return database
    recipe = Recipe(database or "", {})
    return lambda: recipe


class PsycopgDriver:
    """Send statements over psycopg, blocking."""

    def __init__(self, database: str | ConnectionPool[Any] | Source, table: Table) -> None:
        if isinstance(database, str):
            check_conninfo(database)
        self._given: ConnectionPool[Any] | None = database if isinstance(database, ConnectionPool) else None
        self._source = _source(None if isinstance(database, ConnectionPool) else database)
        self._pool: ConnectionPool[Any] | None = self._given
        self._opening = threading.Lock()
        self._closed = False
        self._refusals = Refusals()
        self._table = table
        self._sender = Sender(table)

    def fetch(self, call: Call, *, limit_s: float, fresh: bool = False) -> Rows:
        """Send a call and give its rows; see `Driver`."""
        pool, connection = self._take(limit_s, fresh)
        try:
            return self._sender.fetch(connection, call, limit_s)
        finally:
            connection.close() if pool is None else pool.putconn(connection)

    def administrator(self) -> Administrator:
        """Give what opens a connection for schema work."""
        return administrator(lambda: connect(self._recipe()), self._table)

    async def link(self, *, limit_s: float) -> PsycopgLink:
        """Open a connection for the keeper."""
        return await PsycopgLink.open(self._recipe(), self._table, limit_s)

    def close(self) -> None:
        """Close the pool if it is ours; what is sent later has a connection of its own."""
        self._closed = True
        if self._pool and not self._given:
            self._pool.close(timeout=CLOSE_LIMIT_S)

    @property
    def given(self) -> bool:
        """Say whether the pool belongs to the caller."""
        return self._given is not None

    @property
    def stays_on_loop(self) -> bool:
        """Say that its links work on any loop."""
        return False

    def _recipe(self) -> Recipe:
        if self._given is None:
            return self._source()
        conninfo, keywords = self._given.conninfo, self._given.kwargs
        return Recipe(
            conninfo() if callable(conninfo) else conninfo, (keywords() if callable(keywords) else keywords) or {}
        )

    def _take(self, limit_s: float, fresh: bool) -> tuple[ConnectionPool[Any] | None, psycopg.Connection[Any]]:
        """Give a connection, and the pool that it goes back to; one without a pool is closed after its call."""
        pool = None if fresh else self._opened_pool()
        try:
            return pool, self._connect() if pool is None else pool.getconn(timeout=limit_s / 2)
        except PoolClosed:
            return None, self._connect()
        except (PoolTimeout, TooManyRequests):
            self._connect().close()  # an unreachable server says so here, by its own error
            raise busy(f"No connection of the pool was free within {limit_s / 2:g} s. Raise its max_size.") from None

    def _opened_pool(self) -> ConnectionPool[Any] | None:
        if self._pool is None and not self._closed:
            came_s = time.monotonic()
            with self._opening:
                if self._pool is None:
                    with self._refusals.shared_since(came_s):
                        self._connect().close()  # the pool would retry in silence where this says what is wrong
                    self._pool = self._open_pool()
                    if self._closed:  # meanwhile, in another thread
                        self.close()
        return self._pool

    def _open_pool(self) -> ConnectionPool[Any]:
        source = self._source

        class Own(psycopg.Connection[Any], OwnConnection):
            @classmethod
            def connect(cls, conninfo: str = "", **keywords: Any) -> Self:  # noqa: ARG003 - read anew each time
                return super().connect(source().text(), **keywords)

        return ConnectionPool(
            connection_class=Own,
            min_size=0,
            max_size=POOL_SIZE,
            kwargs={"autocommit": True},
            open=True,
            name=POOL_NAME,
        )

    def _connect(self) -> psycopg.Connection[Any]:
        return connect(self._recipe())


class AsyncPsycopgDriver:
    """Send statements over psycopg on the running loop."""

    def __init__(self, database: str | AsyncConnectionPool[Any] | Source, table: Table) -> None:
        if isinstance(database, str):
            check_conninfo(database)
        self._given: AsyncConnectionPool[Any] | None = database if isinstance(database, AsyncConnectionPool) else None
        self._source = _source(None if isinstance(database, AsyncConnectionPool) else database)
        self._pool: AsyncConnectionPool[Any] | None = self._given
        self._opening = asyncio.Lock()
        self._closed = False
        self._refusals = Refusals()
        self._table = table
        self._sender = AsyncSender(table)

    async def fetch(self, call: Call, *, limit_s: float, fresh: bool = False) -> Rows:
        """Send a call and give its rows; see `AsyncDriver`."""
        async with self._connection(limit_s, fresh) as connection:
            return await self._sender.fetch(connection, call, limit_s)

    async def administrator(self) -> Administrator:
        """Give what opens a connection for schema work, to be used in another thread."""
        recipe = await self._recipe()
        return administrator(lambda: connect(recipe), self._table)

    async def link(self, *, limit_s: float) -> PsycopgLink:
        """Open a connection for the keeper."""
        return await PsycopgLink.open(await self._recipe(), self._table, limit_s)

    async def close(self) -> None:
        """Close the pool if it is ours; what is sent later has a connection of its own."""
        self._closed = True
        if self._pool and not self._given:
            await self._pool.close(timeout=CLOSE_LIMIT_S)

    @property
    def given(self) -> bool:
        """Say whether the pool belongs to the caller."""
        return self._given is not None

    @property
    def stays_on_loop(self) -> bool:
        """Say that its links work on any loop."""
        return False

    async def _recipe(self) -> Recipe:
        if self._given is None:
            return self._source()
        conninfo, keywords = self._given.conninfo, self._given.kwargs
        return Recipe(await resolved(conninfo), await resolved(keywords) or {})

    @asynccontextmanager
    async def _connection(self, limit_s: float, fresh: bool) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
        pool = None if fresh else await self._opened_pool()
        try:
            connection = await self._connect(limit_s) if pool is None else await pool.getconn(timeout=limit_s / 2)
        except PoolClosed:
            pool, connection = None, await self._connect(limit_s)
        except (PoolTimeout, TooManyRequests):
            await (await self._connect(limit_s)).close()  # an unreachable server says so here, by its own error
            raise busy(f"No connection of the pool was free within {limit_s / 2:g} s. Raise its max_size.") from None
        try:
            yield connection
        finally:
            await (connection.close() if pool is None else pool.putconn(connection))

    async def _opened_pool(self) -> AsyncConnectionPool[Any] | None:
        if self._pool is None and not self._closed:
            came_s = time.monotonic()
            async with self._opening:
                if self._pool is None:
                    with self._refusals.shared_since(came_s):
                        await (await self._connect(CONNECT_LIMIT_S)).close()  # as in PsycopgDriver
                    self._pool = await self._open_pool()
                    if self._closed:  # meanwhile, in another task
                        await self.close()
        return self._pool

    async def _open_pool(self) -> AsyncConnectionPool[Any]:
        source = self._source

        class Own(psycopg.AsyncConnection[Any], OwnConnection):
            @classmethod
            async def connect(cls, conninfo: str = "", **keywords: Any) -> Self:  # noqa: ARG003 - read anew each time
                return await super().connect(source().text(), **keywords)

        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            connection_class=Own,
            min_size=0,
            max_size=POOL_SIZE,
            kwargs={"autocommit": True},
            open=False,
            name=POOL_NAME,
        )
        await pool.open()
        return pool

    async def _connect(self, limit_s: float) -> psycopg.AsyncConnection[Any]:
        return await connect_async(await self._recipe(), limit_s)
