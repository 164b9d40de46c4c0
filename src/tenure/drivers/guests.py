"""Statements in a caller's own transaction: psycopg, asyncpg, SQLAlchemy and Django connections, sessions too (C7.5).

Nothing is opened, committed, rolled back or set here, and errors stay the driver's own, so that the caller's retries
see what they know. No framework is imported: a connection of one that is not loaded cannot come along.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tenure.drivers import Rows
from tenure.drivers.texts import plain_rows, statement_of, texts_of
from tenure.operations import Call

KNOWN = (
    "a psycopg Connection or AsyncConnection, an asyncpg Connection, a SQLAlchemy Connection, AsyncConnection, Session "
    "or AsyncSession, or a Django connection to PostgreSQL"
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
    if connection.autocommit and connection.pgconn.pipeline_status:
        with connection.pipeline():
            pass  # leaving it waits for what was queued; only then is it known whether a transaction is open
    _refuse_autocommit(connection.autocommit and connection.info.transaction_status.name == "IDLE")

    def fetch(call: Call) -> Rows:
        import psycopg
        from psycopg.rows import tuple_row

        cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
        return plain_rows(cursor.execute(statement_of(call, rb"$\2"), texts_of(call)).fetchall())

    return Guest(fetch, is_async=False)


def _psycopg_async(connection: Any) -> Guest:
    async def fetch(call: Call) -> Rows:
        import psycopg
        from psycopg.rows import tuple_row

        if connection.autocommit and connection.pgconn.pipeline_status:
            async with connection.pipeline():
                pass  # as above
        _refuse_autocommit(connection.autocommit and connection.info.transaction_status.name == "IDLE")
        cursor = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)
        await cursor.execute(statement_of(call, rb"$\2"), texts_of(call))
        return plain_rows(await cursor.fetchall())

    return Guest(fetch, is_async=True)


def _asyncpg(connection: Any) -> Guest:
    _refuse_autocommit(not connection.is_in_transaction())

    async def fetch(call: Call) -> Rows:
        return plain_rows(await connection.fetch(statement_of(call, rb"$\2").decode(), *texts_of(call)))

    return Guest(fetch, is_async=True)


def _sqlalchemy(connection: Any) -> Guest:
    _refuse_autocommit(bool(getattr(connection.connection.dbapi_connection, "autocommit", False)))
    return Guest(lambda call: plain_rows(connection.execute(*_text(call)).fetchall()), is_async=False)


def _sqlalchemy_session(session: Any) -> Guest:
    return _sqlalchemy(session.connection())


def _sqlalchemy_async(connection: Any) -> Guest:
    async def fetch(call: Call) -> Rows:
        raw = await connection.get_raw_connection()
        _refuse_autocommit(bool(getattr(raw.dbapi_connection, "autocommit", False)))
        return plain_rows((await connection.execute(*_text(call))).fetchall())

    return Guest(fetch, is_async=True)


def _sqlalchemy_async_session(session: Any) -> Guest:
    async def fetch(call: Call) -> Rows:
        rows: Rows = await _sqlalchemy_async(await session.connection()).fetch(call)
        return rows

    return Guest(fetch, is_async=True)


def _django(connection: Any) -> Guest:
    _refuse_autocommit(connection.get_autocommit() and not connection.in_atomic_block)

    def fetch(call: Call) -> Rows:
        connection.ensure_connection()
        connection.validate_thread_sharing()
        connection.validate_no_broken_transaction()
        # A cursor below Django's own wrappers: with DEBUG they log and keep every statement with its values (C11).
        with connection.wrap_database_errors, connection.create_cursor() as cursor:
            cursor.execute(statement_of(call, rb"%(p\2)s", percent=b"%%").decode(), _named(call, "p"))
            return plain_rows(cursor.fetchall())

    return Guest(fetch, is_async=False)


def _django_proxy(proxy: Any) -> Guest:
    return guest_of(proxy._connections[proxy._alias])


def _text(call: Call) -> tuple[Any, dict[str, str | None]]:
    """Give the statement as SQLAlchemy's `text`, which knows parameters by a colon."""
    from sqlalchemy import Text, bindparam, text

    prefix = "value_"
    while prefix.encode() in call.query.text:  # with asyncpg, it replaces `%(name)s` within quoted identifiers, too
        prefix += "_"
    named = _named(call, prefix)
    statement = statement_of(call, rb":" + prefix.encode() + rb"\2", colon=rb"\:").decode()
    return text(statement).bindparams(*(bindparam(name, type_=Text()) for name in named)), named


def _named(call: Call, prefix: str) -> dict[str, str | None]:
    return {f"{prefix}{number}": value for number, value in enumerate(texts_of(call), start=1)}


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
