"""psycopg 3, blocking and on a loop: a pool that was given, or one of our own for a connection string.

Each statement runs on a connection of its own in autocommit, at READ COMMITTED whatever the database's default is
(C4.5), and keeps no session state (C4.8).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from tenure.drivers import Administrator, Rows
from tenure.drivers.channels import TRAITS, Channel, Channels, Traits, complaint_of, socket_of
from tenure.drivers.limits import Limit, limited, limited_on_loop
from tenure.drivers.problems import Complaint, Refusals, busy, problem, unreachable
from tenure.drivers.recipes import CONNECT_LIMIT_S, Recipe, check_conninfo, resolved
from tenure.operations import Call
from tenure.statements import Table

POOL_SIZE = 10
CLOSE_LIMIT_S = 1.0

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


def _administrator(recipe: Recipe, table: Table) -> Administrator:
    @contextmanager
    def administer() -> Generator[psycopg.Connection[Any]]:
        try:
            connection = psycopg.connect(
                recipe.text(), autocommit=True, row_factory=tuple_row, cursor_factory=psycopg.RawCursor
            )
        except psycopg.Error as error:
            raise unreachable(str(error)) from None
        with connection:
            try:
                yield connection
            except psycopg.Error as error:
                told = Complaint(
                    error.sqlstate,
                    error.diag.message_primary or str(error),
                    connection.info.user,
                    database=connection.info.dbname,
                    migrates=True,
                )
                raise problem(told, table) from None

    return administer


class PsycopgDriver:
    """Send statements over psycopg, blocking."""

    def __init__(self, database: str | ConnectionPool[Any], table: Table) -> None:
        if isinstance(database, str):
            check_conninfo(database)
        self._given = database if isinstance(database, ConnectionPool) else None
        self._conninfo = database if isinstance(database, str) else ""
        self._pool = self._given
        self._opening = threading.Lock()
        self._refusals = Refusals()
        self._table = table
        self._channels: Channels[psycopg.Connection[Any], psycopg.RawCursor[Any]] = Channels()

    def fetch(self, call: Call, *, limit_s: float, fresh: bool = False) -> Rows:
        """Send a call and give its rows; see `Driver`."""
        pool, connection = self._take(limit_s, fresh)
        try:
            with limited(socket_of(connection), limit_s) as limit:
                try:
                    return self._execute(connection, call)
                except psycopg.Error as error:
                    raise problem(complaint_of(error, connection, limit, limit_s), self._table) from None
        finally:
            connection.close() if pool is None else pool.putconn(connection)

    def administrator(self) -> Administrator:
        """Give what opens a connection for schema work."""
        return _administrator(self._recipe(), self._table)

    async def link(self, *, limit_s: float) -> PsycopgLink:
        """Open a connection for the keeper."""
        return await PsycopgLink.open(self._recipe(), self._table, limit_s)

    def close(self) -> None:
        """Close the pool if it is ours."""
        if self._pool and not self._given:
            self._pool.close(timeout=CLOSE_LIMIT_S)

    @property
    def given(self) -> bool:
        """Say whether the pool belongs to the caller."""
        return self._given is not None

    def _recipe(self) -> Recipe:
        if self._given is None:
            return Recipe(self._conninfo, {})
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

    def _opened_pool(self) -> ConnectionPool[Any]:
        if self._pool is None:
            came_s = time.monotonic()
            with self._opening:
                if self._pool is None:
                    with self._refusals.shared_since(came_s):
                        self._connect().close()  # the pool would retry in silence where this says what is wrong
                    self._pool = self._open_pool()
        return self._pool

    def _open_pool(self) -> ConnectionPool[Any]:
        text = self._recipe().text()
        return ConnectionPool(
            text, min_size=0, max_size=POOL_SIZE, kwargs={"autocommit": True}, open=True, name="tenure"
        )

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            return psycopg.connect(self._recipe().text(), autocommit=True)
        except psycopg.Error as error:
            raise unreachable(str(error)) from None

    def _execute(self, connection: psycopg.Connection[Any], call: Call) -> Rows:
        autocommit = connection.autocommit
        if not autocommit:
            connection.autocommit = True
        try:
            channel = self._channels.get(connection) or self._open_channel(connection)
            cursor = channel.cursor(call.query.name)
            if channel.traits.wraps:
                with self._transaction(connection):
                    cursor.execute(call.query.text, call.parameters, prepare=channel.traits.prepare)
            else:
                cursor.execute(call.query.text, call.parameters, prepare=channel.traits.prepare)
            return cursor.fetchall()
        finally:
            if not autocommit and not connection.closed:
                connection.autocommit = False

    def _open_channel(self, connection: psycopg.Connection[Any]) -> Channel[psycopg.RawCursor[Any]]:
        cursor = psycopg.RawCursor(connection, row_factory=tuple_row).execute(TRAITS, prepare=False)
        traits = Traits.read(connection, cursor.fetchall()[0])
        return self._channels.add(
            connection, Channel(traits, lambda: psycopg.RawCursor(connection, row_factory=tuple_row))
        )

    @contextmanager
    def _transaction(self, connection: psycopg.Connection[Any]) -> Generator[None]:
        try:
            with connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext():
                connection.execute(_BEGIN, prepare=False)
                yield
                connection.execute("COMMIT", prepare=False)
        except psycopg.Error:
            if not connection.closed:
                connection.rollback()
            raise


class AsyncPsycopgDriver:
    """Send statements over psycopg on the running loop."""

    def __init__(self, database: str | AsyncConnectionPool[Any], table: Table) -> None:
        if isinstance(database, str):
            check_conninfo(database)
        self._given = database if isinstance(database, AsyncConnectionPool) else None
        self._conninfo = database if isinstance(database, str) else ""
        self._pool = self._given
        self._opening = asyncio.Lock()
        self._refusals = Refusals()
        self._table = table
        self._sender = _AsyncSender(table)

    async def fetch(self, call: Call, *, limit_s: float, fresh: bool = False) -> Rows:
        """Send a call and give its rows; see `AsyncDriver`."""
        async with self._connection(limit_s, fresh) as connection:
            return await self._sender.fetch(connection, call, limit_s)

    async def administrator(self) -> Administrator:
        """Give what opens a connection for schema work, to be used in another thread."""
        return _administrator(await self._recipe(), self._table)

    async def link(self, *, limit_s: float) -> PsycopgLink:
        """Open a connection for the keeper."""
        return await PsycopgLink.open(await self._recipe(), self._table, limit_s)

    async def close(self) -> None:
        """Close the pool if it is ours."""
        if self._pool and not self._given:
            await self._pool.close(timeout=CLOSE_LIMIT_S)

    @property
    def given(self) -> bool:
        """Say whether the pool belongs to the caller."""
        return self._given is not None

    async def _recipe(self) -> Recipe:
        if self._given is None:
            return Recipe(self._conninfo, {})
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

    async def _opened_pool(self) -> AsyncConnectionPool[Any]:
        if self._pool is None:
            came_s = time.monotonic()
            async with self._opening:
                if self._pool is None:
                    with self._refusals.shared_since(came_s):
                        await (await self._connect(CONNECT_LIMIT_S)).close()  # as in PsycopgDriver
                    self._pool = await self._open_pool()
        return self._pool

    async def _open_pool(self) -> AsyncConnectionPool[Any]:
        text = (await self._recipe()).text()
        pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
            text, min_size=0, max_size=POOL_SIZE, kwargs={"autocommit": True}, open=False, name="tenure"
        )
        await pool.open()
        return pool

    async def _connect(self, limit_s: float) -> psycopg.AsyncConnection[Any]:
        return await _connect_async(await self._recipe(), limit_s)


class PsycopgLink:
    """Be one connection of its own, for the keeper; see `Link`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], table: Table) -> None:
        self._connection = connection
        self._sender = _AsyncSender(table)

    @classmethod
    async def open(cls, recipe: Recipe, table: Table, limit_s: float) -> PsycopgLink:
        """Connect, or raise `JobDatabaseError`."""
        return cls(await _connect_async(recipe, limit_s), table)

    async def fetch(self, call: Call, *, limit_s: float) -> Rows:
        """Send a call and give its rows."""
        return await self._sender.fetch(self._connection, call, limit_s)

    def cut(self) -> None:
        """Give the connection up under a call that hangs."""
        if not self._connection.closed:
            Limit(self._connection.fileno(), 0.0).fire()

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


class _AsyncSender:
    """Send calls over async connections, remembering the traits of each."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._channels: Channels[psycopg.AsyncConnection[Any], psycopg.AsyncRawCursor[Any]] = Channels()

    async def fetch(self, connection: psycopg.AsyncConnection[Any], call: Call, limit_s: float) -> Rows:
        with limited_on_loop(socket_of(connection), limit_s) as limit:
            try:
                return await self._execute(connection, call)
            except psycopg.Error as error:
                raise problem(complaint_of(error, connection, limit, limit_s), self._table) from None

    async def _execute(self, connection: psycopg.AsyncConnection[Any], call: Call) -> Rows:
        autocommit = connection.autocommit
        if not autocommit:
            await connection.set_autocommit(True)
        try:
            channel = self._channels.get(connection) or await self._open_channel(connection)
            cursor = channel.cursor(call.query.name)
            if channel.traits.wraps:
                async with self._transaction(connection):
                    await cursor.execute(call.query.text, call.parameters, prepare=channel.traits.prepare)
            else:
                await cursor.execute(call.query.text, call.parameters, prepare=channel.traits.prepare)
            return await cursor.fetchall()
        finally:
            if not autocommit and not connection.closed:
                await connection.set_autocommit(False)

    async def _open_channel(self, connection: psycopg.AsyncConnection[Any]) -> Channel[psycopg.AsyncRawCursor[Any]]:
        cursor = await psycopg.AsyncRawCursor(connection, row_factory=tuple_row).execute(TRAITS, prepare=False)
        traits = Traits.read(connection, (await cursor.fetchall())[0])
        return self._channels.add(
            connection, Channel(traits, lambda: psycopg.AsyncRawCursor(connection, row_factory=tuple_row))
        )

    @asynccontextmanager
    async def _transaction(self, connection: psycopg.AsyncConnection[Any]) -> AsyncGenerator[None]:
        try:
            async with connection.pipeline() if psycopg.AsyncPipeline.is_supported() else nullcontext():
                await connection.execute(_BEGIN, prepare=False)
                yield
                await connection.execute("COMMIT", prepare=False)
        except psycopg.Error:
            if not connection.closed:
                await connection.rollback()
            raise


async def _connect_async(recipe: Recipe, limit_s: float) -> psycopg.AsyncConnection[Any]:
    try:
        async with asyncio.timeout(limit_s):
            return await psycopg.AsyncConnection.connect(recipe.text(), autocommit=True)
    except TimeoutError:
        raise unreachable(f"it did not answer within {limit_s:g} s") from None
    except psycopg.Error as error:
        raise unreachable(str(error)) from None
