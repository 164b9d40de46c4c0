"""How calls are sent over an open asyncpg connection, whoever opened it: values as texts, at READ COMMITTED.

asyncpg has no way to put a transaction around a statement in the same round trip, so that is done only where it must
be: where the database's default isolation is another (C4.5), and behind a pooler, which could hand the two halves of an
unprepared statement to two servers (C4.8).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tenure.drivers import Rows
from tenure.drivers.problems import Complaint, problem
from tenure.drivers.texts import plain_rows, statement_of, texts_of
from tenure.operations import Call
from tenure.statements import Table

asyncpg: Any = import_module("asyncpg")  # it has no types

CLOSE_LIMIT_S = 1.0
_TRAITS = (
    "SELECT pg_backend_pid(), CAST(current_setting('default_transaction_isolation') AS text), "
    "CAST(session_user AS text)"
)
_REMEMBERED = 256
_NEVER_SENT = "22000"
_GONE = ("08", "57P01", "57P02", "57P03")


@dataclass(frozen=True, slots=True)
class _Traits:
    """Say how statements must be sent over one connection, and as whom."""

    pooled: bool
    wraps: bool
    role: str


@dataclass(slots=True)
class _Limit:
    """Say whether the connection was given up under a call."""

    fired: bool = False


class AsyncpgSender:
    """Send calls over asyncpg connections, remembering the traits of each."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._texts: dict[bytes, str] = {}
        self._traits: dict[Any, _Traits] = {}

    async def fetch(self, connection: Any, call: Call, limit_s: float) -> Rows:
        """Send a call and give its rows; raises `JobDatabaseError`."""
        limit = _Limit()

        def fire() -> None:
            limit.fired = True
            connection.terminate()

        timer = asyncio.get_running_loop().call_later(limit_s, fire)
        try:
            return await self._execute(connection, call)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            told = self._complaint_of(error, connection, limit, limit_s)
            raise problem(told, self._table) from None
        finally:
            timer.cancel()

    async def _execute(self, connection: Any, call: Call) -> Rows:
        traits = self._traits.get(connection.get_settings()) or await self._look(connection)
        text = self._texts.get(call.query.text)
        if text is None:
            text = self._texts[call.query.text] = statement_of(call, rb"$\2").decode()
        values = texts_of(call)
        if not traits.wraps:
            return plain_rows(await connection.fetch(text, *values))
        async with _transaction(connection, "BEGIN ISOLATION LEVEL READ COMMITTED"):
            if traits.pooled:
                return plain_rows(await _fetch_unnamed(connection, text, values))
            return plain_rows(await connection.fetch(text, *values))

    async def _look(self, connection: Any) -> _Traits:
        async with _transaction(connection, "BEGIN"):
            row = (await _fetch_unnamed(connection, _TRAITS, []))[0]
        server_pid, isolation, role = row
        pooled = server_pid != connection.get_server_pid()
        wraps = pooled or isolation not in ("read committed", "read uncommitted")
        while len(self._traits) >= _REMEMBERED:
            del self._traits[next(iter(self._traits))]
        found = self._traits[connection.get_settings()] = _Traits(pooled, wraps, role)
        return found

    def _complaint_of(self, error: Any, connection: Any, limit: _Limit, limit_s: float) -> Complaint:
        if limit.fired:
            return Complaint(None, f"there was no answer within {limit_s:g} s", may_have_changed=True)
        state = getattr(error, "sqlstate", None)
        if _closed(connection) or isinstance(error, OSError) or (state and state.startswith(_GONE)):
            return Complaint(None, str(error), may_have_changed=True)
        if not state or not isinstance(error, asyncpg.PostgresError):
            return Complaint(_NEVER_SENT, str(error))
        traits = self._traits.get(connection.get_settings())
        return Complaint(state, getattr(error, "message", None) or "no message", traits.role if traits else None)


class AsyncpgLink:
    """Be one asyncpg connection of its own, for the keeper; see `Link`."""

    def __init__(self, connection: Any, table: Table) -> None:
        self._connection = connection
        self._sender = AsyncpgSender(table)

    async def fetch(self, call: Call, *, limit_s: float) -> Rows:
        """Send a call and give its rows."""
        return await self._sender.fetch(self._connection, call, limit_s)

    def cut(self) -> None:
        """Give the connection up under a call that hangs."""
        self._connection.terminate()

    async def close(self) -> None:
        """Close the connection."""
        await close_asyncpg(self._connection)


async def close_asyncpg(connection: Any) -> None:
    """Close a connection, politely if that is quick."""
    if not connection.is_closed():
        with suppress(Exception):
            await connection.close(timeout=CLOSE_LIMIT_S)


@asynccontextmanager
async def _transaction(connection: Any, begin: str) -> AsyncGenerator[None]:
    """Put a transaction around statements; `execute` without values uses no prepared statement."""
    await connection.execute(begin)
    try:
        yield
        await connection.execute("COMMIT")
    except BaseException:
        if not _closed(connection):
            with suppress(Exception):
                await connection.execute("ROLLBACK")
        raise


async def _fetch_unnamed(connection: Any, text: str, values: list[str | None]) -> Any:
    """Send a statement without leaving it prepared: behind a pooler that would be on somebody else's connection."""
    statement = await connection.prepare(text, name="")
    return await statement.fetch(*values)


def _closed(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # it has gone from its pool
        return True
