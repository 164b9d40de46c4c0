"""Statements in a caller's own transaction: psycopg, asyncpg, SQLAlchemy and Django connections, sessions too (C7.5).

Nothing is opened, committed, rolled back or set here, and errors stay the driver's own, so that the caller's retries
see what they know. No framework is imported: a connection of one that is not loaded cannot come along.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tenure.drivers import Rows
from tenure.operations import Call

_PLACEHOLDER = re.compile(rb"\$(\d+)")

KNOWN = (
    "a psycopg Connection or AsyncConnection, an asyncpg Connection, a SQLAlchemy Connection, AsyncConnection, Session "
    "or AsyncSession, or a Django connection"
)


class OutsideTransactionError(Exception):
    """Say that a connection has no transaction open; turned into a public error by the services."""


@dataclass(frozen=True, slots=True)
class Guest:
    """Send calls over a connection that belongs to somebody else; `fetch` gives rows, or an awaitable of them."""

    fetch: Callable[[Call], Any]
    is_async: bool

    def rows(self, call: Call) -> Rows:
        """Send a call, blocking."""
        rows: Rows = self.fetch(call)
        return rows

    async def rows_async(self, call: Call) -> Rows:
        """Send a call over a connection of either kind."""
        found = self.fetch(call)
        rows: Rows = await found if self.is_async else found
        return rows


_Maker: TypeAlias = "Callable[[Any], Guest]"


def guest_of(connection: object) -> Guest:
    """Choose how to send over a caller's connection.

    Raises `TypeError` for what is not known, and `OutsideTransactionError` where no transaction is open.
    """
    for module, name, maker in _MAKERS:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(connection, kind):
            return maker(connection)
    raise TypeError(f"connection must be {KNOWN}; not {type(connection).__module__}.{type(connection).__qualname__}.")


def _psycopg(connection: Any) -> Guest:
    _refuse_autocommit(connection.autocommit and connection.info.transaction_status.name == "IDLE")

    def fetch(call: Call) -> Rows:
        import psycopg
        from psycopg.rows import tuple_row

        cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
        return cursor.execute(call.query.text, call.parameters).fetchall()

    return Guest(fetch, is_async=False)


def _psycopg_async(connection: Any) -> Guest:
    _refuse_autocommit(connection.autocommit and connection.info.transaction_status.name == "IDLE")

    async def fetch(call: Call) -> Rows:
        import psycopg
        from psycopg.rows import tuple_row

        cursor = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)
        return await (await cursor.execute(call.query.text, call.parameters)).fetchall()

    return Guest(fetch, is_async=True)


def _asyncpg(connection: Any) -> Guest:
    _refuse_autocommit(not connection.is_in_transaction())

    async def fetch(call: Call) -> Rows:
        return [tuple(row) for row in await connection.fetch(call.query.text.decode(), *call.parameters)]

    return Guest(fetch, is_async=True)


def _sqlalchemy(connection: Any) -> Guest:
    _refuse_autocommit(bool(getattr(connection.connection.dbapi_connection, "autocommit", False)))
    return Guest(lambda call: _tuples(connection.execute(*_text(call))), is_async=False)


def _sqlalchemy_session(session: Any) -> Guest:
    return _sqlalchemy(session.connection())


def _sqlalchemy_async(connection: Any) -> Guest:
    async def fetch(call: Call) -> Rows:
        raw = await connection.get_raw_connection()
        _refuse_autocommit(bool(getattr(raw.dbapi_connection, "autocommit", False)))
        return _tuples(await connection.execute(*_text(call)))

    return Guest(fetch, is_async=True)


def _sqlalchemy_async_session(session: Any) -> Guest:
    async def fetch(call: Call) -> Rows:
        rows: Rows = await _sqlalchemy_async(await session.connection()).fetch(call)
        return rows

    return Guest(fetch, is_async=True)


def _django(connection: Any) -> Guest:
    _refuse_autocommit(connection.get_autocommit() and not connection.in_atomic_block)

    def fetch(call: Call) -> Rows:
        statement = call.query.text.replace(b"%", b"%%")
        names = {f"p{number}": value for number, value in enumerate(call.parameters, start=1)}
        with connection.cursor() as cursor:
            cursor.execute(_PLACEHOLDER.sub(rb"%(p\1)s", statement).decode(), names)
            return [tuple(row) for row in cursor.fetchall()]

    return Guest(fetch, is_async=False)


def _django_proxy(proxy: Any) -> Guest:
    return guest_of(proxy._connections[proxy._alias])


def _text(call: Call) -> tuple[Any, dict[str, Any]]:
    """Give the statement as SQLAlchemy's `text`, which knows parameters by a colon."""
    from sqlalchemy import text

    statement = _PLACEHOLDER.sub(rb":p\1", call.query.text.replace(b":", rb"\:")).decode()
    return text(statement), {f"p{number}": value for number, value in enumerate(call.parameters, start=1)}


def _tuples(result: Any) -> Rows:
    return [tuple(row) for row in result.fetchall()]


def _refuse_autocommit(outside: bool) -> None:
    if outside:
        raise OutsideTransactionError


_MAKERS: tuple[tuple[str, str, _Maker], ...] = (
    ("psycopg", "Connection", _psycopg),
    ("psycopg", "AsyncConnection", _psycopg_async),
    ("asyncpg", "Connection", _asyncpg),
    ("asyncpg.pool", "PoolConnectionProxy", _asyncpg),
    ("sqlalchemy.engine", "Connection", _sqlalchemy),
    ("sqlalchemy.orm", "Session", _sqlalchemy_session),
    ("sqlalchemy.orm", "scoped_session", _sqlalchemy_session),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", _sqlalchemy_async),
    ("sqlalchemy.ext.asyncio", "AsyncSession", _sqlalchemy_async_session),
    ("sqlalchemy.ext.asyncio", "async_scoped_session", _sqlalchemy_async_session),
    ("django.utils.connection", "ConnectionProxy", _django_proxy),
    ("django.db.backends.postgresql.base", "DatabaseWrapper", _django),
)
