"""An asyncpg pool: calls go over its connections, on the loop that it belongs to."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module
from typing import Any

from tenure.drivers import Administrator, Rows
from tenure.drivers.problems import busy, unreachable
from tenure.drivers.sending_asyncpg import CLOSE_LIMIT_S, AsyncpgLink, AsyncpgSender, close_asyncpg
from tenure.errors import JobDatabaseError, JobServiceStateError
from tenure.operations import Call
from tenure.statements import Table

asyncpg: Any = import_module("asyncpg")  # it has no types

NO_ADMINISTRATOR = (
    "Schema work needs psycopg, and an asyncpg pool does not say how to connect. Give the service heartbeat_database= "
    "(a connection string, say), or run: tenure schema apply --database-url ..."
)


class AsyncpgDriver:
    """Send statements over an asyncpg pool that belongs to the caller."""

    def __init__(self, pool: Any, table: Table) -> None:
        self._pool = pool
        self._table = table
        self._sender = AsyncpgSender(table)
        self._opening = asyncio.Lock()

    async def fetch(self, call: Call, *, limit_s: float, fresh: bool = False) -> Rows:
        """Send a call and give its rows; see `AsyncDriver`."""
        connection = None if fresh else await self._taken(limit_s)
        if connection is None:
            own = await self._connect(limit_s)
            try:
                return await self._sender.fetch(own, call, limit_s)
            finally:
                await close_asyncpg(own)
        try:
            return await self._sender.fetch(connection, call, limit_s)
        finally:
            with suppress(Exception):  # a reset that fails costs the connection, not the answer that came before it
                await self._pool.release(connection, timeout=CLOSE_LIMIT_S)

    async def administrator(self) -> Administrator:
        """Refuse: there is no blocking way to this database here."""
        raise JobServiceStateError(NO_ADMINISTRATOR)

    async def link(self, *, limit_s: float) -> AsyncpgLink:
        """Open a connection for the keeper, on the running loop."""
        return AsyncpgLink(await self._connect(limit_s), self._table)

    async def close(self) -> None:
        """Leave the pool to its owner."""

    @property
    def given(self) -> bool:
        """Say that the pool belongs to the caller."""
        return True

    @property
    def stays_on_loop(self) -> bool:
        """Say that its links work on the pool's own loop only."""
        return True

    async def _taken(self, limit_s: float) -> Any:
        """Give a connection of the pool, or `None` if the pool is closed."""
        try:
            try:
                return await self._pool.acquire(timeout=limit_s / 2)
            except asyncpg.InterfaceError:
                await self._initialised(limit_s)
                return await self._pool.acquire(timeout=limit_s / 2)
        except asyncpg.InterfaceError:
            return None
        except TimeoutError:
            await close_asyncpg(await self._connect(limit_s))  # an unreachable server says so here, by its own error
            raise busy(f"No connection of the pool was free within {limit_s / 2:g} s. Raise its max_size.") from None
        except (asyncpg.PostgresError, OSError) as error:
            raise unreachable(str(error)) from None

    async def _initialised(self, limit_s: float) -> None:
        """Await a pool that was made and not awaited yet; one that cannot connect would stay closed for ever."""
        async with self._opening:
            await close_asyncpg(await self._connect(limit_s))
            await self._pool

    async def _connect(self, limit_s: float) -> Any:
        """Open a connection the way the pool does, which asyncpg (0.29 to 0.32) keeps to itself."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._pool._get_new_connection()
        except TimeoutError:
            raise unreachable(f"it did not answer within {limit_s:g} s") from None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise unreachable(str(error)) from None
        except JobDatabaseError:
            raise
        except Exception as error:
            raise unreachable(f"the pool's own way to connect raised {type(error).__name__}") from error
